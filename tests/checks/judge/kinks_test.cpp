// SPDX-License-Identifier: Apache-2.0
// Gradients at a kink: another subgradient than the declared one is reported and does not fail, what is none is
// NON_SMOOTH, and a wrong number elsewhere stays a bug.
#include <gtest/gtest.h>

#include <map>

#include "checks/data/regimes.h"
#include "checks/define/op_list.h"
#include "checks/judge/kink_limits.h"
#include "checks/run/runner.h"
#include "tests/support/sanitized.h"

namespace ampcheck::checks {
namespace {

/// Cases by code of the verdict, "" for those that pass; `reported`: those with a tensor of code AC205.
std::map<std::string, int> codes(const std::string& name, int& reported) {
  const OpDef* op = find_op(name);
  if (op == nullptr) throw Error("[test] no op " + name);
  std::map<std::string, int> out;
  reported = 0;
  for (const Dtype storage : {Dtype::fp32, Dtype::bf16})
    for (const OpCall& call : cases_of(op->signature, storage, CaseSet::standard, 1)) {
      const CaseResult result = run_case(*op, call, {});
      ++out[convicts(result.verdict) ? ampcheck::name(result.code) : ""];
      reported += std::any_of(result.checks.begin(), result.checks.end(),
                              [](const CheckResult& c) { return c.code == Code::ac205; });
    }
  return out;
}

TEST(Kinks, AnotherSubgradientIsReportedAndDoesNotFail) {
  for (const char* name : testing::all_or_first({"relu.one_at_zero", "relu.half_at_zero", "max_pool2d.ties_to_last"})) {
    int reported = 0;
    const auto seen = codes(name, reported);
    EXPECT_EQ(seen.size(), 1u) << name << " " << seen.rbegin()->first;
    EXPECT_TRUE(seen.contains("")) << name;
    EXPECT_GT(reported, 5) << name;
  }
}

// Of three that tie, a nudge of the first shows the second alone: the gradient is the third's, and the three together
// have what every choice gives, each rounded by itself.
TEST(Kinks, TheLastOfThreeThatTieHasWhatTheyShare) {
  const OpDef& right = *find_op("max_pool2d.ties_to_last");
  for (const char* name : {"max_pool2d.ties_to_last(x=fp16[2,3,5,7],kernel=3,range=integers9,seed=1)",
                           "max_pool2d.ties_to_last(x=fp16[2,3,5,7],kernel=3,range=integers9,seed=11)",
                           "max_pool2d.ties_to_last(x=bf16[2,3,5,7],kernel=3,range=integers9,seed=1)"})
    EXPECT_FALSE(convicts(run_case(right, parse_call(name, right.signature), {}).verdict)) << name;
  const OpDef& wrong = *find_op("max_pool2d.ties_share_all");
  for (const char* name : {"max_pool2d.ties_share_all(x=fp16[2,3,5,7],kernel=3,range=integers9,seed=1)",
                           "max_pool2d.ties_share_all(x=bf16[2,3,5,7],kernel=3,range=integers9,seed=1)"})
    EXPECT_EQ(run_case(wrong, parse_call(name, wrong.signature), {}).code, Code::ac204) << name;
}

// What is said without a nudge must never be said of a kink: of relu at zero, or of two that tie in a maximum.
TEST(Kinks, WhereNothingTiesIsToldWithoutNudges) {
  const struct {
    const char* call;
    std::vector<double> x;
    std::vector<std::int64_t> kinks, smooth;
  } kAll[] = {
      {"relu(x=fp32[1,4],cotangent=ones,seed=1)", {-1, 0, 0.5, 2}, {1}, {0, 2, 3}},
      {"relu(x=fp32[1,4],cotangent=ones,seed=1)", {-1, 0x1p-149, 0.5, 2}, {}, {0, 1, 2, 3}},
      {"max_pool2d(x=fp32[1,1,2,4],cotangent=ones,seed=1)", {3, 1, 5, 7, 3, 2, 6, 0.5}, {0, 4}, {1, 2, 3, 5, 6, 7}}};
  for (const auto& [name, x, kinks, smooth] : kAll) {
    const OpDef& op = *find_op(std::string(name).substr(0, std::string(name).find('(')));
    const OpCall call = parse_call(name, op.signature);
    const RunOptions options;
    CaseRun run(op, call, options, {{"x", x}});
    run.cotangents(0);
    const Written& dx = run.gradients.front();
    const std::size_t form = run.reference.forms().front();
    const Interval declared = run.reference.interval(form, Pass::backward, dx.name, dx.dtype);
    const KinkLimits limits(run, dx, Pass::backward, declared, 0x1p-40);
    for (const std::int64_t i : kinks) EXPECT_FALSE(limits.surely_smooth({i})) << name << " " << i;
    for (const std::int64_t i : smooth) EXPECT_TRUE(limits.surely_smooth({i})) << name << " " << i;
    std::vector<reference::Expr> choices;
    const auto& nodes = run.reference.recording(form).graph->nodes();
    for (std::size_t id = 0; id < nodes.size(); ++id)
      if (nodes[id].primitive == reference::Primitive::less ||
          nodes[id].primitive == reference::Primitive::less_equal ||
          nodes[id].primitive == reference::Primitive::first_max)
        choices.push_back(run.reference.recording(form).graph->at(static_cast<int>(id)));
    ASSERT_FALSE(choices.empty()) << name;
    EXPECT_EQ(limits.decided(choices), kinks.empty()) << name;
  }
}

TEST(Kinks, TheDeclaredOneIsNotReported) {
  for (const char* name : testing::all_or_first({"relu", "max_pool2d", "max_pool2d.backwards_scan", "relu.mask"})) {
    int reported = 0;
    const auto seen = codes(name, reported);
    EXPECT_EQ(seen.size(), 1u) << name;
    EXPECT_EQ(reported, 0) << name;
  }
}

TEST(Kinks, WhatIsNoSubgradientIsNonSmooth) {
  for (const char* name : testing::all_or_first({"relu.slope_at_zero", "max_pool2d.ties_share_all"})) {
    int reported = 0;
    const auto seen = codes(name, reported);
    EXPECT_GT(seen.at("AC204"), 10) << name;
    EXPECT_FALSE(seen.contains("AC101")) << name;
    EXPECT_EQ(find_code("AC204")->verdict, Verdict::non_smooth);
    EXPECT_TRUE(convicts(Verdict::non_smooth));
    EXPECT_FALSE(convicts(Verdict::another_subgradient));
  }
}

TEST(Kinks, WhereTheFormulaIsSmoothAWrongNumberIsABug) {
  for (const char* name :
       testing::all_or_first({"relu.leaky", "max_pool2d.overlap_overwrites", "gelu.slope_of_tanh_form"})) {
    int reported = 0;
    const auto seen = codes(name, reported);
    EXPECT_GT(seen.at("AC101"), 5) << name;
    EXPECT_FALSE(seen.contains("AC204")) << name;
  }
}

// Overlapping windows whose cotangents cancel: no nudge of all inputs at random gives every element of theirs its least
// or its most.
TEST(Kinks, WindowsThatPullAgainstEachOtherLeaveRoomForAChoiceInEach) {
  const OpDef& op = *find_op("max_pool2d.ties_to_last");
  for (const char* dtype : {"fp32", "fp16", "bf16"}) {
    const std::string name =
        std::string("max_pool2d.ties_to_last(x=") + dtype + "[2,3,5,7],kernel=3,range=integers9,seed=1005)";
    const CaseResult result = run_case(op, parse_call(name, op.signature), {});
    EXPECT_FALSE(convicts(result.verdict)) << name << " " << result.code;
  }
}

/// Too large for every element to be pushed alone, and no kink anywhere: nothing excuses a wrong slope.
TEST(Kinks, AWrongNumberInALargeTensorIsABug) {
  for (const char* name :
       testing::all_or_first({"relu.leaky(x=bf16[600,600],seed=1)", "relu.leaky(x=fp32[600,600],seed=1)",
                              "relu.leaky(x=bf16[64,129],seed=1)"})) {
    const OpDef& op = *find_op(op_of(name));
    EXPECT_EQ(run_case(op, parse_call(name, op.signature), {}).code, Code::ac101) << name;
  }
}

TEST(Kinks, WordsSayBothOneSidedDerivatives) {
  const OpDef& op = *find_op("relu.slope_at_zero");
  const CaseResult result =
      run_case(op, parse_call("relu.slope_at_zero(x=bf16[5,7],range=zeros,seed=1)", op.signature), {});
  ASSERT_EQ(result.code, Code::ac204);
  const std::string& cause = deciding_check(result)->cause;
  EXPECT_TRUE(cause.starts_with(
      "no subgradient: at x[0,0] the one-sided derivatives are -1.5 and 0, and -3 is not between them (declared: 0)"))
      << cause;
}

}  // namespace
}  // namespace ampcheck::checks
