// SPDX-License-Identifier: Apache-2.0
#include "tools/commands.h"

namespace ampcheck::tools {
ExitCode replay_command(const Options&) { throw UsageError("later"); }
ExitCode certify_command(const Options&) { throw UsageError("later"); }
ExitCode formats_command(const Options&) { throw UsageError("later"); }
}  // namespace ampcheck::tools
