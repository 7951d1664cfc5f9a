// SPDX-License-Identifier: Apache-2.0
// The window of loss scales is the one that follows from the op's factors, and the kernel loses numbers exactly outside
// of it.
#include "checks/judge/loss_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "checks/run/runner.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using ampcheck::testing::contains;

/// y = x a b, of which the formula takes the factors one after the other; dx = dy b a.
OpDef scaled(double a, double b) {
  OpDef op;
  op.signature = {.name = "scaled",
                  .inputs = {{.name = "x", .dims = "N D"}},
                  .outputs = {{.name = "y"}},
                  .dims = {{"N", {2, 3, 4}}, {"D", {3, 5, 7}}}};
  op.forms = {{"scaled", [=](reference::FormulaCall& c) { c.output("y", c["x"] * a * b); }}};
  const auto times = [=](const char* from, const char* to) {
    return [=](const kernels::KernelCall& call) {
      std::vector<double> values = to_doubles(call.at(from));
      for (double& v : values) v = static_cast<double>(static_cast<float>(static_cast<float>(v * b) * a));
      from_doubles(values, call.at(to));
    };
  };
  op.kernel.forward = times("x", "y");
  op.kernel.backward = times("dy", "dx");
  return op;
}

LossScaleWindow window_of(const OpDef& op, const std::string& name) {
  const OpCall call = parse_call(name, op.signature);
  const RunOptions options;
  CaseRun run(op, call, options);
  return loss_scale_window(run);
}

struct Expected {
  double a, b;
  const char* dtype;
  int overflow;
  const char* first;
  int flush;
  const char* last;
};

// Cotangents are all one. fp16: infinite from 2^16 on, zero from 2^-25 on; bf16: 2^128 and 2^-134; fp32 intermediates:
// 2^128 and 2^-150.
TEST(LossScale, WindowIsKnownInClosedForm) {
  for (const Expected& e : std::vector<Expected>{{1, 1, "fp16", 16, "dy", -25, "dy"},
                                                 {1, 1024, "fp16", 6, "dx", -25, "dy"},
                                                 {1, 1 / 1024.0, "fp16", 16, "dy", -15, "dx"},
                                                 {1, 1, "bf16", 128, "dy", -134, "dy"},
                                                 {1, 0x1p20, "bf16", 108, "dx", -134, "dy"},
                                                 {0x1p40, 0x1p-40, "bf16", 128, "dy", -110, "mul of the backward"},
                                                 {0x1p-40, 0x1p40, "bf16", 88, "mul of the backward", -134, "dy"}}) {
    const LossScaleWindow window =
        window_of(scaled(e.a, e.b), std::string("scaled(x=") + e.dtype + "[2,3],cotangent=ones,seed=1)");
    ASSERT_TRUE(window.overflow && window.flush) << e.dtype;
    EXPECT_EQ(window.overflow->exponent, e.overflow) << e.dtype << " " << e.a << " " << e.b;
    EXPECT_EQ(window.overflow->tensor, e.first) << e.dtype << " " << e.a << " " << e.b;
    EXPECT_EQ(window.flush->exponent, e.flush) << e.dtype << " " << e.a << " " << e.b;
    EXPECT_EQ(window.flush->tensor, e.last) << e.dtype << " " << e.a << " " << e.b;
  }
}

TEST(LossScale, FlushingTypesEndAtTheirSmallestNormalNumber) {
  OpDef op = scaled(1, 1);
  op.signature.precision.flushes_subnormals = true;
  EXPECT_EQ(window_of(op, "scaled(x=fp16[2,3],cotangent=ones,seed=1)").flush->exponent, -15);
}

TEST(LossScale, WordsNameBothEnds) {
  EXPECT_EQ(window_of(scaled(1, 1024), "scaled(x=fp16[2,3],cotangent=ones,seed=1)").words(),
            "works at loss scales 2^-24 to 2^5: at 2^6 dx[0,0] becomes infinite, at 2^-25 dy[0,0] becomes 0");
}

