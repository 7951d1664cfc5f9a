// SPDX-License-Identifier: Apache-2.0
// Every page that ampcheck writes, in a real browser, in light and in dark: nothing is loaded, said or broken off, all
// of it fits 1,200 pixels, and every text stands out from what is behind it. AMPCHECK_PICTURES=DIR keeps a picture of
// each for a person to look at. Skipped without a browser.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/browser.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::testing {
namespace {

/// WCAG 2.2, 1.4.3 (AA): of text against its background, in hundredths.
constexpr int kLeastContrast = 450;

std::string op_file(const std::string& name) { return "'" + tests::in_build("/custom_ops/" + name + ".so") + "'"; }

/// What is wrong with a page, of which `plain` is a picture, in words; empty if nothing is.
std::string wrong_with(const std::string& folder, const std::string& html, Scheme scheme, const Seen& plain) {
  std::string out;
  const auto say = [&](const std::string& what) { out += what + "\n"; };
  const Seen probed = open_page(folder, html, true, scheme);
  if (probed.count("words") < 1) return "no probe ran: " + probed.log;
  if (probed.count("width") != 1200) say("the window is " + std::to_string(probed.count("width")) + " pixels wide");
  if (probed.count("errors") != 0) say("an error");
  if (probed.count("loaded") != 0) say("something was loaded");
  if (probed.count("empty") != 0) say("an empty plot");
  if (const int beyond = probed.count("beyond"); beyond != 0)
    say("wider than the window by " + std::to_string(beyond) + " pixels");
  if (const int contrast = probed.count("contrast"); contrast < kLeastContrast)
    say("contrast of " + std::to_string(contrast) + " hundredths: '" + probed.text("faintest") + "'");
  if (scheme == Scheme::dark ? probed.count("paper") > 10 : probed.count("paper") < 90)
    say("the background does not follow the scheme");
  if (contains(probed.log, "CONSOLE")) say("the console: " + probed.log);
  if (contains(plain.log, "CONSOLE") || contains(plain.log, "Content Security Policy"))
    say("the console of the page as it is: " + plain.log);
  if (!plain.page.starts_with("\x89PNG") || plain.page.size() < 5000) say("no picture: " + plain.log);
  return out;
}

void keep_picture(const std::string& name, const std::string& picture) {
  const char* const folder = std::getenv("AMPCHECK_PICTURES");
  if (folder == nullptr) return;
  std::filesystem::create_directories(folder);
  std::ofstream(std::string(folder) + "/" + name + ".png", std::ios::binary) << picture;
}

/// The page in both schemes, which are not the same picture.
void expect_good_looking(const std::string& name, const std::string& page) {
  const TemporaryFolder folder;
  const std::string html = read_text(page);
  ASSERT_FALSE(html.empty()) << name;
  std::string pictures[2];
  for (const Scheme scheme : {Scheme::light, Scheme::dark}) {
    const char* const word = scheme == Scheme::light ? "light" : "dark";
    const Seen plain = picture_of(folder.path(), html, scheme);
    EXPECT_EQ(wrong_with(folder.path(), html, scheme, plain), "") << name << ", " << word;
    pictures[scheme == Scheme::dark] = plain.page;
    keep_picture(name + "." + word, plain.page);
  }
  EXPECT_NE(pictures[0], pictures[1]) << name;
}

class Look : public ::testing::Test {
 protected:
  void SetUp() override {
    if (browser().empty()) GTEST_SKIP() << kNoBrowser;
  }
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }

 private:
  const TemporaryFolder folder_;
};

TEST_F(Look, OfACheck) {
  EXPECT_EQ(
      ampcheck("check add softmax.sign softmax.dropped_tail --regimes quick --dtype bf16 -o html:" + file("p.html"))
          .exit_code,
      1);
  expect_good_looking("check", file("p.html"));
}

TEST_F(Look, OfACheckWithLongNames) {
  std::filesystem::create_directories(file(std::string(200, 'd')));
  const std::string library = file(std::string(200, 'd') + "/" + std::string(200, 'l') + ".so");
  std::filesystem::copy_file(tests::in_build("/custom_ops/gated_sum_dropped_tail.so"), library);
  EXPECT_EQ(ampcheck("check '" + library + "' --regimes quick --dtype bf16 -o html:" + file("p.html")).exit_code, 1);
  expect_good_looking("check_long", file("p.html"));
}

