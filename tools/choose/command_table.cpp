// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/command_table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "tools/choose/command_line.h"

namespace ampcheck::tools {

namespace {

constexpr const char* kAbout =
    "Is this low-precision number wrong, or only rounded? Judges kernels forward and backward, each element against an "
    "interval derived from the op's formula.";

/// "-j,--jobs" of an option, as the help shows it.
std::string option_name(const CLI::Option& option) {
  std::string out;
  for (const std::string& name : option.get_snames()) out += (out.empty() ? "-" : ",-") + name;
  for (const std::string& name : option.get_lnames()) out += (out.empty() ? "--" : ",--") + name;
  return out;
}

OptionText text_of(const CLI::Option& option) {
  const bool word = option.get_snames().empty() && option.get_lnames().empty();
  const bool flag = option.get_items_expected_max() == 0;
  return {word ? option.get_single_name() : option_name(option), word || flag ? "" : option.get_type_name(),
          option.get_description()};
}

/// Words of `text` in lines of at most `width` columns, each behind `indent` blanks; the first stands behind `head`.
std::string wrapped(const std::string& head, const std::string& text, std::size_t indent, std::size_t width) {
  std::string out, line = head;
  if (line.size() + 2 > indent && line.size() > indent) {
    out = line + "\n";
    line.clear();
  }
  line.resize(std::max(line.size(), indent), ' ');
  bool empty = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of(" \n", at), text.size());
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    if (!empty && line.size() + 1 + word.size() > width) {
      out += line + "\n";
      line.assign(indent, ' ');
      empty = true;
    }
    line += (empty ? "" : " ") + word;
    empty = false;
  }
  return out + line + "\n";
}

using Rows = std::vector<std::pair<std::string, std::string>>;

/// Two columns; what does not fit the first one stands on a line of its own.
std::string columns(const Rows& rows, int width) {
  constexpr std::size_t kMost = 28;
  std::size_t first = 0;
  for (const auto& [head, text] : rows) first = std::max(first, std::min(head.size(), kMost));
  std::string out;
  for (const auto& [head, text] : rows) {
    const std::string left = "  " + head;
    const bool long_head = head.size() > first;
    if (long_head) out += left + "\n";
    out += wrapped(long_head ? "" : left, text, first + 4, static_cast<std::size_t>(width));
  }
  return out;
}

/// Two columns in Markdown.
std::string table(const char* head, const Rows& rows) {
  std::string out = std::string("| ") + head + " | meaning |\n|---|---|\n";
  for (const auto& [name, text] : rows) {
    std::string cell = text;
    for (std::size_t at = 0; (at = cell.find('|', at)) != std::string::npos; at += 2) cell.insert(at, "\\");
    out += "| `" + name + "` | " + cell + " |\n";
  }
  return out + "\n";
}

std::string code_rows(const std::vector<ExitCode>& codes, int width) {
  Rows rows;
  for (const ExitCode code : codes) rows.emplace_back(std::to_string(static_cast<int>(code)), exit_code_text(code));
  rows.emplace_back("128+n", "ended by signal n");
  return columns(rows, width);
}

}  // namespace

std::vector<CommandText> command_table() {
  const CommandLine line;
  std::vector<CommandText> out;
  for (std::size_t i = 0; i < line.commands.size(); ++i) {
    const CommandRow& row = command_rows()[i];
    CommandText text{row.name, row.about, {}, {}, row.examples, row.codes, {row.pages.begin(), row.pages.end()}};
    for (const CLI::Option* option : const_cast<const CLI::App*>(line.commands[i])->get_options()) {
      OptionText entry = text_of(*option);
      (entry.name.starts_with("-") ? text.options : text.words).push_back(std::move(entry));
    }
    out.push_back(std::move(text));
  }
  return out;
}

std::string program_help(int width) {
  Rows rows;
  for (const CommandRow& row : command_rows()) rows.emplace_back(row.name, row.about);
  std::vector<ExitCode> codes;
  for (const auto& [code, text] : kExitCodes) codes.push_back(code);
  return wrapped("", kAbout, 0, static_cast<std::size_t>(width)) +
         "\nUsage: ampcheck COMMAND [WORDS] [OPTIONS]\n       ampcheck COMMAND --help   (its options, with "
         "examples)\n\nCommands:\n" +
         columns(rows, width) + "\nOptions:\n" +
         columns({{"-h,--help", "this text; after a command: its options"},
                  {"--no-config",
                   "before the command: leave ampcheck.toml and AMPCHECK_... variables alone (ampcheck config --show)"},
                  {"--profile NAME", "before the command: take the settings of this profile of ampcheck.toml first"},
                  {"--version", "version, as the command of that name"}},
                 width) +
         "\nExit codes:\n" + code_rows(codes, width);
}

std::string command_help(const CommandText& command, int width) {
  std::string usage = "Usage: ampcheck " + command.name;
  Rows words, options, examples;
  for (const OptionText& word : command.words) {
    usage += " [" + word.name + "]";
    words.emplace_back(word.name, word.text);
  }
  for (const OptionText& option : command.options)
    options.emplace_back(option.name + (option.argument.empty() ? "" : " " + option.argument), option.text);
  std::string out = wrapped("", command.about, 0, static_cast<std::size_t>(width)) + "\n" + usage + " [OPTIONS]\n";
  if (!words.empty()) out += "\n" + columns(words, width);
  out += "\nOptions:\n" + columns(options, width) + "\nExamples:\n";
  for (const Example& example : command.examples) out += "  " + example.line + "\n      " + example.what + "\n";
  out += "\nExit codes:\n" + code_rows(command.codes, width) + "\nMore:\n";
  for (const std::string& page : command.pages) out += "  ampcheck explain " + page + "\n";
  return out;
}

std::string command_page(const CommandText& command) {
  std::string out = "# " + command.about + "\n\n## Synopsis\n\n`ampcheck " + command.name;
  Rows words, options, codes;
  for (const OptionText& word : command.words) {
    out += " [" + word.name + "]";
    words.emplace_back(word.name, word.text);
  }
  for (const OptionText& option : command.options)
    options.emplace_back(option.name + (option.argument.empty() ? "" : " " + option.argument), option.text);
  for (const ExitCode code : command.codes)
    codes.emplace_back(std::to_string(static_cast<int>(code)), exit_code_text(code));
  codes.emplace_back("128+n", "ended by signal n");
  out += " [OPTIONS]`\n\n" + (words.empty() ? "" : table("word", words)) + "## Options\n\n" + table("option", options) +
         "## Examples\n\n";
  for (const Example& example : command.examples) out += "- `" + example.line + "`: " + example.what + "\n";
  out += "\n## Exit status\n\n" + table("code", codes) + "## See also\n\n`man ampcheck`, and pages of the manual:\n\n";
  for (const std::string& page : command.pages) out += "- `ampcheck explain " + page + "`\n";
  return out;
}

std::optional<CommandText> find_command(std::string_view word) {
  constexpr std::string_view kProgram = "ampcheck-";
  if (word.starts_with(kProgram)) word.remove_prefix(kProgram.size());
  for (CommandText& command : command_table())
    if (command.name == word) return std::move(command);
  return std::nullopt;
}

int help_width() {
  constexpr int kLeast = 40, kMost = 120, kElse = 100;
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kElse;
  return std::clamp(static_cast<int>(size.ws_col), kLeast, kMost);
}

}  // namespace ampcheck::tools
