// SPDX-License-Identifier: Apache-2.0
// The parts of `audit scaler`.
#pragma once

#include <map>
#include <string>

#include "checks/scaler/log.h"
#include "tools/choose/options.h"
#include "tools/report/exit_code.h"

namespace ampcheck::tools {

/// A training log.
ExitCode audit_scaler_log(const AuditOptions& options);
/// What the user calls the columns of a log. UsageError for a quantity that is not known.
checks::scaler::ColumnNames columns_of(const std::map<std::string, std::string>& columns);
/// Whether what is to be audited is a shared library, not a command.
inline bool is_library(const std::string& target) {
  return target.ends_with(".so") && target.find(' ') == std::string::npos;
}
/// UsageError for a scale rule that is not known.
void require_rule(const std::string& flag, const std::string& rule);

}  // namespace ampcheck::tools