TEST_F(Look, OfAGate) {
  const std::string base = " --regimes quick --baseline '" + file("base") + "'";
  EXPECT_EQ(ampcheck("gate " + op_file("gated_sum_none") + base).exit_code, 7);
  EXPECT_EQ(ampcheck("accept --reason first --baseline '" + file("base") + "'").exit_code, 0);
  EXPECT_EQ(ampcheck("gate " + op_file("gated_sum_none") + base + " -o html:" + file("same.html")).exit_code, 0);
  expect_good_looking("gate_unchanged", file("same.html"));
  const ProgramResult dropped =
      ampcheck("gate " + op_file("gated_sum_dropped_tail") + base + " -o html:" + file("p.html"));
  EXPECT_NE(dropped.exit_code, 0) << dropped.out;
  expect_good_looking("gate_findings", file("p.html"));
}

TEST_F(Look, OfAnAuditOfTheZoo) {
  EXPECT_LE(ampcheck("audit zoo relu --dtype bf16 --regimes quick -o html:" + file("p.html")).exit_code, 1);
  expect_good_looking("audit_zoo", file("p.html"));
}

TEST_F(Look, OfAnAuditOfALog) {
  std::ofstream log(file("run.csv"));
  log << "step,scale,skipped,loss,grad_norm\n";
  for (int step = 1; step <= 1200; ++step)
    log << step << "," << (step < 700 ? 65536 : 32768) << (step == 700 ? ",1," : ",0,") << 3.0 / step << ",0.5\n";
  log.close();
  EXPECT_LE(ampcheck("audit scaler --log '" + file("run.csv") + "' -o html:" + file("p.html")).exit_code, 1);
  expect_good_looking("audit_scaler", file("p.html"));
}

TEST_F(Look, OfATrace) {
  EXPECT_LE(ampcheck("train --steps 6 --init-scale 16777216 --record '" + file("run.trace") + "'").exit_code, 1);
  EXPECT_EQ(ampcheck("trace '" + file("run.trace") + "' -o html:" + file("p.html")).exit_code, 0);
  expect_good_looking("trace", file("p.html"));
}

/// What each part of the look is there for is seen, and by its own words.
TEST_F(Look, PlantedFaultsAreSeen) {
  EXPECT_EQ(ampcheck("check add --regimes quick --dtype bf16 -o html:" + file("p.html")).exit_code, 0);
  const std::string right = read_text(file("p.html"));
  const TemporaryFolder folder;
  const struct {
    const char *what, *planted, *said;
  } kFaults[] = {
      {"wide", "<div style='width:1300px'>x</div>", "wider than the window by 1"},
      {"a long word",
       "<pre>"
       "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
       "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx</pre>",
       "wider than the window"},
      {"faint", "<p style='color:#999'>faint words</p>", "'faint words'"},
      {"faint in a drawing",
       "<svg width='90' height='20'><rect width='9' height='9'/><text y='9' style='fill:#bbb'>drawn</text></svg>",
       "'drawn'"},
      {"light alone", "<style>body { background: #ffffff !important; color: #000000 !important; }</style>",
       "the background does not follow the scheme"},
      {"a script", "<script>document.title = 'it ran'</script>", "the console of the page as it is"},
      {"a picture from elsewhere", "<img src='http://example.invalid/x.png'>", "something was loaded"},
      {"an error", "<script>throw new Error('planted')</script>", "an error"},
      {"an empty plot", "<svg width='90' height='20'></svg>", "an empty plot"},
  };
  for (const auto& fault : kFaults) {
    std::string broken = right;
    broken.replace(broken.find("</body>"), 7, std::string(fault.planted) + "</body>");
    std::string said;
    for (const Scheme scheme : {Scheme::light, Scheme::dark})
      said += wrong_with(folder.path(), broken, scheme, picture_of(folder.path(), broken, scheme));
    EXPECT_TRUE(contains(said, fault.said)) << fault.what << "\n" << said;
  }
}

}  // namespace
}  // namespace ampcheck::testing
