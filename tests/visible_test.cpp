// SPDX-License-Identifier: Apache-2.0
// ILL_CONDITIONED: an output that no case can judge convicts, and the finding says where it could be judged, if anywhere.
#include "checks/visible.h"

#include <gtest/gtest.h>

#include "src/tensor.h"

namespace ampcheck::checks {
namespace {

using kernels::KernelCall;

/// y = (x scale + offset) - offset: of x nothing is left unless x scale reaches the spacing of the offset.
OpDef drowned(const char* name, double scale, double offset) {
  OpDef op;
  op.signature = {.name = name, .inputs = {{.name = "x", .dims = "N D"}}, .outputs = {{.name = "y"}}, .dims = {{"N", {5, 16, 2}}, {"D", {7, 33, 129}}}};
  op.forms = {{"(x scale + offset) - offset", [=](reference::FormulaCall& c) { c.output("y", (c["x"] * scale + offset) - offset); }}};
  op.kernel.forward = [=](const KernelCall& call) {
    std::vector<double> values = to_doubles(call.at("x"));
    for (double& v : values) v = static_cast<float>(static_cast<float>(v * scale) + static_cast<float>(offset)) - static_cast<float>(offset);
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
  for (std::int64_t seed = 1; seed <= seeds; ++seed) cases.push_back({&op, parse_call(op.signature.name + "(x=fp32[5,7],seed=" + std::to_string(seed) + ")", op.signature)});
  const Report report = run_cases(cases, {});
  for (const CaseResult& result : report.cases)
    for (const CheckResult& check : result.checks)
      if (convicts(check.verdict)) {
        EXPECT_EQ(check.verdict, Verdict::ill_conditioned);
        EXPECT_EQ(check.code, "AC202");
        EXPECT_EQ(subject_of(check), "forward y") << "dx is seen";
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
    if (check.name == "forward y") {
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
    if (check.code == "AC202") {
      ++told;
      EXPECT_FALSE(convicts(check.verdict));
      EXPECT_NE(check.note.find("would be judged at 'drowned("), std::string::npos) << check.note;
    }
  EXPECT_GT(told, 0);
}

TEST(Visible, WhereNothingShowsItSaysSo) {
  EXPECT_TRUE(cause_of(drowned("sunk", 0x1p-60, 0x1p126)).starts_with("blind in every case, and in ")) << cause_of(drowned("sunk", 0x1p-60, 0x1p126));
}

TEST(Visible, WhatIsSeenSomewhereConvictsNobody) {
  EXPECT_EQ(cause_of(drowned("visible", 1, 0x1p-10)), "");
  EXPECT_EQ(cause_of(drowned("drowned", 1, 0x1p40), 7), "") << "a handful of cases may all be blind";
}

}  // namespace
}  // namespace ampcheck::checks
