// SPDX-License-Identifier: Apache-2.0
// ILL_CONDITIONED: an output that no case can judge convicts, and the finding says where it could be judged, if
// anywhere.
#include "checks/reach/visible.h"

#include <gtest/gtest.h>

#include "checks/data/regimes.h"
#include "checks/run/runner.h"
#include "src/tensor.h"

namespace ampcheck::checks {
namespace {

using kernels::KernelCall;

/// y = (x scale + offset) - offset: of x nothing is left unless x scale reaches the spacing of the offset.
OpDef drowned(const char* name, double scale, double offset) {
  OpDef op;
  op.signature = {.name = name,
                  .inputs = {{.name = "x", .dims = "N D"}},
                  .outputs = {{.name = "y"}},
                  .dims = {{"N", {5, 16, 2}}, {"D", {7, 33, 129}}}};
  op.forms = {{"(x scale + offset) - offset",
               [=](reference::FormulaCall& c) { c.output("y", (c["x"] * scale + offset) - offset); }}};
  op.kernel.forward = [=](const KernelCall& call) {
    std::vector<double> values = to_doubles(call.at("x"));
    for (double& v : values)
      v = static_cast<float>(static_cast<float>(v * scale) + static_cast<float>(offset)) - static_cast<float>(offset);
    from_doubles(values, call.at("y"));
  };
  op.kernel.backward = [=](const KernelCall& call) {
    std::vector<double> values = to_doubles(call.at("dy"));
    for (double& v : values) v *= scale;
    from_doubles(values, call.at("dx"));
  };
  return op;
}

/// Runs an op on ordinary data; the cause of its finding, or nothing.
std::string cause_of(const OpDef& op, std::int64_t seeds = 8) {
  std::vector<Case> cases;
  for (std::int64_t seed = 1; seed <= seeds; ++seed)
    cases.push_back(
        {&op, parse_call(op.signature.name + "(x=fp32[5,7],seed=" + std::to_string(seed) + ")", op.signature)});
  const Report report = run_cases(cases, {});
  for (const CaseResult& result : report.cases)
    for (const CheckResult& check : result.checks)
      if (convicts(check.verdict)) {
        EXPECT_EQ(check.verdict, Verdict::ill_conditioned);
        EXPECT_EQ(check.code, Code::ac202);
        EXPECT_EQ(ampcheck::name(subject_of(check)), "forward y") << "dx is seen";
        return check.cause;
      }
  return "";
}

TEST(Visible, ABlindOutputConvictsAndSaysWhereItShows) {
  const OpDef op = drowned("drowned", 1, 0x1p40);
  const std::string cause = cause_of(op);
  const std::size_t at = cause.find("would be judged at 'drowned(");
  ASSERT_NE(at, std::string::npos) << cause;
  // The case that it names is one where the kernel is judged, and passes.
  const std::string name = cause.substr(cause.find('\'') + 1, cause.rfind('\'') - cause.find('\'') - 1);
  const CaseResult there = run_case(op, parse_call(name, op.signature), {});
  EXPECT_FALSE(convicts(there.verdict)) << there.code;
  for (const CheckResult& check : there.checks)
    if (check.name() == "forward y") {
      EXPECT_LT(check.blind, check.compared);
    }
}

TEST(Visible, ABlindOutputOfOneCaseSaysWhereItShows) {
  const OpDef op = drowned("drowned", 1, 0x1p40);
  const OpCall call = parse_call("drowned(x=fp32[5,7],seed=1)", op.signature);
  CaseResult result = run_case(op, call, {});
  say_where_visible(op, call, result);
  int told = 0;
  for (const CheckResult& check : result.checks)
    if (check.code == Code::ac202) {
      ++told;
      EXPECT_FALSE(convicts(check.verdict));
      EXPECT_NE(check.note.find("would be judged at 'drowned("), std::string::npos) << check.note;
    }
  EXPECT_GT(told, 0);
}

TEST(Visible, WhereNothingShowsItSaysSo) {
  EXPECT_TRUE(cause_of(drowned("sunk", 0x1p-60, 0x1p126)).starts_with("blind in every case, and in "))
      << cause_of(drowned("sunk", 0x1p-60, 0x1p126));
}

/// y = the sum of each row. Rows as long as `wrong_from` are added up as if they had half the length.
OpDef row_sums(const char* name, std::int64_t wrong_from) {
  OpDef op;
  op.signature = {.name = name,
                  .inputs = {{.name = "x", .dims = "N D"}},
                  .outputs = {{.name = "y"}},
                  .dims = {{"N", {5, 16, 2}}, {"D", {7, 33, 129}}}};
  op.forms = {{"sum", [](reference::FormulaCall& c) { c.output("y", sum(c["x"], -1)); }}};
  op.kernel.forward = [=](const KernelCall& call) {
    const std::vector<double> x = to_doubles(call.at("x"));
    const std::int64_t rows = call.at("x").shape[0], columns = call.at("x").shape[1],
                       taken = columns >= wrong_from ? columns / 2 : columns;
    std::vector<double> y(static_cast<std::size_t>(rows));
    for (std::int64_t i = 0; i < rows; ++i) {
      float total = 0;
      for (std::int64_t j = 0; j < taken; ++j)
        total += static_cast<float>(x[static_cast<std::size_t>(i * columns + j)]);
      y[static_cast<std::size_t>(i)] = total;
    }
    from_doubles(y, call.at("y"));
  };
  op.kernel.backward = [](const KernelCall& call) {
    const std::vector<double> dy = to_doubles(call.at("dy"));
    std::vector<double> dx(static_cast<std::size_t>(call.at("dx").shape.count()));
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = dy[i / static_cast<std::size_t>(call.at("dx").shape[1])];
    from_doubles(dx, call.at("dx"));
  };
  return op;
}

Report check_all_of(const OpDef& op, const std::vector<OpCall>& calls) {
  std::vector<Case> cases;
  for (const OpCall& call : calls) cases.push_back({&op, call});
  RunOptions options;
  options.brief = true;
  return run_cases(cases, options);
}

std::string notes_of(const Report& report) {
  std::string out;
  for (const std::string& note : report.notes) out += note + "\n";
  return out;
}

std::vector<std::string> convicted(const Report& report) {
  std::vector<std::string> out;
  for (const CaseResult& result : report.cases)
    if (convicts(result.verdict)) out.push_back(result.name);
  return out;
}

TEST(Decide, ABlindCaseIsDecidedAtDataThatShowsItAndAtSmallerExtents) {
  const OpDef right = row_sums("row_sums", 1 << 30), wrong = row_sums("halved_sums", 1 << 16);
  const std::string blind = "(x=bf16[2,65537],seed=1)";
  const Report clean = check_all_of(right, {parse_call("row_sums" + blind, right.signature)});
  EXPECT_TRUE(convicted(clean).empty());
  EXPECT_GE(clean.cases.size(), 3u) << "one of as many elements, one of fewer";
  EXPECT_NE(notes_of(clean).find("row_sums forward y: every interval would accept both 0 and twice the value, so "
                                 "it was not judged (AC202); decided at 'row_sums(x=bf16[2,65537],range="),
            std::string::npos)
      << notes_of(clean);
  EXPECT_NE(notes_of(clean).find("right there, and decided at 'row_sums(x=bf16["), std::string::npos)
      << notes_of(clean);
  const Report found = check_all_of(wrong, {parse_call("halved_sums" + blind, wrong.signature)});
  ASSERT_EQ(convicted(found).size(), 1u) << "the blind case itself cannot tell, nor can a smaller one";
  EXPECT_TRUE(convicted(found).front().starts_with("halved_sums(x=bf16[2,65537],range=")) << convicted(found).front();
  EXPECT_NE(notes_of(found).find("AC101 there"), std::string::npos) << notes_of(found);
}

TEST(Decide, TheLargestCasesOfAnOpAreDecidedToo) {
  const OpDef right = row_sums("row_sums", 1 << 30), wrong = row_sums("halved_sums", 1 << 16);
  EXPECT_TRUE(convicted(check_all_of(right, cases_of(right.signature, Dtype::fp32, CaseSet::standard, 1))).empty());
  for (const OpCall& call : cases_of(wrong.signature, Dtype::fp32, CaseSet::standard, 1))
    EXPECT_FALSE(convicts(run_case(wrong, call, {}).verdict)) << call.str(wrong.signature);
  const Report found = check_all_of(wrong, cases_of(wrong.signature, Dtype::fp32, CaseSet::standard, 1));
  EXPECT_EQ(convicted(found).size(), 1u);
  EXPECT_NE(notes_of(found).find("no case as large sees it (AC202); decided at 'halved_sums("), std::string::npos)
      << notes_of(found);
}

TEST(Decide, AnOutputThatEveryCaseLeavesBlindIsJudgedWhereItShows) {
  const OpDef op = drowned("drowned", 1, 0x1p40);
  std::vector<OpCall> calls;
  for (int seed = 1; seed <= 8; ++seed)
    calls.push_back(parse_call("drowned(x=fp32[5,7],seed=" + std::to_string(seed) + ")", op.signature));
  const Report report = check_all_of(op, calls);
  EXPECT_TRUE(convicted(report).empty());
  EXPECT_NE(notes_of(report).find("decided at 'drowned("), std::string::npos) << notes_of(report);
  const OpDef sunk = drowned("sunk", 0x1p-60, 0x1p126);
  for (OpCall& call : calls) call.op = "sunk";
  EXPECT_EQ(convicted(check_all_of(sunk, calls)).size(), 8u) << "it shows nowhere";
}

TEST(Visible, WhatIsSeenSomewhereConvictsNobody) {
  EXPECT_EQ(cause_of(drowned("visible", 1, 0x1p-10)), "");
  EXPECT_EQ(cause_of(drowned("drowned", 1, 0x1p40), 7), "") << "a handful of cases may all be blind";
}

}  // namespace
}  // namespace ampcheck::checks
