// SPDX-License-Identifier: Apache-2.0
// Runs cases and reports what was found.
#pragma once

#include <vector>

#include "checks/run/run_case.h"

namespace ampcheck::checks {

/// Judges cases in parallel; results stand in the order of the cases, behind them those that options add, whatever the
/// number of jobs. Certifies each op first.
Report run_cases(const std::vector<Case>& chosen, const RunOptions& options);

}  // namespace ampcheck::checks
