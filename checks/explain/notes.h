// SPDX-License-Identifier: Apache-2.0
// What the explaining of one tensor or probe leaves for the next ones of its case: causes take long to look for, and
// two probes of a tensor are wrong by the same one.
#pragma once

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "checks/case/case_run.h"

namespace ampcheck::checks {

/// A cause that replays of the reference reproduce.
struct Replayed {
  enum class Kind { none, changed_formula, approximated, narrowed, dropped_terms, low_accumulation } kind = Kind::none;
  std::string words;
  bool of_sum = false;      ///< narrowed: a sum
  std::string change = {};  ///< words of the one change of a form, by which it is found again
  bool every = false;       ///< it gives every number of the tensor
  double odds = HUGE_VAL;   ///< of fewer bits: log10, against the likeliest of what explains nothing
  bool nonlinear = false;   ///< the changed formula is not linear in the cotangent
};

/// A departure from the contract that explains the numbers, and that they do not tell from what explains nothing: said
/// as long as nothing else explains them.
struct Weak {
  Code code = Code::none;
  std::string words;
  std::string before = {};  ///< the cause without it
};

/// Of one case; who runs the case keeps it and hands it on to those who judge and explain.
struct Notes {
  std::map<std::string, std::vector<Replayed>> replayed;  ///< by tensor, in the order of its wrong probes
  std::set<std::string> not_regrouped;                    ///< tensors that no grouping of a formula explains
  /// Tensors of which a probe is wrong by no grouping and at no kink: nor are the others looked at so.
  std::set<std::string> plainly_wrong;
  std::set<std::string> truncating;  ///< tensors of which some probe is truncated to storage
  std::set<std::string> departures;  ///< words of departures from the contract that explain some tensor
  /// Tensors of which a probe refutes all departures; those tried last apart.
  std::set<std::tuple<std::string, Pass, bool>> no_departure;
  std::map<std::pair<Code, std::string>, std::string> further;  ///< by code and tensor: words of further causes
  std::map<CheckId, Weak> weak;                                 ///< by check
};

}  // namespace ampcheck::checks
