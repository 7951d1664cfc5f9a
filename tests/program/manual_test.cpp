// SPDX-License-Identifier: Apache-2.0
// The manual in the program: every page is there, for a terminal, as Markdown and for man.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "src/finding.h"
#include "tests/support/run_program.h"
#include "tools/choose/command_table.h"
#include "tools/commands/manual_pages.h"
#include "tools/report/markdown.h"

namespace ampcheck::testing {
namespace {

using tools::manual_pages;
using tools::ManualPage;

constexpr const char* kPage =
    "# A title\n\nSome *text* with `code` and a [link](ci.md), long enough\nfor a second line.\n\n"
    "## Part\n\n- one\n- two\n  of two\n\n1. first\n\n```text\n.verbatim  \\x 'y'\n```\n\n| a | b |\n|---|---|\n| 1 | "
    "2 |\n";

TEST(Manual, AMarkdownPageBecomesTextForATerminal) {
  EXPECT_EQ(tools::terminal_text(kPage, {}, 40),
            "A title\n\n"
            "Some text with code and a link (ampcheck\n"
            "explain ci), long enough for a second\nline.\n\n"
            "Part\n- one\n- two of two\n1. first\n\n  .verbatim  \\x 'y'\n\n  a  b\n  1  2\n");
  EXPECT_EQ(tools::title_of(kPage), "A title");
}

TEST(Manual, AMarkdownPageBecomesAPageForMan) {
  const std::string page = tools::man_page(kPage, {.name = "ampcheck-x", .section = 7, .version = "1.2.3"});
  for (const char* part :
       {".TH \"AMPCHECK\\-X\" \"7\" \"\" \"ampcheck 1.2.3\"", ".SH NAME\nampcheck\\-x \\- A title\n",
        "with \\fBcode\\fR and", "\n.SH PART\n", ".IP \"\\(bu\" 4\none\n", "\n\\&.verbatim  \\ex \\(aqy\\(aq\n"})
    EXPECT_TRUE(contains(page, part)) << part << "\n" << page;
  EXPECT_FALSE(contains(page, "\n.verbatim")) << "roff would take it for a command";
}

TEST(Manual, EveryPageIsPrintedAndListed) {
  const std::string list = ampcheck("explain").out;
  EXPECT_GE(manual_pages().size(), 12u);
  for (const ManualPage& page : manual_pages()) {
    const ProgramResult shown = ampcheck(std::string("explain ") + page.name);
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_TRUE(shown.out.starts_with(tools::title_of(page.markdown) + "\n")) << page.name;
    EXPECT_FALSE(contains(shown.out, "<!--")) << page.name << ": a part is not filled in";
    EXPECT_TRUE(contains(list, "\n" + std::string(page.name) + " ")) << list;
  }
  EXPECT_EQ(ampcheck("explain formula").out, ampcheck("explain formulas").out);
  EXPECT_TRUE(contains(ampcheck("explain tutorail").err, "did you mean 'tutorial'"));
  EXPECT_EQ(ampcheck("explain AC101 --format man").exit_code, 2);
}

TEST(Manual, APartThatNobodyKnowsIsRefused) {
  EXPECT_ANY_THROW(filled(ManualPage{"x", "# X\n\n<!-- fill: nonsense -->\n"}));
  EXPECT_TRUE(contains(filled(ManualPage{"x", "a\n<!-- fill: ops -->\nb\n"}), "softmax"));
}

TEST(Manual, EveryCodeHasAnEntryAndEveryCommandItsOptions) {
  const std::string findings = ampcheck("explain findings").out;
  for (const CodeText& code : code_texts())
    EXPECT_TRUE(contains(findings, "\n" + std::string(code.name) + ": " + code.title + "\n")) << code.name;
  const std::string commands = ampcheck("explain command-line").out;
  for (const char* words : {"\nampcheck check\n", "--regimes SET", "\nampcheck train\n", "--scaler RULE"})
    EXPECT_TRUE(contains(commands, words)) << words;
}

TEST(Manual, JsonHasThePage) {
  const auto page = nlohmann::json::parse(ampcheck("explain ci --json").out);
  EXPECT_EQ(page["schema"], "ampcheck.page/1");
  EXPECT_TRUE(contains(page["markdown"].get<std::string>(), "| 0 | all passed |"));
  EXPECT_EQ(nlohmann::json::parse(ampcheck("explain dump --json").out)["schema"], "ampcheck.dump/1");
}

/// Each command has a page with its options, and with each exit code that it may end with.
TEST(Manual, EveryCommandHasAPage) {
  const std::string list = ampcheck("explain").out;
  for (const tools::CommandText& command : tools::command_table()) {
    const std::string name = "ampcheck-" + command.name;
    const ProgramResult man = ampcheck("explain " + name + " --format man"),
                        text = ampcheck("explain " + name + " --format markdown");
    EXPECT_EQ(man.exit_code, 0) << man.err;
    EXPECT_TRUE(contains(man.out, ".SH NAME\nampcheck\\-" + command.name + " \\- ")) << man.out.substr(0, 300);
    EXPECT_TRUE(contains(man.out, "\n.SH SYNOPSIS\n") && !contains(man.out, "DESCRIPTION")) << "no empty section";
    for (const tools::OptionText& option : command.options) EXPECT_TRUE(contains(text.out, option.name)) << option.name;
    for (const tools::ExitCode code : command.codes)
      EXPECT_TRUE(contains(text.out, tools::exit_code_text(code))) << name << " " << static_cast<int>(code);
    for (const std::string& page : command.pages) EXPECT_NE(tools::find_page(page), nullptr) << name << ": " << page;
    EXPECT_TRUE(contains(list, "\n" + command.name + " ") || contains(list, "\n" + name + " ")) << list;
  }
  EXPECT_EQ(ampcheck("explain check").out, ampcheck("explain ampcheck-check").out);
  EXPECT_NE(ampcheck("explain trace").out, ampcheck("explain ampcheck-trace").out)
      << "a page of the manual comes first";
  EXPECT_TRUE(contains(ampcheck("explain softmax").err, "which is an op")) << "a way on";
}

TEST(Manual, ManReadsEveryPageWithoutAWarning) {
  if (shell("command -v man").exit_code != 0 || shell("command -v groff").exit_code != 0)
    GTEST_SKIP() << "no man and groff on PATH";
  const TemporaryFolder folder;
  std::vector<std::string> pages;
  for (const ManualPage& page : manual_pages()) pages.emplace_back(page.name);
  for (const tools::CommandText& command : tools::command_table()) pages.push_back("ampcheck-" + command.name);
  for (const std::string& page : pages) {
    const ProgramResult shown = shell("cd '" + folder.path() + "' && \"$AMPCHECK\" explain " + page +
                                      " --format man > page.roff && MANWIDTH=100 man --warnings -l page.roff");
    EXPECT_TRUE(contains(shown.out, "NAME")) << page << shown.err;
    EXPECT_FALSE(contains(shown.err, "warning")) << page << ": " << shown.err;
  }
}

}  // namespace
}  // namespace ampcheck::testing
