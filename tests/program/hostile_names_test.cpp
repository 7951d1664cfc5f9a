// SPDX-License-Identifier: Apache-2.0
// 200 names that break out of what a report puts them into: each format stays what it is, and says as much as of plain
// names.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/property_tree/xml_parser.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/support/hostile_report.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tools/choose/report_formats.h"
#include "tools/report/plain_text.h"
#include "tools/report/reports.h"

namespace ampcheck::tools {
namespace {

using nlohmann::json;
using testing::facts_of;
using testing::failing_case;
using testing::hostile_names;
using testing::ProgramResult;
using testing::report_of;
using testing::shell;
using testing::TemporaryFolder;

struct Texts {
  std::string hostile, plain;
};

/// The same report of hostile names and of as many plain ones.
Texts texts_of(const std::string& format, std::size_t most = 1000) {
  std::vector<std::string> names = hostile_names();
  names.resize(std::min(names.size(), most));
  std::vector<std::string> plain;
  for (std::size_t i = 0; i < names.size(); ++i) plain.push_back("op" + std::to_string(i));
  for (const ReportFormat& known : report_formats())
    if (known.name == format)
      if (const auto* writer = std::get_if<ReportWriter>(&known.writer))
        return {(*writer)(report_of(names), facts_of(names)), (*writer)(report_of(plain), facts_of(plain))};
  ADD_FAILURE() << "no format " << format;
  return {};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

/// The beginnings of lines that a format gives a meaning, in their order.
std::string skeleton(const std::string& text, const std::vector<std::string>& heads) {
  std::string out;
  for (const std::string& line : lines_of(text)) {
    const auto head = std::find_if(heads.begin(), heads.end(), [&](const auto& h) { return line.starts_with(h); });
    out += head == heads.end() ? "?" : *head;
    out += "\n";
  }
  return out;
}

void expect_clean(const std::string& text, bool carriage_returns = false) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(std::string_view(text).substr(at));
    ASSERT_GT(length, 0u) << "no UTF-8 at byte " << at;
    const auto c = static_cast<unsigned char>(text[at]);
    if (length == 1 && c != '\n' && c != '\t' && !(carriage_returns && c == '\r')) {
      ASSERT_TRUE(c >= 0x20 && c != 0x7f) << "control " << int(c) << " at byte " << at;
    }
    ASSERT_FALSE(length == 2 && c == 0xc2 && static_cast<unsigned char>(text[at + 1]) < 0xa0) << "C1 at byte " << at;
    at += length;
  }
}

/// RFC 4180, as a spreadsheet reads it.
std::vector<std::vector<std::string>> rows_of_csv(const std::string& text) {
  std::vector<std::vector<std::string>> rows = {{""}};
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    std::string& cell = rows.back().back();
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      cell += '"';
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && c == ',') {
      rows.back().emplace_back();
    } else if (!quoted && c == '\r') {
      continue;
    } else if (!quoted && c == '\n') {
      rows.push_back({""});
    } else {
      cell += c;
    }
  }
  rows.pop_back();
  return rows;
}

