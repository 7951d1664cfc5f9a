// SPDX-License-Identifier: Apache-2.0
// `ampcheck diagnose`.
#include "tools/commands/commands.h"
#include "tools/commands/diagnose_other.h"

namespace ampcheck::tools {

ExitCode diagnose_command(const DiagnoseOptions& options) {
  if (!is_other_data(options.words))
    throw UsageError("[diagnose] got '" + options.words.front() +
                     "', want two stacks, or a recording or log of another tool (ampcheck explain stacks)");
  return static_cast<ExitCode>(diagnose_other_data(options.words, options.json, options.other));
}

}  // namespace ampcheck::tools
