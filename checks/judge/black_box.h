// SPDX-License-Identifier: Apache-2.0
// Ops without a formula: the weak mode. Forward values cannot be judged; gradients are compared with centred
// differences of the op itself, which only show errors above their noise. The exact relations hold as for any op.
// Forward mode is held against the backward by the dot-product test, <v, J u> = <J^T v, u>, in fp64 on what the two
// wrote; the bound is the half ulp of storing each element and its measured noise, times the other side's weight, and
// the rounding of the sums (AC106).
//
// What it cannot see: a wrong forward whose backward is its derivative; relative errors below CheckResult::visible;
// coordinates at kinks, and those that were not drawn; dependences that even a large change of an input does not show.
#pragma once

#include "checks/case/case_run.h"

namespace ampcheck::checks {

/// Compares gradients of a case with differences of its forward at some coordinates of every input, and returns the
/// backward run on which the relations are checked. Forward mode, where there is one, with the backward's.
BackwardRun check_differences(CaseRun& run, const LaunchResult& forward);

/// What a reader of the report must know of an op without a formula: how little was judged, and what it could have
/// shown.
std::string black_box_note(const std::string& op, const std::vector<CaseResult>& cases);

}  // namespace ampcheck::checks
