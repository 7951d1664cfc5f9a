// SPDX-License-Identifier: Apache-2.0
// RANGE inside what an op declares: a number that is lost on the way, by overflow or flushing, although its correctly
// rounded value is not, at inputs no larger than the op declares or at a loss scale of its window. Beyond these it is
// no finding (AC201).
#pragma once

#include "checks/case/case_run.h"

namespace ampcheck::checks {

/// Adds a check "range ..." for each output and gradient of an op that declares a range (OpSignature::range), with code
/// AC203 where it is broken. Forward, and backward at the case's first cotangents, if all inputs are within
/// largest_input: what is not finite although its value is finite in storage, where the judge admits that. Backward
/// again with these cotangents times the smallest and the largest loss scale, or the nearest ones inside the window at
/// which storage holds them exactly (a note says so): a number must become neither infinite nor zero whose multiple
/// stays normal; zero only where it is none at scale 1 whatever rounding does. Nothing for ops without a formula, for
/// buffers that are added to, at inputs that are not finite, and on sampled rows.
void check_declared_range(CaseRun& run, const LaunchResult& forward);

}  // namespace ampcheck::checks
