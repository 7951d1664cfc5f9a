// SPDX-License-Identifier: Apache-2.0
// README and manual show what the program prints: each command behind a '$' is run, and each line below it has to be in
// the output, in its order. "..." stands for any lines; times and the machine's name may differ. The commands of a page
// are one session: they share a folder, `cd` lasts, `echo $?` shows the exit code of the command before. A fence that
// names a file (```toml net.toml) writes it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/sanitized.h"

namespace ampcheck::testing {
namespace {

namespace fs = std::filesystem;

struct Step {
  std::string command;             ///< empty: a file is written
  std::string file;                ///< its name
  std::vector<std::string> lines;  ///< below the command; of the file
};

/// The commands and files of a page's fences.
std::vector<Step> steps_of(const std::string& text) {
  std::vector<Step> out;
  std::istringstream in(text);
  bool inside = false, below = false;  // a fence; a command or file in it
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("```")) {
      inside = !inside;
      const std::size_t blank = line.find(' ');
      below = inside && blank != std::string::npos;
      if (below) out.push_back({"", line.substr(blank + 1), {}});
    } else if (inside && line.starts_with("$ ")) {
      out.push_back({line.substr(2), "", {}});
      below = true;
    } else if (below) {
      out.back().lines.push_back(line);
    }
  }
  return out;
}

/// Lines in a fence that look like a command and stand behind no '$': nobody runs them.
std::vector<std::string> unmarked(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  bool inside = false, below = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("```")) {
      inside = !inside;
      below = false;
    } else if (inside && line.starts_with("$ ")) {
      below = true;
    } else if (inside && !below && std::regex_search(line, std::regex("^(build/)?ampcheck [a-z]"))) {
      out.push_back(line);
    }
  }
  return out;
}

/// A line without what differs from run to run, from machine to machine and with the number of ops; runs of spaces
/// count as one.
std::string settled(std::string line) {
  static const std::pair<std::regex, const char*> kDiffers[] = {
      {std::regex(R"((\d+ min )?\d[\d.,]* (ms|s|min)\b)"), "TIME"},
      {std::regex(R"(CPU \([^)]*\).*)"), "CPU"},
      {std::regex(R"(^\d+ ops · [\d,]+ cases · [\d,]+ elements)"), "N ops · N cases · N elements"},
      {std::regex(R"( +)"), " "},
      {std::regex(R"(\s+$)"), ""}};
  for (const auto& [what, with] : kDiffers) line = std::regex_replace(line, what, with);
  return line;
}

/// The first line that the output lacks behind those before it; empty if there is none.
std::string missing(const Step& step, const std::string& output) {
  std::istringstream in(output);
  std::vector<std::string> printed;
  for (std::string line; std::getline(in, line);) printed.push_back(settled(line));
  std::size_t at = 0;
  for (const std::string& line : step.lines) {
    const std::string wanted = settled(line);
    if (wanted.empty() || wanted == "..." || wanted == " ...") continue;
    const auto found = std::find(printed.begin() + static_cast<std::ptrdiff_t>(at), printed.end(), wanted);
    if (found == printed.end()) return line;
    at = static_cast<std::size_t>(found - printed.begin()) + 1;
  }
  return "";
}

/// Runs a page's steps one after the other, as a reader does.
class Session {
 public:
  /// What the command prints on both streams; a file is written and prints nothing.
  ProgramResult run(const Step& step) {
    if (step.command.empty()) {
      std::ofstream file(fs::path(at_) / step.file);
      for (const std::string& line : step.lines) file << line << "\n";
      return {.exit_code = file.good() ? 0 : 1, .out = "", .err = ""};
    }
    const std::string kept = folder_.path() + "/.folder";
    const ProgramResult result =
        shell("PATH='" + tests::in_build("") + "':\"$PATH\"; cd '" + at_ + "'\n(exit " + std::to_string(last_) +
              ")\n{ " + step.command + "\n} 2>&1\nlast=$?; pwd > '" + kept + "'; exit $last");
    at_ = read_text(kept);
    while (at_.ends_with('\n')) at_.pop_back();
    last_ = result.exit_code;
    return result;
  }