TEST(HostileNames, ThereAre200) {
  const std::vector<std::string> names = hostile_names();
  EXPECT_GE(names.size(), 200u);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

TEST(HostileNames, EveryFormatOfTheTableIsTestedHere) {
  std::set<std::string> known;
  for (const ReportFormat& format : report_formats())
    if (std::holds_alternative<ReportWriter>(format.writer)) known.insert(format.name);
  EXPECT_EQ(known, (std::set<std::string>{"json", "junit", "lines", "jsonl", "sarif", "github", "gitlab", "markdown",
                                          "csv", "tap", "concise", "html"}));
}

TEST(HostileNames, JsonFormatsParse) {
  const std::size_t names = hostile_names().size();
  EXPECT_EQ(json::parse(texts_of("json").hostile).at("cases").size(), 2 * names);
  std::size_t count = 0;
  for (const std::string& line : lines_of(texts_of("jsonl").hostile)) {
    EXPECT_TRUE(json::parse(line).contains("case"));
    ++count;
  }
  EXPECT_EQ(count, 2 * names);
}

TEST(HostileNames, SarifHasWhatCodeScanningAsksFor) {
  const std::size_t names = hostile_names().size();
  const json sarif = json::parse(texts_of("sarif").hostile);
  EXPECT_EQ(sarif.at("version"), "2.1.0");
  ASSERT_EQ(sarif.at("runs").size(), 1u);
  std::set<std::string> rules, prints;
  for (const json& rule : sarif["runs"][0]["tool"]["driver"]["rules"]) rules.insert(rule.at("id"));
  for (const json& result : sarif["runs"][0]["results"]) {
    EXPECT_TRUE(rules.contains(result.at("ruleId")));
    EXPECT_FALSE(result.at("message").at("text").get<std::string>().empty());
    const json& place = result.at("locations").at(0).at("physicalLocation");
    const std::string uri = place.at("artifactLocation").at("uri");
    EXPECT_EQ(uri.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-~%"), uri.npos)
        << uri;
    EXPECT_EQ(place.at("region").at("startLine"), 1);
    prints.insert(result.at("partialFingerprints").at("ampcheck/v1"));
  }
  EXPECT_EQ(sarif["runs"][0]["results"].size(), 2 * names);
  EXPECT_EQ(prints.size(), 2 * names) << "one alarm each";
  expect_clean(texts_of("sarif").hostile);
}

TEST(HostileNames, GitlabHasOneIssueForEach) {
  const json issues = json::parse(texts_of("gitlab").hostile);
  std::set<std::string> prints;
  for (const json& issue : issues) {
    for (const char* key : {"description", "check_name", "fingerprint", "severity"})
      EXPECT_TRUE(issue.at(key).is_string());
    EXPECT_TRUE(issue.at("location").at("path").is_string());
    EXPECT_EQ(issue.at("location").at("lines").at("begin"), 1);
    prints.insert(issue.at("fingerprint"));
  }
  EXPECT_EQ(prints.size(), 2 * hostile_names().size());
}

/// What is wrong with a JUnit file by its schema; empty if nothing is.
std::string against_schema(const std::string& text) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/j.xml") << text;
  const ProgramResult valid = shell("xmllint --noout --nonet --schema '" +
                                    tests::in_source("/tests/data/junit-10.xsd") + "' '" + folder.path() + "/j.xml'");
  return valid.exit_code == 0 ? "" : valid.err.substr(0, 2000);
}

/// Every verdict, per check and rolled up, with elements that a form admits, and none.
std::vector<std::string> junit_of_all_kinds() {
  Report report;
  for (const auto verdict : {Verdict::rounding, Verdict::bug, Verdict::crash, Verdict::timeout, Verdict::skipped,
                             Verdict::range, Verdict::empty, Verdict::non_smooth}) {
    CaseResult result = failing_case("op", report.cases.size());
    result.verdict = result.checks[0].verdict = verdict;
    result.code = result.checks[0].code = verdict == Verdict::crash ? Code::ac501 : Code::none;
    result.checks[0].by_forms = 3;
    if (verdict == Verdict::skipped) result.checks.clear();
    report.cases.push_back(std::move(result));
  }
  Report large = report;
  for (int i = 0; i < 20'001; ++i) large.cases.push_back(failing_case("op", 100));  // more than are told apart
  const TemporaryFolder folder;
  const std::string check = folder.path() + "/c.xml", gate = folder.path() + "/g.xml";
  testing::ampcheck("check add softmax.sign --regimes quick --dtype bf16 -o junit:" + check);
  testing::ampcheck("gate softmax.sign --regimes quick --dtype bf16 --baseline " + folder.path() +
                    "/none -o junit:" + gate);
  return {junit_report(report, {}), junit_report(large, {}), junit_report({}, {}), testing::read_text(check),
          testing::read_text(gate)};
}

TEST(HostileNames, JUnitIsOfItsSchema) {
  if (shell("command -v xmllint").exit_code != 0) GTEST_SKIP() << "no xmllint (libxml2-utils)";
  std::vector<std::string> all = junit_of_all_kinds();
  const Texts named = texts_of("junit");
  all.insert(all.end(), {named.hostile, named.plain});
  for (const std::string& text : all) EXPECT_EQ(against_schema(text), "") << text.substr(0, 300);
  // Planted: an attribute that it has not, and one that it asks for.
  for (const auto& [right, wrong] : {std::pair(" classname=", " class="), {" tests=\"", " test=\""}}) {
    std::string broken = named.plain;
    broken.replace(broken.rfind(right), std::string_view(right).size(), wrong);
    EXPECT_NE(against_schema(broken), "") << wrong;
  }
}

TEST(HostileNames, JunitIsXmlWithAsManyTests) {
  for (const std::string& text : {texts_of("junit").hostile, texts_of("junit").plain}) {
    std::istringstream in(text);
    boost::property_tree::ptree tree;
    ASSERT_NO_THROW(boost::property_tree::read_xml(in, tree));
    std::size_t count = 0;
    for (const auto& [tag, suite] : tree.get_child("testsuites"))
      if (tag == "testsuite") count += suite.count("testcase");
    EXPECT_EQ(count, 3 * hostile_names().size());
  }
}

TEST(HostileNames, GithubGetsNoCommandFromAName) {
  const Texts texts = texts_of("github");
  const std::vector<std::string> heads = {"::error file="};
  EXPECT_EQ(skeleton(texts.hostile, heads), skeleton(texts.plain, heads));
  EXPECT_EQ(lines_of(texts.hostile).size(), 10u) << "it shows ten";
  expect_clean(texts.hostile);
  for (std::size_t first = 0; first + 9 < hostile_names().size(); first += 9) {  // each name among those that are shown
    std::vector<std::string> names = hostile_names();
    names = {names.begin() + static_cast<std::ptrdiff_t>(first),
             names.begin() + static_cast<std::ptrdiff_t>(first) + 9};
    Report report;
    for (const std::string& name : names) report.cases.push_back(failing_case(name, first));
    const std::string text = github_report(report, {});
    expect_clean(text);
    for (const std::string& line : lines_of(text)) {
      ASSERT_TRUE(line.starts_with("::error file=")) << line;
      const std::string properties = line.substr(8, line.find("::", 8) - 8);
      EXPECT_EQ(std::count(properties.begin(), properties.end(), ','), 2) << line;
      EXPECT_TRUE(properties.ends_with("title=BUG AC101")) << line;
    }
  }
}

TEST(HostileNames, MarkdownKeepsItsTables) {
  const Texts texts = texts_of("markdown");
  expect_clean(texts.hostile);
  const std::vector<std::string> hostile = lines_of(texts.hostile), plain = lines_of(texts.plain);
  ASSERT_EQ(hostile.size(), plain.size());
  for (std::size_t i = 0; i < hostile.size(); ++i) {
    const auto bars = [](const std::string& line) {
      std::size_t count = 0;
      for (std::size_t at = 0; at < line.size(); ++at) count += line[at] == '|' && (at == 0 || line[at - 1] != '\\');
      return count;
    };
    if (plain[i].starts_with("|")) {
      EXPECT_EQ(bars(hostile[i]), bars(plain[i])) << hostile[i];
    }
    for (const char* tag : {"<script", "<img", "<!--", "<!DOCTYPE", "</testcase"})
      EXPECT_EQ(hostile[i].find(tag), std::string::npos) << hostile[i];
    EXPECT_EQ(hostile[i].find("://"), std::string::npos) << hostile[i];
    EXPECT_EQ(hostile[i].find("@everyone"), std::string::npos) << hostile[i];
  }
}

TEST(HostileNames, MarkdownStaysBelowWhatASummaryMayHave) {
  const std::string text = markdown_report(report_of(std::vector<std::string>(4000, std::string(500, 'n'))), {});
  EXPECT_LT(text.size(), 901'000u);
  EXPECT_NE(text.find(" more findings do not fit here."), std::string::npos);
}

TEST(HostileNames, CsvHasAsManyCellsAndNoFormula) {
  const std::string text = texts_of("csv").hostile;
  expect_clean(text, true);
  const auto rows = rows_of_csv(text);
  ASSERT_EQ(rows.size(), 2 * hostile_names().size() + 1);
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), rows.front().size()) << row.front();
    for (const std::string& cell : row)
      EXPECT_TRUE(cell.empty() || std::string_view("=+-@").find(cell.front()) == std::string_view::npos) << cell;
  }
}

