// SPDX-License-Identifier: Apache-2.0
// `ampcheck audit scaler`: of a log, or of a rule or program.
#include "tools/commands/commands.h"
#include "tools/commands/scaler_commands.h"

namespace ampcheck::tools {

ExitCode audit_scaler_command(AuditOptions options) {
  if (options.scaler.log.empty()) throw UsageError("[audit scaler] got nothing to audit, want --log FILE");
  if (!options.words.empty())
    throw UsageError("[audit scaler] got '" + options.words.front() + "' and --log, want one of the two");
  return audit_scaler_log(options);
}

}  // namespace ampcheck::tools
