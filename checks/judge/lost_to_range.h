// SPDX-License-Identifier: Apache-2.0
// Numbers that a kernel loses to the ends of the range, at inputs at which the formula keeps them.
#pragma once

#include <vector>

#include "checks/case/case_run.h"

namespace ampcheck::checks {

/// Makes findings of wrong numbers AC203, all of whose wrong elements are lost to the range: infinite, NaN or zero for
/// a finite number, or finite for one that overflows. The kernel runs once more at inputs and cotangents of at most 4
/// (16 where all are zero): there those elements have to be right, or finite and not zero. A number of the storage
/// type's largest size where infinity is due speaks for itself. Once a tensor of the case is found so, what is wrong in
/// others and right at small inputs follows from it.
void name_range(CaseRun& run, const std::vector<Subject>& subjects, Pass pass, std::vector<CheckResult>& checks);

}  // namespace ampcheck::checks
