// SPDX-License-Identifier: Apache-2.0
// Commands and options as data, and the help that is printed from them.
#include "tools/choose/command_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "tests/support/run_program.h"
#include "tools/choose/options.h"

namespace ampcheck::tools {
namespace {

using testing::ampcheck;
using testing::contains;

/// Words of a line as a shell would split it: quotes hold words together.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> out;
  bool quoted = false, open = false;
  for (const char c : line) {
    if (c == '\'') {
      quoted = !quoted;
      open = open || quoted;
      if (quoted) out.emplace_back();
    } else if (c == ' ' && !quoted) {
      open = false;
    } else {
      if (!open && !quoted) {
        out.emplace_back();
        open = true;
      }
      out.back() += c;
    }
  }
  return out;
}

AnyOptions parsed(const std::string& line, std::optional<std::string>& help) {
  std::vector<std::string> words = words_of(line);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return parse_options(static_cast<int>(argv.size()), argv.data(), help);
}

TEST(CommandTable, EveryOptionIsThereWithAText) {
  const std::vector<CommandText> table = command_table();
  ASSERT_GT(table.size(), 10u);
  for (const CommandText& command : table) {
    EXPECT_FALSE(command.about.empty()) << command.name;
    EXPECT_TRUE(std::ranges::any_of(command.options, [](const OptionText& o) { return o.name == "--json"; }));
    std::set<std::string> names;
    for (const OptionText& option : command.options) {
      EXPECT_TRUE(names.insert(option.name).second) << command.name << " " << option.name;
      EXPECT_FALSE(option.text.empty()) << command.name << " " << option.name;
      EXPECT_FALSE(contains(option.text, "\n")) << command.name << " " << option.name << ": one line";
    }
    for (const OptionText& word : command.words) EXPECT_FALSE(word.text.empty()) << command.name << " " << word.name;
  }
  const CommandText& check = *std::ranges::find(table, "check", &CommandText::name);
  const auto output = std::ranges::find(check.options, "-o,--output", &OptionText::name);
  ASSERT_NE(output, check.options.end());
  EXPECT_EQ(output->argument, "FORMAT:FILE");
  EXPECT_EQ(
      output->text,
      "also write json:FILE, junit:FILE, lines:FILE, jsonl:FILE, sarif:FILE, github:FILE, gitlab:FILE, markdown:FILE, "
      "csv:FILE, tap:FILE, concise:FILE or html:FILE (may be repeated)");
  EXPECT_EQ(check.words.at(0).name, "SELECTOR");
}

TEST(CommandTable, EveryExampleIsALineOfItsCommand) {
  for (const CommandText& command : command_table()) {
    EXPECT_FALSE(command.examples.empty()) << command.name;
    for (const Example& example : command.examples) {
      std::optional<std::string> help;
      EXPECT_TRUE(example.line.starts_with("ampcheck " + command.name)) << example.line;
      EXPECT_NO_THROW(parsed(example.line, help)) << example.line;
      EXPECT_FALSE(help) << example.line;
    }
  }
  std::optional<std::string> help;
  EXPECT_THROW(parsed("ampcheck check softmax --dtpye bf16", help), UsageError);
}

/// One name, two meanings: a type of the contract, and a number of micro-batches.
TEST(CommandTable, AnOptionBelongsToItsCommand) {
  std::optional<std::string> help;
  const AnyOptions check = parsed("ampcheck check --dump x --formula y=x --accumulate bf16", help),
                   train = parsed("ampcheck train --accumulate 4", help);
  EXPECT_EQ(std::get<CheckOptions>(check).accumulator, Dtype::bf16);
  EXPECT_EQ(std::get<TrainOptions>(train).accumulate, 4);
  EXPECT_THROW(parsed("ampcheck check --dump x --accumulate 4", help), UsageError);
  EXPECT_THROW(parsed("ampcheck train --accumulate bf16", help), UsageError);
  EXPECT_THROW(parsed("ampcheck list --accumulate bf16", help), UsageError);
}

std::size_t widest(const std::string& text) {
  std::size_t most = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) most = std::max(most, line.size());
  return most;
}

std::string without_blanks(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  return text;
}

TEST(Help, IsWrappedToTheWidthAndLosesNoWord) {
  for (const CommandText& command : command_table()) {
    const std::string wide = command_help(command, 120), narrow = command_help(command, 60);
    for (const OptionText& option : command.options)
      EXPECT_TRUE(contains(without_blanks(narrow), without_blanks(option.text))) << command.name << option.name;
    EXPECT_EQ(without_blanks(wide), without_blanks(narrow)) << command.name;
    std::size_t example = 0;  // a line to be copied stays whole
    for (const Example& e : command.examples) example = std::max({example, e.line.size() + 2, e.what.size() + 6});
    EXPECT_LE(widest(narrow), std::max<std::size_t>(60, example)) << narrow;
    EXPECT_TRUE(contains(wide, "Exit codes:") && contains(wide, "Examples:")) << wide;
  }
  EXPECT_LE(widest(program_help(70)), 70u);
}

TEST(Help, SaysWhatTheProgramSays) {
  const testing::ProgramResult run = ampcheck("audit --help");
  const std::vector<CommandText> table = command_table();
  EXPECT_EQ(run.out, command_help(*std::ranges::find(table, "audit", &CommandText::name), 100));
  EXPECT_EQ(ampcheck("--help").out, program_help(100));
}

}  // namespace
}  // namespace ampcheck::tools
