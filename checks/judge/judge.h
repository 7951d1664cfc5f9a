// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "checks/case/case_run.h"
#include "checks/explain/notes.h"

namespace ampcheck::checks {

/// Compares the tensors of one launch with the union of the forms' intervals. `notes`: of the case, from launch to
/// launch.
std::vector<CheckResult> judge(CaseRun& run, const std::vector<Subject>& subjects, Pass pass, Notes& notes);
/// Of a launch that stands alone.
std::vector<CheckResult> judge(CaseRun& run, const std::vector<Subject>& subjects, Pass pass);

}  // namespace ampcheck::checks
