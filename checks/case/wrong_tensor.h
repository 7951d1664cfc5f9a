// SPDX-License-Identifier: Apache-2.0
// What every explanation of a wrong tensor starts from.
#pragma once

#include <cstdint>
#include <vector>

#include "checks/case/case_run.h"

namespace ampcheck::checks {

/// Elements of a tensor up to which it is explained by evaluating formulas anew.
inline constexpr std::int64_t kLargestExplained = 1 << 14;

/// A written tensor with elements that no form admits, or some rows of one as a case of their own. It owns nothing.
struct WrongTensor {
  CaseRun& run;
  const Written& tensor;
  Pass pass;
  const std::vector<double>& got;
  const Interval& interval;      ///< of the form that leaves the fewest elements outside
  const Comparison& comparison;  ///< `outside`: of the intervals of all forms
};

}  // namespace ampcheck::checks
