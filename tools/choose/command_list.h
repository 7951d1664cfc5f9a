// SPDX-License-Identifier: Apache-2.0
// What each command is for, with examples and exit codes: one row a command.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tools/choose/command_table.h"

namespace ampcheck::tools {

struct CommandRow {
  const char* name;
  const char* about;
  std::vector<Example> examples;
  std::vector<ExitCode> codes;
  std::vector<const char*> pages;                           ///< of the manual, that say more of it
  const char* json = "results as JSON on standard output";  ///< what --json says
};

/// In the order of AnyOptions (tools/choose/options.h).
std::span<const CommandRow> command_rows();

}  // namespace ampcheck::tools
