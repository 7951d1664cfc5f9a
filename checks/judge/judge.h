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

/// Adds a judged tensor to a replay's tensors: got, want, and the ends of the interval in which it was judged: widened
/// where a further form or a regrouping admitted a number. Nothing without a dump.
void save(Dump* dump, const Written& tensor, const TensorView& got, CaseRun& run, Pass pass);

}  // namespace ampcheck::checks
