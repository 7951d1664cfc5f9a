// SPDX-License-Identifier: Apache-2.0
// RANGE inside what an op declares: a number that is lost on the way, by overflow or flushing, although its correctly rounded value is not,
// at inputs no larger than the op declares or at a loss scale of its window. Beyond these it is no finding (AC201).
#pragma once

#include "checks/case_run.h"

namespace ampcheck::checks {

/// Adds a check "range ..." for each output and gradient of an op that declares a range (OpSignature::range), with code AC203 where it is
/// broken. Forward, and backward at the case's first cotangents: non-finite numbers whose value is finite in storage, if all inputs are
/// within largest_input; judged elements have their verdict already. Backward again with these cotangents times the smallest and the largest
/// loss scale, where that is exact in storage: a number must neither become infinite, nor zero, whose multiple stays normal. Nothing for ops
/// without a formula, for buffers that are added to, and at inputs that are not finite.
void check_declared_range(CaseRun& run, const LaunchResult& forward);

}  // namespace ampcheck::checks
