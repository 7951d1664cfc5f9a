// SPDX-License-Identifier: Apache-2.0
// The pages of a trace and of a log in a real browser without a display: they load nothing, report no error, and their
// plots are drawn. Skipped without one.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <string_view>

#include "tests/support/run_program.h"

namespace ampcheck::testing {
namespace {

/// Counts what the browser laid out, and what went wrong, into the text of the page.
constexpr const char* kProbe = R"(<script>
window.errors = 0; addEventListener('error', () => ++errors, true);
addEventListener('load', () => {
  const drawn = e => { const b = e.getBoundingClientRect(), s = getComputedStyle(e); return b.width * b.height > 0 && s.visibility === 'visible' && s.fill !== 'none'; };
  const counts = {plots: 0, empty: 0, lines: 0, rects: 0, texts: 0};
  for (const svg of document.querySelectorAll('svg')) {
    const lines = [...svg.querySelectorAll('path')].filter(p => p.getTotalLength() > 0 && getComputedStyle(p).stroke !== 'none').length;
    const rects = [...svg.querySelectorAll('rect')].filter(drawn).length;
    counts.plots += 1; counts.lines += lines; counts.rects += rects; counts.empty += lines + rects === 0;
    counts.texts += [...svg.querySelectorAll('text')].filter(t => t.getComputedTextLength() > 0).length;
  }
  counts.loaded = performance.getEntriesByType('resource').length; counts.errors = errors;
  const out = document.createElement('pre');
  out.textContent = Object.entries(counts).map(([k, v]) => `probe ${k}=${v};`).join(' ');
  document.body.append(out);
});
</script>)";

struct Seen {
  std::string page, log;
  int count(const std::string& what) const {
    std::smatch found;
    return std::regex_search(page, found, std::regex("probe " + what + "=([0-9]+);")) ? std::stoi(found[1]) : -1;
  }
};

std::string browser() {
  std::string found =
      shell("for b in chromium chromium-browser google-chrome chrome; do command -v $b && break; done; true").out;
  while (found.ends_with('\n')) found.pop_back();
  return found;
}

constexpr const char* kPolicy =
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">";

/// The page's policy lets no probe run: it goes, and OfThePolicy looks at it.
Seen open_page(const std::string& folder, std::string html, bool probed = true) {
  if (probed) {
    const std::size_t policy = html.find(kPolicy);
    if (policy != std::string::npos) html.erase(policy, std::string_view(kPolicy).size());
    html.insert(html.find("</head>"), kProbe);
  }
  std::ofstream(folder + "/probed.html") << html;
  const ProgramResult run = shell("timeout 100 " + browser() +
                                  " --headless --no-sandbox --disable-gpu --no-first-run --host-resolver-rules='MAP * "
                                  "~NOTFOUND' --enable-logging=stderr --user-data-dir='" +
                                  folder + "/profile' --dump-dom 'file://" + folder + "/probed.html'");
  return {run.out, run.err};
}

/// Nothing went wrong, and nothing was loaded.
void expect_quiet(const Seen& seen) {
  EXPECT_EQ(seen.count("errors"), 0);
  EXPECT_EQ(seen.count("loaded"), 0);
  EXPECT_FALSE(contains(seen.log, "CONSOLE")) << seen.log;
}

TEST(Html, ThePageOfATraceIsDrawnByABrowser) {
  if (browser().empty()) GTEST_SKIP() << "no chromium, chromium-browser, google-chrome or chrome on PATH";
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
  if (browser().empty()) GTEST_SKIP() << "no chromium, chromium-browser, google-chrome or chrome on PATH";
  const TemporaryFolder folder;
  const std::string page = folder.path() + "/check.html";
  EXPECT_EQ(ampcheck("check add softmax.sign --regimes quick --dtype bf16 -o html:" + page).exit_code, 1);
  const std::string html = read_text(page);
  EXPECT_TRUE(contains(html, "softmax.sign")) << html.substr(0, 2000);
  EXPECT_TRUE(contains(html, "with the other sign of the term")) << "the cause";
  const Seen seen = open_page(folder.path(), html);
  EXPECT_EQ(seen.count("plots"), 4) << "two bars of headroom and two histograms";
  EXPECT_EQ(seen.count("empty"), 0);
  EXPECT_GT(seen.count("rects"), 4);
  expect_quiet(seen);
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
  if (browser().empty()) GTEST_SKIP() << "no chromium, chromium-browser, google-chrome or chrome on PATH";
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

TEST(Html, ALogsPageIsForLogsAlone) {
  EXPECT_EQ(ampcheck("audit zoo relu -o html:x.html").exit_code, 2);
  const ProgramResult other = ampcheck("audit scaler --log - -o json:x.json </dev/null");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_TRUE(contains(other.err, "want html")) << other.err;
  EXPECT_EQ(ampcheck("audit scaler --log - -o html:/no/such/folder/x.html </dev/null").exit_code, 8);
}

}  // namespace
}  // namespace ampcheck::testing
