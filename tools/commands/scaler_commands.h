// SPDX-License-Identifier: Apache-2.0
// The parts of `audit scaler`.
#pragma once

#include <string>

#include "tools/choose/options.h"
#include "tools/report/exit_code.h"

namespace ampcheck::tools {

/// A training log.
ExitCode audit_scaler_log(const AuditOptions& options);
/// UsageError for a scale rule that is not known.
void require_rule(const std::string& flag, const std::string& rule);

}  // namespace ampcheck::tools
