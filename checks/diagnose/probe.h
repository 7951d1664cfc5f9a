// SPDX-License-Identifier: Apache-2.0
// One call of a step again, alone, with its inputs changed: what an op does to shifted, smaller or fewer numbers says
// what is wrong inside of it (E2, E9).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checks/diagnose/lab.h"

namespace ampcheck::checks::diagnose {

/// A call as it was met, inputs as the kernel read them.
struct MetCall {
  std::string op;  ///< without its count: "linear"
  std::vector<std::pair<std::string, double>> attributes;
  struct Input {
    std::string name;
    Shape shape;
    Dtype dtype = Dtype::fp32;
    bool trained = false;
    std::vector<double> values;
  };
  std::vector<Input> inputs;
  Dtype storage = Dtype::fp32;  ///< that the kernel ran in
  Dtype run = Dtype::fp32;      ///< of autocast: what a wide result is held against

  /// The first that is neither trained nor made of integers; null: none.
  Input* data();
};

/// What became of it, forward.
struct Answer {
  bool ran = false, finite = false, exact_finite = false;
  double excess = 0, error = 0, largest = 0, exact_largest = 0;
  double absolute = 0;  ///< 2-norm of the error
  std::vector<double> got, exact;
};

/// The call of that name in that step, on the first rank and micro-batch.
std::optional<MetCall> met_call(Lab& lab, const std::string& op, int step);
/// The same call of a run in fp64 from the weights that the run has before that step, and its result; none for a net
/// that fp64 cannot take there.
struct Fp64Call {
  MetCall met;
  std::vector<double> result;
};
std::optional<Fp64Call> fp64_call(Lab& lab, const std::string& op, int step);
/// What the op's kernel wrote in that step of a run with the change, on the first rank and micro-batch; empty where the
/// run cannot be made.
std::vector<double> written_by(Lab& lab, const std::string& op, int step, const Change& change);
/// Runs it; `storage`: in this type instead.
Answer answer_to(const MetCall& call, std::optional<Dtype> storage = {});

/// Changes of the data input.
MetCall scaled(MetCall call, double factor);
/// Rows less their means.
MetCall centred(MetCall call);
/// Only the first `share` of each row is kept; the rest is zero.
MetCall fewer_terms(MetCall call, double share);
/// The last axis of the data inputs cut to this share; itself where a trained input has that extent.
MetCall cut(MetCall call, double share);
/// Trained inputs of one axis (gains) become 1.
MetCall plain_gains(MetCall call);

}  // namespace ampcheck::checks::diagnose
