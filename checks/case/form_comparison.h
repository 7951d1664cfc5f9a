// SPDX-License-Identifier: Apache-2.0
// A tensor held against every form of its op.
#pragma once

#include <span>
#include <vector>

#include "checks/case/case_run.h"

namespace ampcheck::checks {

struct FormComparison {
  Interval nearest;       ///< of the form that leaves the fewest elements outside
  Comparison comparison;  ///< `outside`: of the intervals of all forms
};
/// `held`: what an accumulating buffer held before; empty where nothing is added to.
FormComparison compare_with_forms(CaseRun& run, const Written& tensor, Pass pass, const std::vector<double>& got,
                                  std::span<const double> held = {});

}  // namespace ampcheck::checks
