// SPDX-License-Identifier: Apache-2.0
// Gradients at a point where the formula has none, but one-sided derivatives: the distance of two equal vectors.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "checks/case/case_run.h"
#include "checks/case/interval.h"

namespace ampcheck::checks {

/// Where the formula gives a gradient no value (0/0, 0 times infinity) at finite inputs, and its values at inputs
/// nudged in any direction stay bounded however small the nudge, the interval becomes the hull of these values, and the
/// comparison is brought up to it. Elements at which the kernel has 0 stay open, and so does what is unbounded.
/// Returns words for the first element that then lies outside; "" for none.
std::string judge_one_sided(CaseRun& run, const Written& tensor, Pass pass, const std::vector<double>& got,
                            Interval& interval, Comparison& comparison);

}  // namespace ampcheck::checks
