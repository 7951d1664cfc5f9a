// SPDX-License-Identifier: Apache-2.0
// Sequences of calls, each aimed at one check.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checks/scaler/calls.h"

namespace ampcheck::checks::scaler {

/// Calls that are held against what the rule says, in what this check is about.
struct Scenario {
  const char* code = "";
  Setup setup = {};
  std::vector<Call> calls = {};
  bool errors = false, scales = false, factors = false, grads = false, weights = false, schedule = false;
  double ulps = 0;  ///< of fp32 that gradients and weights may differ by
};
std::vector<Scenario> scenarios(const ScaleRule& rule, const Subject& subject);

/// Calls with a judge of their own: what one wants of a scaler beyond its rule, or what no rule says in numbers.
struct Ideal {
  const char* code = "";
  Setup setup = {};
  std::vector<Call> calls = {};
  bool fails = false;  ///< else what it finds is a weakness of the rule
  std::function<std::string(const std::vector<Reply>&)> judge = {};
};
std::vector<Ideal> ideals(const ScaleRule& rule, const Subject& subject);

}  // namespace ampcheck::checks::scaler
