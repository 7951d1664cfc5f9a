// SPDX-License-Identifier: Apache-2.0
// Cases that are too large to be judged whole: sampled rows say what the whole judge would, and what is left out is
// counted.
#include "checks/run/sampled.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checks/define/op_def.h"
#include "checks/run/budget.h"
#include "src/tensor.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using nlohmann::json;
using testing::contains;
using testing::ProgramResult;

CaseResult sampled(const OpDef& op, const std::string& name) {
  return run_sampled(op, parse_call(name, op.signature), {});
}
const OpDef& op_named(const std::string& name) { return *find_op(name); }

const CheckResult& check_named(const CaseResult& result, const std::string& name) {
  for (const CheckResult& check : result.checks)
    if (check.name() == name) return check;
  throw std::runtime_error("no check " + name);
}

/// An op whose kernel is the built-in one with a fault behind it.
OpDef spoiled(const std::string& name, std::function<void(const kernels::KernelCall&)> forward,
              std::function<void(const kernels::KernelCall&)> backward = nullptr) {
  OpDef op = op_named(name);
  const auto then = [](kernels::KernelFn first, std::function<void(const kernels::KernelCall&)> fault) {
    return [=](const kernels::KernelCall& call) {
      first(call);
      fault(call);
    };
  };
  if (forward) op.kernel.forward = then(op.kernel.forward, forward);
  if (backward) op.kernel.backward = then(op.kernel.backward, backward);
  return op;
}

constexpr const char* kSoftmax = "softmax(x=bf16[20000,33],seed=1)";
constexpr const char* kNorm = "rms_norm(x=bf16[20000,33],weight=bf16[33],seed=1)";

TEST(Sampled, RightKernelsPassAndTheRestIsCounted) {
  const CaseResult softmax = sampled(op_named("softmax"), kSoftmax);
  EXPECT_EQ(softmax.verdict, Verdict::rounding) << softmax.note;
  const CheckResult& y = check_named(softmax, "forward y");
  EXPECT_EQ(y.compared, 512 * 33);
  EXPECT_EQ(y.unjudged, (20000 - 512) * 33);
  EXPECT_EQ(check_named(softmax, "backward dx probe 0").compared, 512 * 33);
  EXPECT_TRUE(contains(softmax.note, "512 of 20000 rows")) << softmax.note;
}

TEST(Sampled, WhatSumsOverRowsIsNotJudged) {
  const CaseResult norm = sampled(op_named("rms_norm"), kNorm);
  EXPECT_EQ(norm.verdict, Verdict::rounding) << norm.note;
  const CheckResult& dweight = check_named(norm, "backward dweight probe 0");
  EXPECT_EQ(dweight.compared, 0);
  EXPECT_EQ(dweight.unjudged, 33);
  EXPECT_EQ(dweight.verdict, Verdict::skipped) << "not judged is not right";
  EXPECT_TRUE(contains(dweight.note, "it sums over them")) << dweight.note;
  EXPECT_GT(check_named(norm, "backward dx probe 0").compared, 0);
}

TEST(Sampled, AFaultInEveryRowIsFoundAtItsOwnIndex) {
  const OpDef op = spoiled("softmax", [](const kernels::KernelCall& call) {
    const TensorView& y = call.at("y");
    std::vector<double> values = to_doubles(y);
    for (std::size_t i = 32; i < values.size(); i += 33) values[i] = 0;  // the last column is dropped
    from_doubles(values, y);
  });
  const CaseResult result = sampled(op, kSoftmax);
  EXPECT_EQ(result.verdict, Verdict::bug);
  const CheckResult& check = check_named(result, "forward y");
  EXPECT_GT(check.failed, 400);
  ASSERT_FALSE(check.worst.empty());
  std::int64_t largest = 0;
  for (const Element& element : check.worst) {
    EXPECT_EQ(element.index.at(1), 32);
    largest = std::max(largest, element.index.at(0));
  }
  EXPECT_LT(largest, 20000);
}

TEST(Sampled, TheLastRowIsAlwaysJudged) {
  const OpDef op = spoiled("softmax", nullptr, [](const kernels::KernelCall& call) {
    const TensorView& dx = call.at("dx");
    std::vector<double> values = to_doubles(dx);
    for (std::size_t i = values.size() - 33; i < values.size(); ++i) values[i] = 1;
    from_doubles(values, dx);
  });
  const CaseResult result = sampled(op, kSoftmax);
  EXPECT_EQ(result.verdict, Verdict::bug);
  EXPECT_EQ(check_named(result, "backward dx probe 0").worst.at(0).index.at(0), 19999);
}

