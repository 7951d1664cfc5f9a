// SPDX-License-Identifier: Apache-2.0
// What source lines of GPU kernels do to their numbers, as a table and as JSON.
#pragma once

#include <string>
#include <vector>

#include "src/finding.h"
#include "tools/report/json.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

/// A table for each op that has lines, the largest over its cases; empty where no kernel was followed.
std::string line_tables(const std::vector<CaseResult>& cases, const Style& style);
Json lines_json(const std::vector<LineErrors>& lines);

}  // namespace ampcheck::tools
