// SPDX-License-Identifier: Apache-2.0
// Commands and their options as data: --help prints them, and so do pages of the manual.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/report/exit_code.h"

namespace ampcheck::tools {

struct OptionText {
  std::string name;      ///< "--jobs,-j"; of a word without dashes its name: "SELECTOR"
  std::string argument;  ///< "FORMAT:FILE"; empty for a flag and for a word
  std::string text;      ///< one line
};

struct Example {
  std::string line;  ///< "ampcheck check softmax"
  std::string what;  ///< what it does
};

struct CommandText {
  std::string name, about;
  std::vector<OptionText> words;    ///< in their order on the command line
  std::vector<OptionText> options;  ///< in the order of the help
  std::vector<Example> examples;    ///< at least one
  std::vector<ExitCode> codes;      ///< that it may end with
  std::vector<std::string> pages;   ///< of the manual, that say more of it
};

/// Every command, in the order of the help, with its options as the command line takes them.
std::vector<CommandText> command_table();

/// What `ampcheck --help` and `ampcheck COMMAND --help` print, wrapped to `width` columns.
std::string program_help(int width);
std::string command_help(const CommandText& command, int width);
/// The same as a page of the manual: it becomes a page for `man`.
std::string command_page(const CommandText& command);
/// The page of `word`: a command's name, or "ampcheck-" and its name. Null if there is none.
std::optional<CommandText> find_command(std::string_view word);
/// Columns of the terminal on standard output: at least 40, at most 120; 100 where it is none.
int help_width();

}  // namespace ampcheck::tools
