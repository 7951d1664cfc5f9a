// SPDX-License-Identifier: Apache-2.0
// The README shows what the program prints: each command of it that stands behind a '$' is run, and each line below it
// has to be in the output, in its order. "..." stands for any lines; times, memory and the machine's name may differ.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <sstream>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/sanitized.h"

namespace ampcheck::testing {
namespace {

struct Block {
  std::string command;
  std::vector<std::string> lines;  ///< below the command
};

/// The fenced blocks of the README that begin with a command.
std::vector<Block> blocks_of(const std::string& text) {
  std::vector<Block> out;
  std::istringstream in(text);
  bool inside = false, below = false;  // a fence; a command in it
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("```")) {
      inside = !inside, below = false;
    } else if (inside && line.starts_with("$ ")) {
      out.push_back({line.substr(2), {}}), below = true;
    } else if (below) {
      out.back().lines.push_back(line);
    }
  }
  return out;
}

/// A line without what differs from run to run, from machine to machine and with the number of ops; runs of spaces
/// count as one.
std::string settled(std::string line) {
  static const std::pair<std::regex, const char*> kDiffers[] = {
      {std::regex(R"(\d[\d.,]* (ms|s|min)\b)"), "TIME"},
      {std::regex(R"(CPU \([^)]*\).*)"), "CPU"},
      {std::regex(R"(^\d+ ops · [\d,]+ cases · [\d,]+ elements)"), "N ops · N cases · N elements"},
      {std::regex(R"( +)"), " "},
      {std::regex(R"(\s+$)"), ""}};
  for (const auto& [what, with] : kDiffers) line = std::regex_replace(line, what, with);
  return line;
}

/// The first line that the output lacks behind those before it; empty if there is none.
std::string missing(const Block& block, const std::string& output) {
  std::istringstream in(output);
  std::vector<std::string> printed;
  for (std::string line; std::getline(in, line);) printed.push_back(settled(line));
  std::size_t at = 0;
  for (const std::string& line : block.lines) {
    const std::string wanted = settled(line);
    if (wanted.empty() || wanted == "..." || wanted == " ...") continue;
    const auto found = std::find(printed.begin() + static_cast<std::ptrdiff_t>(at), printed.end(), wanted);
    if (found == printed.end()) return line;
    at = static_cast<std::size_t>(found - printed.begin()) + 1;
  }
  return "";
}

/// Where a command needs what the README's reader made before.
const std::map<std::string, std::string>& preparations() {
  static const std::map<std::string, std::string> kFirst = {
      {"build/ampcheck train net.toml", "sed -n '/^```toml$/,/^```$/p' \"$README\" | grep -v '^```' > net.toml; "},
  };
  return kFirst;
}

const std::map<std::string, std::string>& not_run() {
  static const std::map<std::string, std::string> kWhy = {
      {"build/ampcheck audit zoo", "takes a minute; zoo_soak_test.cpp holds its goals"},
      {"ampcheck check --dump step.safetensors --formula 'y = x / sqrt(mean(x^2, -1) + 1e-6) * weight'",
       "the file is the reader's; dump_test.cpp has its like"},
  };
  return kWhy;
}

TEST(Readme, EveryCommandPrintsWhatItShows) {
  const std::string readme = tests::in_source("/README.md");
  int run = 0, at = 0;
  for (const Block& block : blocks_of(read_text(readme))) {
    if (not_run().contains(block.command)) continue;
    if (kSanitized && ++at % 4 != 0) continue;
    const TemporaryFolder folder;
    const auto first = preparations().find(block.command);
    const std::string command = std::regex_replace(block.command, std::regex("^(build/)?ampcheck "), "\"$$AMPCHECK\" ");
    const ProgramResult result = shell("README='" + readme + "'; cd '" + folder.path() + "'; " +
                                       (first == preparations().end() ? "" : first->second) + command);
    EXPECT_EQ(missing(block, result.out), "") << "of\n$ " << block.command << "\nis not (or not there) in\n"
                                              << result.out << result.err;
    ++run;
  }
  EXPECT_GE(run, kSanitized ? 2 : 8);
}

TEST(Readme, ALineThatDiffersIsSeen) {
  const Block block{"x", {"one 2 s", "   ...", "three 3"}};
  EXPECT_EQ(missing(block, "zero\none 1.5 s\nfour\nthree 3\n"), "");
  EXPECT_EQ(missing(block, "one 1.5 s\nthree 4\n"), "three 3");
  EXPECT_EQ(missing(block, "three 3\none 1.5 s\n"), "three 3");
}

}  // namespace
}  // namespace ampcheck::testing