 private:
  const TemporaryFolder folder_;
  std::string at_ = folder_.path();
  int last_ = 0;
};

/// README and every page of the manual. Sanitizers make programs slow: there some pages stand for all.
std::vector<std::string> pages() {
  if (kSanitized) return {"tools/manual/ci.md", "tools/manual/dumps.md", "tools/manual/formulas.md"};
  std::vector<std::string> out = {"README.md"};
  for (const auto& entry : fs::directory_iterator(tests::in_source("/tools/manual")))
    if (entry.path().extension() == ".md") out.push_back("tools/manual/" + entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

class Pages : public ::testing::TestWithParam<std::string> {
 protected:
  std::string text() const { return read_text(tests::in_source("/" + GetParam())); }
};

TEST_P(Pages, EveryCommandPrintsWhatItShows) {
  Session session;
  for (const Step& step : steps_of(text())) {
    const ProgramResult result = session.run(step);
    if (step.command.empty()) continue;
    EXPECT_EQ(missing(step, result.out), "") << "of\n$ " << step.command << "\nis not (or not there) in\n"
                                             << result.out << result.err;
    if (step.lines.empty()) {
      EXPECT_EQ(result.exit_code, 0) << "of\n$ " << step.command << "\n" << result.out << result.err;
    }
  }
  EXPECT_EQ(unmarked(text()), std::vector<std::string>{}) << "want '$ ' in front, so that it is run";
}

/// The files and pages that a page links to are there.
TEST_P(Pages, EveryLinkLeadsSomewhere) {
  const std::string page = text();
  const fs::path folder = fs::path(tests::in_source("/" + GetParam())).parent_path();
  const std::regex link(R"(\]\(([^)#\s]+)\))");
  for (std::sregex_iterator at(page.begin(), page.end(), link), end; at != end; ++at) {
    const std::string target = (*at)[1];
    EXPECT_TRUE(target.starts_with("http") || fs::exists(folder / target)) << target;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Pages, ::testing::ValuesIn(pages()), [](const auto& info) {
  std::string name = fs::path(info.param).stem().string();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(PagesThemselves, ALineThatDiffersIsSeen) {
  const Step step{"x", "", {"one 2 s", "   ...", "three 3"}};
  EXPECT_EQ(missing(step, "zero\none 1.5 s\nfour\nthree 3\n"), "");
  EXPECT_EQ(missing(step, "one 2 min 7 s\nthree 3\n"), "") << "on a slow machine";
  EXPECT_EQ(missing(step, "one 1.5 s\nthree 4\n"), "three 3");
  EXPECT_EQ(missing(step, "three 3\none 1.5 s\n"), "three 3");
}

TEST(PagesThemselves, ASessionKeepsFolderFilesAndExitCode) {
  const std::vector<Step> steps = steps_of(
      "text\n```toml a.toml\nx = 1\n```\n```\n$ mkdir b && cd b\n$ cat ../a.toml\nx = 1\n$ false\n$ echo $?\n1\n```\n");
  ASSERT_EQ(steps.size(), 5u);
  Session session;
  std::string printed;
  for (const Step& step : steps) printed += session.run(step).out;
  EXPECT_EQ(printed, "x = 1\n1\n");
}

TEST(PagesThemselves, ACommandThatNobodyRunsIsSeen) {
  EXPECT_EQ(unmarked("```\nampcheck check\n```\n").size(), 1u);
  EXPECT_EQ(unmarked("```\n$ ampcheck new op x\nNext:\nampcheck check x\n```\nampcheck check\n").size(), 0u);
}

TEST(PagesThemselves, TheReadmeIsShort) {
  const std::string text = read_text(tests::in_source("/README.md"));
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 150);
}

}  // namespace
}  // namespace ampcheck::testing
