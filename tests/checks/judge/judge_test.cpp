// SPDX-License-Identifier: Apache-2.0
// The headroom of a tensor is that of the form that the kernel computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "checks/define/op_def.h"
#include "checks/run/runner.h"
#include "tests/support/check_named.h"

namespace ampcheck::checks {
namespace {

double headroom(const OpDef& op, const std::string& name) {
  const CaseResult result = run_case(op, parse_call(name, op.signature), {});
  EXPECT_FALSE(convicts(result.verdict)) << name;
  double most = 0;
  for (const CheckResult& check : result.checks) most = std::max(most, check.max_ratio);
  return most;
}

/// What is used of the first form's interval alone; more than 1 where it does not admit all.
double headroom_of_first_form(const OpDef& op, const std::string& name) {
  OpDef first_only = op;
  first_only.forms.resize(1);
  first_only.tried_first = 0;
  double most = 0;
  for (const CheckResult& check : run_case(first_only, parse_call(name, op.signature), {}).checks)
    most = std::max(most, check.max_ratio);
  return most;
}

// The interval of the first form admits many of these gradients near its end, or only with the help of the second
// one's; in the kernel's own form they use a third.
TEST(Headroom, IsMeasuredInTheFormOfTheKernel) {
  int near_the_end = 0;
  for (int seed = 1; seed <= 40; ++seed)
    for (const char* at :
         {"rms_norm(x=fp32[5,7],eps=0.001,range=integers9,seed=", "layer_norm(x=fp32[5,67],range=mean300,seed="}) {
      const std::string name = at + std::to_string(seed) + ")";
      OpDef op = *find_op(op_of(name));
      EXPECT_LT(headroom(op, name), 0.6) << name;
      if (headroom_of_first_form(op, name) <= 0.9) continue;
      ++near_the_end;
      op.tried_first = 0;  // whatever the author believes
      EXPECT_LT(headroom(op, name), 0.6) << name;
    }
  EXPECT_GT(near_the_end, 20);
}

/// y = exp(x), declared within 4 ulp: three steps off use up most of that where the numbers are widest apart for their
/// size, and a second form that is the same one is no excuse.
TEST(Headroom, ThatIsReallyUsedUpShows) {
  const auto op_with = [](int steps) {
    OpDef op;
    op.signature = {.name = "exponential",
                    .inputs = {{.name = "x", .dims = "N D"}},
                    .outputs = {{.name = "y"}},
                    .dims = {{"N", {5, 16, 2}}, {"D", {67, 33, 129}}},
                    .precision = {.math = {.name = "coarse", .exp = 4}}};
    const auto formula = [](reference::FormulaCall& c) { c.output("y", exp(c["x"])); };
    op.forms = {{"exp", formula}, {"again", formula}};
    const auto off = [steps](double v) {
      auto y = static_cast<float>(std::exp(v));
      for (int i = 0; i < steps; ++i) y = std::nextafter(y, INFINITY);
      return y;
    };
    op.kernel.forward = [off](const kernels::KernelCall& call) {
      std::vector<double> values = to_doubles(call.at("x"));
      for (double& v : values) v = static_cast<double>(off(v));
      from_doubles(values, call.at("y"));
    };
    op.kernel.backward = [off](const kernels::KernelCall& call) {
      const std::vector<double> x = to_doubles(call.at("x"));
      std::vector<double> g = to_doubles(call.at("dy"));
      for (std::size_t i = 0; i < g.size(); ++i) g[i] = static_cast<double>(static_cast<float>(g[i]) * off(x[i]));
      from_doubles(g, call.at("dx"));
    };
    return op;
  };
  const std::string name = "exponential(x=fp32[5,67],seed=1)";
  EXPECT_LT(headroom(op_with(0), name), 0.3);
  EXPECT_GT(headroom(op_with(3), name), 0.6);
}

/// What is right for saved values that are right needs no second look; a saved value that is wrong does not vouch for
/// the gradients that follow from it.
TEST(Saved, ValuesThatAreRightSettleTheGradients) {
  OpDef op = *find_op("rms_norm");
  const OpCall call = parse_call("rms_norm(x=fp32[5,7],seed=1)", op.signature);
  RunOptions measured;
  measured.power = true;
  const CaseResult right = run_case(op, call, measured);
  ASSERT_NE(check_named(right, "backward dx probe 0 at saved"), nullptr);
  EXPECT_EQ(check_named(right, "backward dx probe 0"), nullptr);
  const std::string saved = op.signature.saved.front().name;
  op.kernel.forward = [forward = op.kernel.forward, saved](const kernels::KernelCall& kernel) {
    forward(kernel);
    std::vector<double> values = to_doubles(kernel.at(saved));
    for (double& v : values) v = static_cast<double>(static_cast<float>(1.01 * v));
    from_doubles(values, kernel.at(saved));
  };
  const CaseResult wrong = run_case(op, call, measured);
  const CheckResult *sharp = check_named(wrong, "backward dx probe 0 at saved"),
                    *wide = check_named(wrong, "backward dx probe 0");
  ASSERT_NE(sharp, nullptr);
  ASSERT_NE(wide, nullptr);
  EXPECT_EQ(sharp->failed, 0);
  EXPECT_GT(wide->failed, 0);
  EXPECT_GT(check_named(wrong, "forward " + saved)->failed, 0);
  EXPECT_EQ(wrong.verdict, Verdict::bug);
  EXPECT_TRUE(sharp->power.empty()) << "what it would have seen is measured from numbers that are wrong";
  EXPECT_EQ(sharp->note, "follows from the saved tensors as they were written; by the formula it is outside");
  const CheckResult* const settled = check_named(right, "backward dx probe 0 at saved");
  EXPECT_FALSE(settled->power.empty());
  EXPECT_EQ(settled->note, "");
}

/// Errors of a thousandth are the size of a bf16 accumulator's, but all in one direction they are a factor.
TEST(Cause, AConstantFactorIsNoAccumulator) {
  for (const double factor : {1.001, 1.0001, 0.999}) {
    OpDef op = *find_op("softmax");
    op.kernel.backward = [backward = op.kernel.backward, factor](const kernels::KernelCall& call) {
      backward(call);
      std::vector<double> values = to_doubles(call.at("dx"));
      for (double& v : values) v *= factor;
      from_doubles(values, call.at("dx"));
    };
    const CaseResult result = run_case(op, parse_call("softmax(x=fp32[16,67],seed=1)", op.signature), {});
    EXPECT_EQ(result.verdict, Verdict::bug) << factor;
    EXPECT_EQ(result.code, Code::ac101) << factor;
    const auto wrong =
        std::find_if(result.checks.begin(), result.checks.end(), [](const CheckResult& c) { return c.failed > 0; });
    ASSERT_NE(wrong, result.checks.end());
    EXPECT_NE(wrong->cause.find("off by a constant factor of " + number_text(factor)), std::string::npos)
        << wrong->cause;
  }
}

/// A form that is other mathematics would excuse a wrong kernel: nothing is judged by it.
TEST(Certificate, ThatDoesNotHoldJudgesNothing) {
  OpDef op = *find_op("gelu");
  const std::vector<Case> cases = {{&op, parse_call("gelu(x=fp32[5,7],seed=1)", op.signature)}};
  EXPECT_EQ(run_cases(cases, {}).cases.size(), 1u);
  op.forms.push_back(find_op("gelu_tanh")->forms.front());
  EXPECT_THROW(
      try { run_cases(cases, {}); } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("[gelu] certificate of the reference"), std::string::npos)
            << error.what();
        throw;
      },
      Error);
}

