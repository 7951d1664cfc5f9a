// SPDX-License-Identifier: Apache-2.0
// What the checks of one case say together.
#pragma once

#include <vector>

#include "checks/case/case_run.h"

namespace ampcheck::checks {

/// Whether a check found a value that is wrong: outside its interval, or explained by another precision contract.
bool wrong_value(const CheckResult& check);

/// Whether another accumulator or storage than declared (AC30x) explains nearly all of what left its interval (judge
/// rules: 80 %).
bool contract_explains(const std::vector<CheckResult>& checks);

/// What a contract seemed to explain is wrong without a cause.
void drop_departures(std::vector<CheckResult>& checks);

/// Moves the checks of a case into its result: the verdict is the gravest of them, except that a contract explains the
/// few values that it does not fit.
void conclude(CaseRun& run, CaseResult& result);

}  // namespace ampcheck::checks
