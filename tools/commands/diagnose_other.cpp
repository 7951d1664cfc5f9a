// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/commands/diagnose_other.h"

#include "tools/report/usage_error.h"

namespace ampcheck::tools {

ExitCode diagnose_other_data(const std::vector<std::string>& arguments) {
  if (arguments.size() > 1)
    throw UsageError("[diagnose] got '" + arguments[0] + "' and '" + arguments[1] +
                     "', want one training run: mlp, conv, transformer, tutorial, or a net's TOML file");
  throw UsageError("[diagnose] got '" + arguments.front() +
                   "', want a training run: mlp, conv, transformer, tutorial, or a net's TOML file");
}

}  // namespace ampcheck::tools
