// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checks/case/case_run.h"

namespace ampcheck::checks {

/// Compares the tensors of one launch with the union of the forms' intervals.
std::vector<CheckResult> judge(CaseRun& run, const std::vector<Subject>& subjects, Pass pass);

}  // namespace ampcheck::checks
