// SPDX-License-Identifier: Apache-2.0
// The pages of a trace and of a log in a real browser without a display: they load nothing, report no error, and their
// plots are drawn. Skipped without one.
#include <gtest/gtest.h>

#include <fstream>
#include <string_view>

#include "tests/support/browser.h"
#include "tests/support/run_program.h"
#include "tools/report/reports.h"

namespace ampcheck::testing {
namespace {

/// Nothing went wrong, and nothing was loaded.
void expect_quiet(const Seen& seen) {
  EXPECT_EQ(seen.count("errors"), 0);
  EXPECT_EQ(seen.count("loaded"), 0);
  EXPECT_FALSE(contains(seen.log, "CONSOLE")) << seen.log;
}

TEST(Html, ThePageOfATraceIsDrawnByABrowser) {
  if (browser().empty()) GTEST_SKIP() << kNoBrowser;
  const TemporaryFolder folder;
  const std::string trace = folder.path() + "/run.trace", page = folder.path() + "/run.html";
  EXPECT_LE(ampcheck("train --steps 6 --init-scale 16777216 --record " + trace).exit_code, 1);
  EXPECT_EQ(ampcheck("trace " + trace + " -o html:" + page).exit_code, 0);
  const std::string html = read_text(page);
  const Seen seen = open_page(folder.path(), html);
  ASSERT_GT(seen.count("plots"), 0) << seen.log;
  EXPECT_EQ(seen.count("empty"), 0);
  EXPECT_EQ(seen.count("lines"), 5) << "the loss, its fp64 pair, the scale, the ends between which it loses nothing";
  EXPECT_GT(seen.count("rects"), 50);
  EXPECT_GT(seen.count("texts"), 20);
  expect_quiet(seen);

  // Planted: a script that throws, a picture from elsewhere, and a plot without its lines.
  std::string broken = html;
  broken.replace(broken.find("</body>"), 7,
                 "<script>throw new Error('planted')</script><img src='http://example.invalid/x.png'></body>");
  for (std::size_t at = broken.find("<svg"); (at = broken.find("<path", at)) < broken.find("</svg>");)
    broken.erase(at, broken.find("/>", at) + 2 - at);
  const Seen wrong = open_page(folder.path(), broken);
  EXPECT_EQ(wrong.count("empty"), 1);
  EXPECT_EQ(wrong.count("errors"), 2);
  EXPECT_EQ(wrong.count("loaded"), 1);
  EXPECT_TRUE(contains(wrong.log, "planted") && contains(wrong.log, "CONSOLE")) << wrong.log;
}

TEST(Html, ThePageOfACheckIsDrawnByABrowser) {
  if (browser().empty()) GTEST_SKIP() << kNoBrowser;
  const TemporaryFolder folder;
  const std::string page = folder.path() + "/check.html";
  EXPECT_EQ(ampcheck("check add softmax.sign --regimes quick --dtype bf16 -o html:" + page).exit_code, 1);
  const std::string html = read_text(page);
  EXPECT_TRUE(contains(html, "softmax.sign")) << html.substr(0, 2000);
  EXPECT_TRUE(contains(html, "with the other sign of the term")) << "the cause";
  const Seen seen = open_page(folder.path(), html);
  const int maps = seen.count("plots") - 4;  // two bars of headroom and two histograms
  EXPECT_GT(maps, 2) << "a map for each wrong tensor that is shown";
  EXPECT_EQ(seen.count("empty"), 0);
  EXPECT_GT(seen.count("rects"), 4);
  expect_quiet(seen);
}

TEST(Html, ThePageOfTheZooIsDrawnByABrowser) {
  if (browser().empty()) GTEST_SKIP() << kNoBrowser;
  const TemporaryFolder folder;
  const std::string page = folder.path() + "/zoo.html";
  const ProgramResult run = ampcheck("audit zoo relu --dtype bf16 --regimes quick -o html:" + page);
  EXPECT_LE(run.exit_code, 1) << run.err;
  const std::string html = read_text(page);
  EXPECT_TRUE(contains(html, "relu.guided") && contains(html, "torch allclose")) << html.substr(0, 3000);
  EXPECT_TRUE(contains(html, "The goals are met") == (run.exit_code == 0)) << run.out;
  const Seen seen = open_page(folder.path(), html);
  EXPECT_GT(seen.count("plots"), 10) << "bars of each kind of defect and of each rule\n" << seen.log;
  EXPECT_EQ(seen.count("empty"), 0);
  expect_quiet(seen);
  EXPECT_FALSE(contains(open_page(folder.path(), html, false).log, "Content Security Policy"));
}

/// Every one fails everywhere, with as much to say as there is room for.
TEST(Html, ThePageOfAThousandFailingCasesIsSmall) {
  Report report;
  for (int i = 0; i < 1000; ++i) {
    CaseResult& result = report.cases.emplace_back();
    result.name =
        "my_fused_layer_norm(x=bf16[1024,4096],weight=bf16[4096],range=large_offset,seed=" + std::to_string(i) + ")";
    result.op = "my_fused_layer_norm";
    result.dtype = "bf16";
    CheckResult& check = result.checks.emplace_back();
    check.id.tensor = "y";
    check.find(Code::ac101);
    check.compared = check.failed = 1024 * 4096;
    check.cause = std::string(200, 'c');
    check.note = std::string(200, 'n');
    check.worst.assign(3, Element{.index = {1000, 4000}, .got = 1.234567891, .want = -1.234567e-30});
    result.verdict = check.verdict;
    result.code = check.code;
    std::vector<ElementOutside> outside;
    for (std::int64_t at = 0; at < check.failed; at += 64) outside.push_back({at, 4.0 * static_cast<double>(at % 7)});
    if (i < 100) check.map = error_map({1024, 4096}, outside);
  }
  const std::string page = tools::html_report(report, {});
  EXPECT_LT(page.size(), 1'500'000u);
  std::size_t maps = 0;
  for (std::size_t at = 0; (at = page.find("bins of 1,024 by 4,096 elements", at)) != page.npos; ++at) ++maps;
  EXPECT_EQ(maps, 2 * 20u) << "in words beside each, and as its label";
  EXPECT_TRUE(contains(page, "seed=999)")) << "no case is left out";
}

TEST(Html, WhatTheFormulaAsWrittenDoesNotAdmitIsCounted) {
  Report report;
  for (const char* const plugin : {"", "libmy.so"}) {
    CaseResult& result = report.cases.emplace_back();
    result.name = result.op = std::string("op") + plugin;
    result.plugin = plugin;
    result.dtype = "fp32";
    result.verdict = Verdict::rounding;
    CheckResult& check = result.checks.emplace_back();
    check.id = {.kind = CheckId::Kind::forward, .tensor = "y"};
    check.verdict = Verdict::rounding;
    check.compared = 200;
    check.by_forms = 20;
    check.by_regrouping = *plugin == '\0' ? 0 : 4;
  }
  const std::string page = tools::html_report(report, {});
  EXPECT_TRUE(contains(page, "<td>2.0 % by regrouping, 10 % by declared forms</td>")) << page;
  EXPECT_TRUE(contains(page, "<td>-</td><td>ROUNDING</td>")) << "all usual forms of a built-in op are listed";
}

TEST(Html, ThePageOfTheZooCountsTheCasesThatNeedAForm) {
  const TemporaryFolder folder;
  const std::string page = folder.path() + "/zoo.html";
  EXPECT_LE(ampcheck("audit zoo sigmoid --dtype bf16 --regimes quick -o html:" + page).exit_code, 1);
  const std::string html = read_text(page);
  EXPECT_TRUE(contains(html, "<td>by formula alone</td>")) << html.substr(0, 3000);
  EXPECT_TRUE(contains(html, "where the kernel needs a declared form</td><td>-</td><td>0 of ")) << html.substr(0, 3000);
}

/// 3000 steps: a skip in each window of 400, and one by itself.
std::string log_of_a_run() {
  std::string out = "step,scale,skipped,loss,grad_norm\n";
  int scale = 65536, clean = 0;
  for (int step = 1; step <= 3000; ++step) {
    const bool skip = scale > 32768 || step == 1500;
    if (skip) {
      scale /= 2;
      clean = 0;
    } else if (++clean == 400) {
      scale *= 2;
      clean = 0;
    }
    out += std::to_string(step) + "," + std::to_string(scale) + (skip ? ",1," : ",0,") +
           std::to_string(3.0 / (1 + step / 300)) + (skip ? ",nan\n" : ",0.5\n");
  }
  return out;
}

TEST(Html, ThePageOfALogIsDrawnByABrowser) {
  if (browser().empty()) GTEST_SKIP() << kNoBrowser;
  const TemporaryFolder folder;
  const std::string log = folder.path() + "/<run>.csv", page = folder.path() + "/scale.html";
  std::ofstream(log) << log_of_a_run();
  EXPECT_EQ(ampcheck("audit scaler --log '" + log + "' -o 'html:" + page + "'").exit_code, 0);
  const std::string html = read_text(page);
  EXPECT_TRUE(contains(html, "&lt;run&gt;.csv: HARMLESS</h1>")) << html.substr(0, 3000);
  EXPECT_LT(html.size(), 100'000u) << "a long log draws as fast as a short one";
  const Seen seen = open_page(folder.path(), html);
  EXPECT_EQ(seen.count("plots"), 3) << "the scale, the norm, the loss\n" << seen.log;
  EXPECT_EQ(seen.count("empty"), 0);
  EXPECT_EQ(seen.count("lines"), 5) << "the scale and its rule's, the norm and the scale, the loss";
  EXPECT_EQ(seen.count("rects"), 1) << "the band of the rule";
  EXPECT_GT(seen.count("texts"), 20);
  expect_quiet(seen);

  // The policy lets nothing run or load: both are planted.
  EXPECT_FALSE(contains(open_page(folder.path(), html, false).log, "Content Security Policy"));
  std::string broken = html;
  broken.replace(broken.find("</body>"), 7,
                 "<script>document.body.append('it ran')</script><img src='http://example.invalid/x.png'></body>");
  const Seen held = open_page(folder.path(), broken, false);
  EXPECT_FALSE(contains(held.page, "it ran</body>")) << held.page;
  EXPECT_TRUE(contains(held.log, "Content Security Policy")) << held.log;
}

TEST(Html, ALogsPageIsForLogsAndTheZoo) {
  EXPECT_EQ(ampcheck("audit gate relu -o html:x.html").exit_code, 2);
  const ProgramResult other = ampcheck("audit scaler --log - -o json:x.json </dev/null");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_TRUE(contains(other.err, "want html")) << other.err;
  EXPECT_EQ(ampcheck("audit scaler --log - -o html:/no/such/folder/x.html </dev/null").exit_code, 8);
}

}  // namespace
}  // namespace ampcheck::testing
