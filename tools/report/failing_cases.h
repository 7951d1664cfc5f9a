// SPDX-License-Identifier: Apache-2.0
// What several reports say of failing cases.
#pragma once

#include <string>
#include <vector>

#include "src/finding.h"

namespace ampcheck::tools {

/// In the order of the report.
std::vector<const CaseResult*> failing_cases(const Report& report);

/// Why a case failed or was skipped, in one sentence: check, code, cause or number of elements.
std::string short_reason(const CaseResult& result);

}  // namespace ampcheck::tools
