// SPDX-License-Identifier: Apache-2.0
// `diagnose` of what is no training run of ampcheck: dumps, plug-ins, logs.
#pragma once

#include <string>
#include <vector>

#include "tools/report/exit_code.h"

namespace ampcheck::tools {

/// `arguments`: the words behind `diagnose`. UsageError for what is no data that it reads.
ExitCode diagnose_other_data(const std::vector<std::string>& arguments);

}  // namespace ampcheck::tools