TEST(HostileNames, TapHasAsManyTestsAndNoDirectiveOfAName) {
  const Texts texts = texts_of("tap");
  expect_clean(texts.hostile);
  const std::vector<std::string> heads = {"TAP version 14", "1..",           "not ok ",      "ok ",        "  ---",
                                          "  verdict: BUG", "  code: AC101", "  message: '", "  again: '", "  ..."};
  EXPECT_EQ(skeleton(texts.hostile, heads), skeleton(texts.plain, heads));
  for (const std::string& line : lines_of(texts.hostile))
    if (line.starts_with("not ok ")) {
      EXPECT_EQ(line.find(" # "), std::string::npos) << line;
    }
}

TEST(HostileNames, ConciseAndLinesHaveALineForEach) {
  for (const char* format : {"concise", "lines"}) {
    const Texts texts = texts_of(format);
    EXPECT_EQ(lines_of(texts.hostile).size(), lines_of(texts.plain).size()) << format;
  }
  expect_clean(texts_of("concise").hostile);
}

TEST(HostileNames, HtmlHasTheSameTags) {
  const auto tags = [](const std::string& text) {  // of each part, for cases stand in the order of their names
    std::vector<std::string> out = {""};
    bool inside = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
      for (const char* const begins : {"<h2", "<h3", "<p>"})
        if (text.compare(i, 3, begins) == 0) out.emplace_back();
      inside |= text[i] == '<';
      if (inside) out.back() += text[i];
      inside &= text[i] != '>';
    }
    std::ranges::sort(out);
    return out;
  };
  const std::vector<std::string> all = hostile_names();
  for (std::size_t from = 0; from < all.size(); from += 100) {  // below what a page shows in full
    const std::vector<std::string> names(all.begin() + static_cast<std::ptrdiff_t>(from),
                                         all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), from + 100)));
    std::vector<std::string> plain;
    for (std::size_t i = 0; i < names.size(); ++i) plain.push_back(names[i].empty() ? "" : "op" + std::to_string(i));
    const std::string text = html_report(report_of(names), facts_of(names));
    expect_clean(text);
    EXPECT_EQ(tags(text), tags(html_report(report_of(plain), facts_of(plain)))) << from;
    EXPECT_EQ(text.find("<script"), std::string::npos);
  }
}

TEST(HostileNames, AnHtmlPageOfAThousandCasesIsSmall) {
  Report report;
  for (int i = 0; i < 1000; ++i)
    report.cases.push_back(failing_case("softmax(x=bf16[64,129],range=mean-300,seed=" + std::to_string(i) + ")", 1));
  const std::string text = html_report(report, {});
  EXPECT_LT(text.size(), 1'500'000u);
  EXPECT_NE(text.find("800 more are in the list of cases."), std::string::npos);
}

}  // namespace
}  // namespace ampcheck::tools
