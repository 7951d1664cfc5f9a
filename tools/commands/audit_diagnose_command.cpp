// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/commands/commands.h"

namespace ampcheck::tools {
ExitCode audit_diagnose_command(const AuditOptions&) { throw UsageError("[audit diagnose] to come"); }
}  // namespace ampcheck::tools