// The rows of attention are its heads: two axes in front.
TEST(Sampled, HeadsAreJudgedAsRowsAre) {
  const char* name = "attention(q=bf16[3,8,12,8],seed=1)";
  const CaseResult right = sampled(op_named("attention"), name);
  EXPECT_EQ(right.verdict, Verdict::rounding) << right.code;
  EXPECT_TRUE(contains(right.note, "12 of 24 rows along B H")) << right.note;
  for (const char* check : {"forward o", "backward dq probe 0", "backward dv probe 0"}) {
    EXPECT_EQ(check_named(right, check).compared, 12 * 12 * 8) << check;
    EXPECT_EQ(check_named(right, check).unjudged, 12 * 12 * 8) << check;
  }
  const OpDef op = spoiled("attention", [](const kernels::KernelCall& call) {
    const TensorView& o = call.at("o");
    std::vector<double> values = to_doubles(o);
    for (std::size_t i = values.size() - 5; i < values.size(); ++i) values[i] = 3;  // the end of the last head
    from_doubles(values, o);
  });
  const CheckResult wrong = check_named(sampled(op, name), "forward o");
  EXPECT_EQ(wrong.failed, 5);
  ASSERT_FALSE(wrong.worst.empty());
  EXPECT_EQ(std::vector<std::int64_t>(wrong.worst[0].index.begin(), wrong.worst[0].index.begin() + 3),
            (std::vector<std::int64_t>{2, 7, 11}));
}

TEST(Sampled, AnUnwrittenElementIsFoundInAnyRow) {
  OpDef op = op_named("softmax");
  op.kernel.forward = [inner = op.kernel.forward](const kernels::KernelCall& call) {
    const TensorView& y = call.at("y");
    const std::uint16_t before = y.as<std::uint16_t>()[12345];
    inner(call);
    y.as<std::uint16_t>()[12345] = before;
  };
  const CaseResult result = sampled(op, kSoftmax);
  EXPECT_EQ(result.verdict, Verdict::structural);
  EXPECT_EQ(result.code, Code::ac401);
  EXPECT_TRUE(contains(check_named(result, "written y").cause, "first element 12345"))
      << check_named(result, "written y").cause;
}

/// y = x / N: every row depends on the number of rows, which no sample has.
TEST(Sampled, WhatDependsOnTheNumberOfRowsIsNotJudged) {
  OpDef op = op_named("softmax");
  op.forms = {{"counted", [](reference::FormulaCall& call) {
                 const reference::Expr x = call["x"];
                 call.output("y", x / static_cast<double>(x.shape()[0]));
               }}};
  op.tried_first = 0;
  const CaseResult result = sampled(op, kSoftmax);
  EXPECT_EQ(result.verdict, Verdict::skipped) << "nothing was judged: that is no pass";
  EXPECT_TRUE(contains(check_named(result, "forward y").note, "on the other rows or on their number"))
      << check_named(result, "forward y").note;
}

TEST(Sampled, SaysWhatCannotBe) {
  const auto why = [](const std::string& name) {
    return why_not_sampled(op_named(std::string(op_of(name))),
                           parse_call(name, op_named(std::string(op_of(name))).signature));
  };
  EXPECT_EQ(why(kSoftmax), "");
  EXPECT_EQ(why("softmax(x=bf16[5,33],seed=1)"), "it has few rows");
  EXPECT_EQ(why("softmax(x=bf16[2000,33],layout=padded,seed=1)"), "its layout is not dense");
  EXPECT_EQ(why("sum(x=bf16[2000,33],seed=1)"), "");
  EXPECT_NE(why("sum(x=bf16[2000,33],axis=0,seed=1)"), "") << "along that axis it has no rows";
  EXPECT_EQ(why("batch_norm(x=bf16[2000,3,5],seed=1)"), "its contract names no rows");
}

TEST(Sampled, TheReportShowsTheShareThatNobodyJudged) {
  const std::string name = "'softmax(x=bf16[20000,33],seed=1)'";
  const ProgramResult run = testing::ampcheck("check " + name + " --memory 110MB");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_TRUE(contains(run.out, "Sampled: 1 case was too large to judge whole; 97.")) << run.out;
  EXPECT_TRUE(contains(run.out, "ROUNDING (rows sampled)")) << run.out;
  testing::TemporaryFolder folder;
  const ProgramResult machine =
      testing::ampcheck("check " + name + " --memory 110MB --json -o lines:" + folder.path() + "/lines");
  const json out = json::parse(machine.out);
  EXPECT_EQ(out.at("summary").at("sampled"), 1);
  EXPECT_GT(out.at("summary").at("unjudged"), 3'000'000);
  EXPECT_LT(out.at("summary").at("elements"), 200'000);
  const std::string lines = testing::read_text(folder.path() + "/lines");
  EXPECT_TRUE(contains(lines, "were judged; 97.")) << lines;
  const ProgramResult small = testing::ampcheck("check " + name + " --memory 70MB");
  EXPECT_EQ(small.exit_code, 4) << small.out << "beyond that it is skipped: nothing ran";
}

TEST(Sampled, AWorkerDoesAsThisProcess) {
  const auto cases = [](const std::string& isolation) {
    const ProgramResult run = testing::ampcheck("check " + tests::in_build("/custom_ops/rms_norm_launchers.toml") +
                                                " 'launched_rms_norm(x=bf16[20000,33],seed=1)' "
                                                "--memory "
                                                "110MB --json --isolation " +
                                                isolation);
    json out = json::parse(run.out).at("cases");
    for (json& c : out) c.erase("seconds");
    return out;
  };
  const json here = cases("none");
  ASSERT_EQ(here.size(), 1u);
  EXPECT_EQ(here[0].at("verdict"), "ROUNDING") << here;
  EXPECT_GT(here[0].at("unjudged"), 1'000'000);
  EXPECT_EQ(here, cases("worker"));
}

}  // namespace
}  // namespace ampcheck::checks
