// SPDX-License-Identifier: Apache-2.0
// The checks of a scaler or of a training step as text and as JSON.
#pragma once

#include <string>

#include "checks/scaler/call_checks.h"
#include "tools/report/json.h"

namespace ampcheck::tools {

/// A line for each check; of those that did not pass, what has to be and is, and the calls that show it.
std::string check_lines(const checks::scaler::CallAudit& audit);
/// "14 passed, 3 weak, 1 failed, 5 not asked"
std::string outcome_counts(const checks::scaler::CallAudit& audit);
/// An array with an object for each check.
Json checks_json(const checks::scaler::CallAudit& audit);

}  // namespace ampcheck::tools