/// The kernel itself, at every scale: nothing is lost inside the window, and what is named is lost at its ends.
TEST(LossScale, KernelsLoseNumbersOutsideAlone) {
  for (const char* name :
       {"mul(x=fp16[5,7],cotangent=powers,seed=1)", "gelu(x=fp16[5,7],cotangent=powers,seed=3)",
        "linear(x=fp16[5,7],weight=fp16[3,7],cotangent=powers,seed=1)", "mean(x=fp16[5,64],cotangent=powers,seed=2)"}) {
    const OpDef& op = *find_op(op_of(name));
    const OpCall call = parse_call(name, op.signature);
    const RunOptions options;
    CaseRun run(op, call, options);
    const LossScaleWindow window = loss_scale_window(run);
    const NamedValues unscaled = run.cotangents(0);
    const LaunchResult forward = run.run_forward(run.forward_tensors(run.reference.inputs(), 0));
    /// Of dy and the gradients: numbers that are infinite, and zero, at this scale.
    const auto lost = [&](int exponent) {
      NamedValues cotangents = unscaled;
      for (auto& [key, values] : cotangents)
        for (double& v : values) v = std::ldexp(v, exponent);
      const LaunchTensors tensors = run.backward_tensors(run.reference.inputs(), forward, cotangents, 0);
      std::pair<int, int> out{0, 0};
      const auto count = [&](const TensorView& view) {
        for (const double v : to_doubles(view)) {
          out.first += std::isinf(v);
          out.second += v == 0;
        }
      };
      for (const auto& [key, values] : cotangents) count(tensors.read.at(key).view());
      const LaunchResult backward = run.run_backward(tensors);
      for (const auto& [key, tensor] : backward.written) count(tensor.view());
      return out;
    };
    const std::pair<int, int> usual = lost(0);
    ASSERT_EQ(usual.first, 0) << name;
    EXPECT_EQ(lost(window.overflow->exponent - 1).first, 0) << name;
    EXPECT_GT(lost(window.overflow->exponent).first, 0) << name;
    EXPECT_EQ(lost(window.flush->exponent + 1).second, usual.second) << name;
    EXPECT_GT(lost(window.flush->exponent).second, usual.second) << name;
  }
}

TEST(LossScale, StandsInReplayAndInRangeFindings) {
  const auto replay = ampcheck::testing::ampcheck("replay 'mul(x=fp16[5,7],cotangent=ones,seed=1)'");
  EXPECT_TRUE(contains(replay.out, "works at loss scales 2^") && contains(replay.out, "becomes infinite, at 2^"))
      << replay.out;
  const OpDef& mul = *find_op("mul");
  const std::string name = "mul(x=bf16[5,67],range=near_max,cotangent=near_max,seed=1)";
  const CaseResult result = run_case(mul, parse_call(name, mul.signature), {});
  EXPECT_EQ(result.code, Code::ac201);
  EXPECT_TRUE(std::any_of(result.checks.begin(), result.checks.end(), [](const CheckResult& c) {
    return c.code == Code::ac201 && c.name().starts_with("backward dx") && contains(c.note, "loss scale") &&
           contains(c.note, "becomes infinite");
  }));
  EXPECT_FALSE(contains(ampcheck::testing::ampcheck("replay 'mul(x=fp32[5,7],seed=1)'").out, "loss scale"))
      << "for 16-bit types";
}

/// Codes and verdicts of the range checks of a case, "" for none.
std::string range_code(const OpDef& op, const std::string& name) {
  const CaseResult result = run_case(op, parse_call(name, op.signature), {});
  std::string out;
  for (const CheckResult& check : result.checks)
    if (check.name().starts_with("range ") && check.code != Code::none)
      out = std::string(ampcheck::name(check.code)) + " " + check.name();
  EXPECT_EQ(convicts(result.verdict), !out.empty()) << name << " " << result.code;
  return out;
}

