// SPDX-License-Identifier: Apache-2.0
// Reports of made-up results: what the checks of real ops seldom give.
#include "tools/report/reports.h"
#include "tests/support/run_program.h"

#include <gtest/gtest.h>

#include <boost/property_tree/xml_parser.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <sstream>

#include "tools/report/loss_decimal.h"
#include "tools/report/numbers.h"

namespace ampcheck::tools {
namespace {

using ampcheck::testing::contains;

Report hostile_report(std::size_t failing) {
  Report report;
  for (std::size_t i = 0; i < failing; ++i) {
    CaseResult result;
    result.name = "op" + std::to_string(i % 13) + "(x=bf16[2,3],seed=" + std::to_string(i) + ")";
    result.op = "op" + std::to_string(i % 13);
    result.dtype = "bf16";
    result.verdict = Verdict::bug;
    result.code = Code::ac101;
    result.note = "two\nlines";
    CheckResult check;
    check.id = {.kind = CheckId::Kind::backward, .tensor = "dx", .probe = 0};
    check.dtype = Dtype::bf16;
    check.verdict = Verdict::bug;
    check.code = Code::ac101;
    check.compared = 6;
    check.failed = 4;
    check.max_ratio = HUGE_VAL;
    check.cause = "<a> & \"b\" ]]> \x01\xff\xed\xa0\x80 \xc3\xa9";
    check.note = "a\nb";
    check.worst = {{{1, 2}, NAN, -HUGE_VAL, 0x7fc0, 0xff80, HUGE_VAL, -HUGE_VAL, 0.5, "e/l"}};
    CheckResult second = check;
    second.id = {CheckId::Kind::forward, "y"};
    result.checks = {check, second, check};
    report.cases.push_back(result);
  }
  return report;
}

std::int64_t lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST(ConsoleReport, AFailureHasAtMostTwelveLinesWhateverItHolds) {
  const std::string text = console_failure(hostile_report(1).cases[0], {}, {});
  EXPECT_LE(lines(text), 11) << text;  // the list adds "like it"
  EXPECT_NE(text.find("got nan (0x7fc0)"), std::string::npos) << text;
}

TEST(ReplayLine, NamesTheDeviceThatIsNotTheDefault) {
  CaseResult result;
  result.name = "add(x=fp32[2,3],seed=1)";
  EXPECT_EQ(replay_line(result, {.data = "/data"}), "ampcheck replay 'add(x=fp32[2,3],seed=1)'");
  EXPECT_EQ(replay_line(result, {.device = Device::cuda}), "ampcheck replay 'add(x=fp32[2,3],seed=1)' --device cuda");
  result.name = "softmax(x=bf16[8,16],range=digits.step1.softmax_1,seed=1)";
  EXPECT_EQ(replay_line(result, {.data = "a b"}), "ampcheck replay '" + result.name + "' --data 'a b'");
}

std::size_t shown_failures(const Report& report) {
  const std::string text = console_report(report, {}, {});
  std::size_t shown = 0;
  for (std::size_t at = text.find("  again "); at != std::string::npos; at = text.find("  again ", at + 1)) ++shown;
  return shown;
}

TEST(ConsoleReport, ShowsEachFailingOpAndCountsTheRest) {
  const Report of_13_ops = hostile_report(40);
  const std::string text = console_report(of_13_ops, {}, {});
  EXPECT_EQ(shown_failures(of_13_ops), 13u) << "one of each op";
  EXPECT_NE(text.find("BUG  AC101  op12"), std::string::npos) << text;
  EXPECT_NE(text.find("and 27 more failing cases"), std::string::npos) << text;
  // The first op has twelve kinds of failure: the last one is shown all the same.
  Report many = hostile_report(13);
  for (std::size_t i = 0; i < many.cases.size(); ++i)
    if (i < 12) {
      many.cases[i].op = "op0";
      many.cases[i].code = code_texts()[i].code;
    }
  EXPECT_EQ(shown_failures(many), 10u);
  EXPECT_NE(console_report(many, {}, {}).find("AC101  op12"), std::string::npos);
  EXPECT_NE(console_report(many, {}, {}).find("and 3 more failing cases"), std::string::npos);
  // However many ops fail, the report stays one that is read.
  Report hundred = hostile_report(100);
  for (std::size_t i = 0; i < hundred.cases.size(); ++i) hundred.cases[i].op = "op" + std::to_string(i);
  EXPECT_EQ(shown_failures(hundred), 25u);
  EXPECT_NE(console_report(hundred, {}, {}).find("and 75 more failing cases"), std::string::npos);
}

/// Operations with what each makes of an interval; a branch makes nothing of it, it is named if no value took it.
TEST(ConsoleReport, SaysWhatMakesTheIntervalsWide) {
  Report report;
  for (const char* op : {"exact", "one_side", "rounded"})
    report.cases.push_back({.name = std::string(op) + "()", .op = op, .dtype = "fp32"});
  report.coverage = {{"exact", {{"branch no", 1}, {"branch yes", 1}}},
                     {"one_side", {{"max", 0}, {"branch yes", 1}, {"branch no", 0}}},
                     {"rounded", {{"sub", 0}, {"mul", 0.25}, {"branch yes", 1}, {"exp", 0.5}}}};
  const std::string text = console_report(report, {}, {});
  EXPECT_TRUE(contains(text, "\n  exact: nothing; every result is exact, or exact and rounded once\n")) << text;
  EXPECT_TRUE(contains(text,
                       "\n  one_side: nothing; every result is exact, or exact and rounded once; "
                       "never taken: branch no\n"))
      << text;
  EXPECT_TRUE(contains(text, "\n  rounded: exp 50 %, mul 25 %; never visible: sub\n")) << text;
  EXPECT_FALSE(contains(text, "branch yes")) << text;
}

/// Calls with the same data, of the op that has the fewest; none where some differ, and no line of few calls.
TEST(ConsoleReport, SaysWhichRateOfFaultsTheRepeatedCallsExclude) {
  Report report;
  const auto add = [&](const char* op, std::int64_t calls) {
    CaseResult result{.name = std::string(op) + "()", .op = op, .dtype = "fp32"};
    result.checks = {{.id = {.kind = CheckId::Kind::forward, .tensor = "y"}, .compared = 7},
                     {.id = {.kind = CheckId::Kind::repeats, .tensor = "y"}, .compared = 7 * calls}};
    report.cases.push_back(std::move(result));
  };
  const auto text = [&] { return console_report(report, {}, {}); };
  add("a", 29);
  EXPECT_EQ(totals_of(report).repeated, 29);
  EXPECT_FALSE(contains(text(), "repeated calls")) << "too few for a rate";
  add("a", 61);
  EXPECT_TRUE(
      contains(text(), "\n90 repeated calls gave the same bits: a fault in one call of 30 would have shown (95 %)."))
      << text();
  add("b", 60);
  EXPECT_TRUE(
      contains(text(), "\n60 repeated calls of each op, or more, gave the same bits: a fault in one call of 20"))
      << text();
  report.cases.back().checks.back().code = Code::ac404;
  EXPECT_EQ(totals_of(report).repeated, 0);
  EXPECT_FALSE(contains(text(), "repeated calls"));
}

TEST(JsonReport, HoldsNoBareNanOrInfinity) {
  const std::string text = json_report(hostile_report(2), {});
  const nlohmann::json out = nlohmann::json::parse(text);  // would throw on NaN
  EXPECT_EQ(text.find("null"), std::string::npos);
  const auto& check = out["cases"][0]["checks"][0];
  EXPECT_EQ(check["max_ratio"], "inf");
  EXPECT_EQ(check["worst"][0]["got"], "nan");
  EXPECT_EQ(check["worst"][0]["want"], "-inf");
  EXPECT_EQ(check["worst"][0]["interval"][1], "0x1p-1");
}

TEST(JunitReport, IsXmlWithUniqueNamesAndTrueCounts) {
  Report report = hostile_report(3);
  report.cases[1].verdict = Verdict::skipped;
  report.cases[2].verdict = Verdict::crash;  // no check says so: the case itself must
  std::istringstream text(junit_report(report, {}));
  boost::property_tree::ptree tree;
  boost::property_tree::read_xml(text, tree);
  const auto& suites = tree.get_child("testsuites");
  EXPECT_EQ(suites.get<int>("<xmlattr>.tests"), 5);
  EXPECT_EQ(suites.get<int>("<xmlattr>.failures"), 3);
  EXPECT_EQ(suites.get<int>("<xmlattr>.errors"), 1);
  std::set<std::string> names;
  std::size_t count = 0;
  int skipped = 0;
  for (const auto& [tag, suite] : suites) {
    if (tag != "testsuite") continue;
    skipped += suite.get<int>("<xmlattr>.skipped");
    for (const auto& [inner, item] : suite)
      if (inner == "testcase") {
        ++count;
        names.insert(item.get<std::string>("<xmlattr>.name"));
      }
  }
  EXPECT_EQ(skipped, 1);
  EXPECT_EQ(count, 5u);
  EXPECT_EQ(names.size(), count);
  EXPECT_NE(tree.get<std::string>("testsuites.testsuite.testcase.failure").find("<a> & \"b\" ]]>"), std::string::npos);
  EXPECT_EQ(junit_report(report, {}).find('\x01'), std::string::npos);
}

/// Elements that are right by a regrouping alone, or in a form that the author declared.
TEST(Reports, SayWhatWasAdmittedBeyondTheFormula) {
  Report report;
  const auto add = [&](const char* op, const char* plugin, std::int64_t by_regrouping, std::int64_t by_forms) {
    CaseResult result{.name = std::string(op) + "()", .op = op, .dtype = "fp32"};
    result.plugin = plugin;
    result.checks = {{.id = {.kind = CheckId::Kind::forward, .tensor = "y"}, .compared = 200}};
    result.checks.front().by_regrouping = by_regrouping;
    result.checks.front().by_forms = by_forms;
    report.cases.push_back(std::move(result));
  };
  add("plain", "lib.so", 0, 0);
  add("built_in", "", 0, 50);
  EXPECT_TRUE(admitted_of_ops(report).empty()) << "of a built-in op all usual forms are listed";
  EXPECT_FALSE(contains(junit_report(report, {}), "admitted"));
  EXPECT_FALSE(contains(markdown_report(report, {}), "Admitted"));
  add("mine", "lib.so", 1, 4);
  add("mine", "lib.so", 1, 0);
  const std::string words = "0.5 % by regrouping, 1.0 % by declared forms";
  EXPECT_TRUE(contains(markdown_report(report, {}),
                       "\nAdmitted beyond the formula as written, of the elements: mine: " + words + ".\n"))
      << markdown_report(report, {});
  std::istringstream text(junit_report(report, {}));
  boost::property_tree::ptree tree;
  boost::property_tree::read_xml(text, tree);
  int with = 0;
  for (const auto& [tag, suite] : tree.get_child("testsuites")) {
    if (tag != "testsuite") continue;
    const auto property = suite.get_child_optional("properties.property");
    EXPECT_EQ(property.has_value(), suite.get<std::string>("<xmlattr>.name") == "mine");
    if (!property) continue;
    ++with;
    EXPECT_EQ(property->get<std::string>("<xmlattr>.name"), "admitted");
    EXPECT_EQ(property->get<std::string>("<xmlattr>.value"), words);
  }
  EXPECT_EQ(with, 1);
}

TEST(JunitReport, RollsUpWhereThereAreTooManyChecks) {
  const std::string text = junit_report(hostile_report(7000), {});
  EXPECT_NE(text.find("tests=\"7000\""), std::string::npos);
}

TEST(ExitCodes, TheGraverOneStands) {
  using enum ExitCode;
  EXPECT_EQ(worse(findings, internal), internal);
  EXPECT_EQ(worse(findings, not_written), not_written);
  EXPECT_EQ(worse(environment, findings), findings);
  EXPECT_EQ(worse(environment, incomplete), environment);
  EXPECT_EQ(worse(nothing_ran, incomplete), incomplete);
  EXPECT_EQ(worse(passed, nothing_ran), nothing_ran);
  Report report;
  EXPECT_EQ(exit_code_of(report, 0), nothing_ran);
  report.cases.resize(2);
  report.cases[0].verdict = Verdict::skipped;
  EXPECT_EQ(exit_code_of(report, 2), passed);
  EXPECT_EQ(exit_code_of(report, 3), incomplete);
  report.cases[1].verdict = Verdict::empty;
  EXPECT_EQ(exit_code_of(report, 2), nothing_ran) << "beside a skipped case one without an element shows nothing";
  report.cases[0].verdict = Verdict::empty;
  EXPECT_EQ(exit_code_of(report, 2), passed) << "that is all that was asked for";
  report.cases[0].verdict = report.cases[1].verdict = Verdict::skipped;
  EXPECT_EQ(exit_code_of(report, 2), nothing_ran);
  report.cases[1].verdict = Verdict::structural;
  EXPECT_EQ(exit_code_of(report, 3), findings);
}

TEST(Numbers, ReadAndPrintTheSameEverywhere) {
  EXPECT_EQ(parse_number("0x1.8p-3"), 0.1875);
  EXPECT_EQ(parse_number("-1e-3"), -1e-3);
  EXPECT_TRUE(std::isinf(*parse_number("-inf")));
  for (const char* bad : {"", "-", "0x", "1,5", "1.5x", "--1", "+-1", "1e999", "0xinf"})
    EXPECT_FALSE(parse_number(bad)) << bad;
  EXPECT_EQ(hex_float(-0.0), "-0x0p+0");
  EXPECT_EQ(hex_float(0.1), "0x1.999999999999ap-4");
  EXPECT_EQ(short_decimal(kBf16, 0.10009765625), "0.1");
  EXPECT_EQ(short_decimal(kBf16, -10), "-10");
  EXPECT_EQ(short_decimal(kFp16, 65504), "65504");
  EXPECT_EQ(short_decimal(kFp64, -0.0), "-0");
  EXPECT_EQ(short_decimal(kBf16, 0x1p20), "1.05e+06");
  EXPECT_EQ(short_decimal(kBf16, std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(grouped(61204112), "61,204,112");
  EXPECT_EQ(grouped(-100), "-100");
  EXPECT_EQ(percent(0.41), "41 %");
  EXPECT_EQ(percent(0, "exact"), "exact");
  EXPECT_EQ(ulps_between(kBf16, 1.0, 1.0078125), 1.0);
  EXPECT_TRUE(std::isinf(ulps_between(kFp16, 65504, HUGE_VAL)));
}

TEST(Numbers, ALossIsReadableAtEverySize) {
  EXPECT_EQ(loss_decimal(2.39731), "2.3973");
  EXPECT_EQ(loss_decimal(0), "0.0000");
  EXPECT_EQ(loss_decimal(-0.0012), "-0.0012");
  EXPECT_EQ(loss_decimal(3.2e-7), "3.2e-07");
  EXPECT_EQ(loss_decimal(5.81871186e86), "5.8187e+86");
  EXPECT_EQ(loss_decimal(999999.5), "999999.5000");
  EXPECT_EQ(loss_decimal(-std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(loss_decimal(-std::numeric_limits<double>::infinity()), "-inf");
}

}  // namespace
}  // namespace ampcheck::tools