/// How small an error would show: all of it where the interval is one number, nothing where it is blind.
TEST(Power, GrowsWithTheError) {
  RunOptions options;
  options.power = true;
  const auto power = [&](const char* name, const char* check) {
    const OpDef& op = *find_op(op_of(name));
    const CaseResult result = run_case(op, parse_call(name, op.signature), options);
    const CheckResult* const found = check_named(result, check);
    return found == nullptr ? std::vector<double>() : found->power;
  };
  const std::vector<double> fp32 = power("softmax(x=fp32[64,129],seed=1)", "forward y"),
                            bf16 = power("softmax(x=bf16[64,129],seed=1)", "forward y");
  ASSERT_EQ(fp32.size(), 4u);
  ASSERT_EQ(bf16.size(), 4u);
  EXPECT_EQ(fp32[0], 1) << "a thousandth is 2^14 ulp of fp32";
  EXPECT_LT(bf16[0], 0.1) << "and less than half an ulp of bf16";
  EXPECT_EQ(bf16[1], 1) << "a hundredth is more than one";
  for (std::size_t k = 1; k < 4; ++k) EXPECT_GE(bf16[k], bf16[k - 1]);
  const std::vector<double> blind = power("softmax(x=fp32[5,67],range=near_max,seed=1)", "backward dx probe 0");
  for (const double share : blind) EXPECT_LT(share, 0.5);
  const OpDef& op = *find_op("softmax");
  EXPECT_TRUE(run_case(op, parse_call("softmax(x=fp32[5,7],seed=1)", op.signature), {}).checks.front().power.empty())
      << "only where asked for";
}

}  // namespace
}  // namespace ampcheck::checks
