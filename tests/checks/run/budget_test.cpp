// SPDX-License-Identifier: Apache-2.0
// Memory and time of a run: what is too large or too late is said to be so, and nothing else is left out.
#include "checks/run/budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "checks/define/op_def.h"
#include "checks/run/runner.h"
#include "src/parallel.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::contains;
using testing::ProgramResult;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

std::int64_t need(const std::string& name, std::int64_t enough = 64 * kGiB) {
  const OpDef& op = *find_op(op_of(name));
  return memory_need(op, parse_call(name, op.signature), enough);
}

TEST(Memory, NeedFollowsTheTensors) {
  EXPECT_EQ(need("softmax(x=bf16[64,1024],seed=1)"), 0) << "small cases cost nothing to reckon";
  // x, y and their two gradients, 2 bytes each, rows independent; 40 times for a product, with both operands.
  EXPECT_EQ(need("softmax(x=bf16[4096,1024],seed=1)"), 12 * 4 * 2 * 4096 * 1024 + kGiB / 16);
  EXPECT_EQ(need("linear(x=fp32[512,1024],weight=fp32[2048,1024],bias=none,seed=1)"),
            40 * 2 * 4 * (512 * 1024 + 2048 * 1024 + 512 * 2048) + kGiB / 16);
  EXPECT_EQ(need("softmax(x=bf16[1000000000,1000000000],seed=1)"), std::int64_t{1} << 62) << "no overflow";
}

std::vector<Case> cases_named(const std::vector<std::string>& names) {
  std::vector<Case> out;
  for (const std::string& name : names)
    out.push_back({find_op(op_of(name)), parse_call(name, find_op(op_of(name))->signature)});
  return out;
}

/// Runs cases with a stand-in for the check, and sees how many are under way at a time.
Report run_counting(const std::vector<Case>& cases, RunOptions options, int& most) {
  std::atomic<int> now = 0, top = 0;
  options.run = [&](const OpDef& op, const OpCall& call, const How&) {
    const int here = ++now;
    for (int seen = top; here > seen && !top.compare_exchange_weak(seen, here);) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    --now;
    CaseResult out;
    out.name = call.str(op.signature);
    out.op = op.signature.name;
    return out;
  };
  Report report = run_cases(cases, options);
  most = top;
  return report;
}

TEST(Memory, CasesThatDoNotFitTogetherRunAfterEachOther) {
  const std::string large = "relu(x=fp32[1024,1024],seed=";
  const std::vector<Case> cases = cases_named({large + "1)", large + "2)", large + "3)", large + "4)"});
  const std::int64_t one = need(large + "1)");
  int most = 0;
  RunOptions options;
  options.jobs = 4;
  options.memory = one + one / 2;
  EXPECT_EQ(run_counting(cases, options, most).refused, 0);
  EXPECT_EQ(most, 1);
  options.memory = 4 * one;
  EXPECT_EQ(run_counting(cases, options, most).refused, 0);
  EXPECT_GT(most, 1);
  options.memory = one / 4;  // too little for sampled rows too
  const Report none = run_counting(cases, options, most);
  EXPECT_EQ(none.refused, 4);
  for (const CaseResult& result : none.cases) {
    EXPECT_EQ(result.verdict, Verdict::skipped);
    EXPECT_TRUE(contains(result.note, "--memory")) << result.note;
  }
  set_threads(0);
}

TEST(TimeBudget, TakesTurnsBetweenOps) {
  const std::vector<Case> cases = cases_named(
      {"relu(x=fp32[5,7],seed=1)", "relu(x=fp32[5,7],seed=2)", "relu(x=bf16[5,7],seed=1)", "gelu(x=fp32[5,7],seed=1)"});
  EXPECT_EQ(fair_order(cases), (std::vector<std::size_t>{0, 2, 3, 1}));
}

TEST(TimeBudget, ThatEndsIsIncomplete) {
  const ProgramResult run = testing::ampcheck("check softmax --time-budget 1 --seeds 60 --real off");
  EXPECT_EQ(run.exit_code, 5) << run.out;
  EXPECT_TRUE(contains(run.out, "cases skipped: not started within 1 s (--time-budget)")) << run.out;
  const ProgramResult enough =
      testing::ampcheck("check relu --time-budget 1000 --regimes quick --shapes first --real off");
  EXPECT_EQ(enough.exit_code, 0) << enough.out;
  EXPECT_FALSE(contains(enough.out, "skipped"));
}

}  // namespace
}  // namespace ampcheck::checks
