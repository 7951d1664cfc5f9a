// SPDX-License-Identifier: Apache-2.0
// The manual as a site, in a real browser without a display: pages are laid out, the search finds, nothing is loaded
// from elsewhere. Skipped without Python or a browser.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "tests/support/browser.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tools/commands/manual_pages.h"

namespace ampcheck::testing {
namespace {

namespace fs = std::filesystem;

bool build_site(const std::string& folder) {
  return shell("python3 '" + tests::in_source("/tools/manual/site.py") + "' \"$AMPCHECK\" '" + folder + "'")
             .exit_code == 0;
}

/// What the browser made of a page of the site, and what it said of it.
ProgramResult opened(const std::string& folder, const std::string& page) {
  return shell("timeout 100 " + browser() +
               " --headless --no-sandbox --disable-gpu --no-first-run --host-resolver-rules='MAP * ~NOTFOUND' "
               "--enable-logging=stderr --user-data-dir='" +
               folder + "/profile' --dump-dom 'file://" + folder + "/" + page + "'");
}

/// The addresses in a page that lead to no file of the site, or to no place in it.
std::set<std::string> dead_links(const std::string& folder, const std::string& page) {
  std::set<std::string> out;
  const std::regex link(R"re((?:href|src)="([^"#]*)(?:#([^"]*))?")re");
  for (std::sregex_iterator at(page.begin(), page.end(), link), end; at != end; ++at) {
    const std::string file = (*at)[1], anchor = (*at)[2];
    if (!fs::exists(fs::path(folder) / file) ||
        (!anchor.empty() && !contains(file.empty() ? page : read_text(folder + "/" + file), "id=\"" + anchor + "\"")))
      out.insert((*at)[0]);
  }
  return out;
}

TEST(Site, EveryPageIsThereAndEveryLinkLeadsSomewhere) {
  if (shell("command -v python3").exit_code != 0) GTEST_SKIP() << "no python3 on PATH";
  const TemporaryFolder folder;
  ASSERT_TRUE(build_site(folder.path()));
  for (const tools::ManualPage& page : tools::manual_pages()) {
    const std::string html = read_text(folder.path() + "/" + page.name + ".html");
    EXPECT_TRUE(contains(html, "<h1 id=")) << page.name;
    EXPECT_EQ(dead_links(folder.path(), html), std::set<std::string>{}) << page.name;
  }
  EXPECT_EQ(dead_links(folder.path(), "<a href=\"ci.html#nowhere\"> <a href=\"none.html\"> <a href=\"#here\">").size(),
            3u)
      << "planted";
}

TEST(Site, ABrowserShowsPagesAndTheSearchFinds) {
  if (shell("command -v python3").exit_code != 0) GTEST_SKIP() << "no python3 on PATH";
  if (browser().empty()) GTEST_SKIP() << kNoBrowser;
  const TemporaryFolder folder;
  ASSERT_TRUE(build_site(folder.path()));
  const ProgramResult found = opened(folder.path(), "index.html?q=AC301");
  EXPECT_TRUE(contains(found.out, "<div id=\"found\"><a href=\"findings.html#ac301-")) << found.out << found.err;
  EXPECT_FALSE(contains(found.err, "CONSOLE")) << found.err;
  EXPECT_EQ(dead_links(folder.path(), found.out), std::set<std::string>{});
  const ProgramResult none = opened(folder.path(), "ci.html?q=nosuchword");
  EXPECT_TRUE(contains(none.out, "Nothing found.")) << none.out;
  // Planted: a script that does not parse, and a picture from elsewhere.
  std::ofstream(folder.path() + "/index.js", std::ios::app) << "this is no script\n";
  std::ofstream(folder.path() + "/ci.html", std::ios::app) << "<img src='http://example.invalid/x.png'>";
  const ProgramResult broken = opened(folder.path(), "ci.html?q=AC301");
  EXPECT_TRUE(contains(broken.err, "CONSOLE")) << broken.err;
  EXPECT_FALSE(contains(broken.out, "<a href=\"findings.html#ac301-")) << broken.out;
}

}  // namespace
}  // namespace ampcheck::testing