/// dx = dy b a loses dy b at large and at small scales, though dx itself is an everyday number: inside a declared
/// window that is a finding.
TEST(DeclaredRange, WindowOfLossScales) {
  OpDef op = scaled(0x1p-100, 0x1p100);
  const std::string name = "scaled(x=bf16[2,3],cotangent=ones,seed=1)";
  EXPECT_EQ(range_code(op, name), "") << "nothing is declared";
  op.signature.range = {.smallest_scale = 1, .largest_scale = 0x1p20};
  EXPECT_EQ(range_code(op, name), "") << "within, nothing is lost";
  op.signature.range.largest_scale = 0x1p30;
  EXPECT_EQ(range_code(op, name), "AC203 range dx at loss scale 2^30");
  op = scaled(0x1p100, 0x1p-100);
  op.signature.range = {.smallest_scale = 0x1p-60, .largest_scale = 1};
  EXPECT_EQ(range_code(op, name), "AC203 range dx at loss scale 2^-60");
  const CaseResult result = run_case(op, parse_call(name, op.signature), {});
  EXPECT_EQ(ampcheck::name(result.verdict), std::string("RANGE"));
  EXPECT_TRUE(convicts(result.verdict));
}

/// fp16 holds no cotangents at 2^40: the largest scale at which it does is tried, and the report says that it is not
/// the end of the window.
TEST(DeclaredRange, TriesTheNearestScaleThatTheCotangentsAllow) {
  OpDef op = scaled(0x1p-122, 0x1p118);
  op.signature.range = {.smallest_scale = 1, .largest_scale = 0x1p40};
  const std::string name = "scaled(x=fp16[2,3],cotangent=ones,seed=1)";
  EXPECT_EQ(range_code(op, name), "AC203 range dx at loss scale 2^15");
  op.signature.range.smallest_scale = op.signature.range.largest_scale;
  const CaseResult result = run_case(op, parse_call(name, op.signature), {});
  EXPECT_FALSE(convicts(result.verdict));
  EXPECT_TRUE(std::any_of(result.checks.begin(), result.checks.end(), [](const CheckResult& c) {
    return c.verdict == Verdict::skipped && contains(c.note, "not tried at 2^40");
  }));
}

TEST(DeclaredRange, EndsWithExitCodeOne) {
  const auto lost = ampcheck::testing::ampcheck("check 'mul.loses_range(x=bf16[5,7],seed=1)'");
  EXPECT_EQ(lost.exit_code, 1);
  EXPECT_TRUE(
      contains(lost.out, "RANGE  AC203") &&
      contains(lost.out, "at loss scale 2^40 of the declared window 2^-40 to 2^40: a number on the way overflows"))
      << lost.out;
  EXPECT_EQ(ampcheck::testing::ampcheck("check 'mul(x=bf16[5,67],range=near_max,cotangent=near_max,seed=1)'").exit_code,
            4)
      << "mul declares none: nothing is judged there, and nothing is wrong";
}

/// A correct kernel whose right answer overflows at that scale too, and one whose cotangent does not fit the type, lose
/// nothing of their own.
TEST(DeclaredRange, RightAnswersThatOverflowAreNone) {
  OpDef op = scaled(1, 0x1p100);
  op.signature.range = {.smallest_scale = 1, .largest_scale = 0x1p40};
  EXPECT_EQ(range_code(op, "scaled(x=bf16[2,3],cotangent=ones,seed=1)"), "");
  op = *find_op("mul");
  op.signature.range = {.largest_input = 1e4, .smallest_scale = 0x1p-10, .largest_scale = 0x1p14};
  for (const char* dtype : {"fp16", "bf16", "fp32"})
    for (const char* range : {"normal", "near_max", "subnormal", "specials"})
      EXPECT_EQ(range_code(op, std::string("mul(x=") + dtype + "[5,67],range=" + range + ",seed=1)"), "")
          << dtype << " " << range;
}

/// y = x a b of which the kernel takes the factors as they stand: at inputs within the declared domain x a must not
/// overflow.
TEST(DeclaredRange, DomainOfInputs) {
  OpDef op = scaled(0x1p-126, 0x1p126);  // the kernel multiplies by b first
  const std::string name = "scaled(x=bf16[5,67],range=integers9,seed=1)";
  EXPECT_EQ(range_code(op, name), "") << "RANGE beyond any declaration is none";
  op.signature.range.largest_input = 1;
  EXPECT_EQ(range_code(op, name), "") << "the inputs are larger than declared";
  op.signature.range.largest_input = 100;
  EXPECT_TRUE(range_code(op, name).starts_with("AC203 range"));
}

}  // namespace
}  // namespace ampcheck::checks
