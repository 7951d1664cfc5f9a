// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "checks/case/case_run.h"

namespace ampcheck::checks {

/// The rows of a case with the number of rows and the place that they have among the others, and alone:
/// checks/judge/batch_invariance.cpp.
void check_batch_invariance(CaseRun& run, const LaunchResult& forward, const BackwardRun& backward);
/// What it saw of kernels that do not declare batch invariance, an op a line.
std::vector<std::string> batch_variances(const std::vector<CaseResult>& cases);

}  // namespace ampcheck::checks
