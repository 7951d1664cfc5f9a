// SPDX-License-Identifier: Apache-2.0
// A gradient of a gradient is judged like a gradient: against the graph differentiated twice, which differences of the
// gradient certify.
#include "checks/define/second_order.h"

#include <gtest/gtest.h>

#include <cmath>

#include "checks/case/case_run.h"
#include "checks/data/regimes.h"
#include "checks/reach/coverage.h"
#include "checks/run/runner.h"
#include "src/error.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using ampcheck::testing::contains;

CaseResult run(const OpDef& op, const std::string& name) { return run_case(op, parse_call(name, op.signature), {}); }

TEST(SecondOrder, ReferenceIsCertifiedByDifferencesOfTheGradient) {
  for (const OpDef& op : second_order_ops()) {
    const Certificate certificate = certificate_of(op);
    EXPECT_GE(certificate.digits, 70) << op.signature.name;
    EXPECT_GE(certificate.points, 12) << op.signature.name;
  }
}

/// tanh: grad_x = dy (1 - t^2), so that c grad_x has the gradients -2 t (1 - t^2) dy c and (1 - t^2) c.
TEST(SecondOrder, ReferenceIsTheClosedForm) {
  const OpDef& op = *find_op("tanh_backward");
  const OpCall call = parse_call("tanh_backward(x=fp32[5,7],seed=3)", op.signature);
  const RunOptions options;
  CaseRun at(op, call, options);
  const std::vector<double> c = at.cotangents(1).at("dgrad_x"), x = at.reference.inputs().at("x"),
                            dy = at.reference.inputs().at("dy");
  const reference::Ball by_x = at.reference.ball(0, Pass::backward, "dx"),
                        by_dy = at.reference.ball(0, Pass::backward, "ddy"),
                        gradient = at.reference.ball(0, Pass::forward, "grad_x");
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto k = static_cast<std::int64_t>(i);
    const double t = std::tanh(x[i]), slope = 1 - t * t;
    EXPECT_NEAR(gradient.v[k], dy[i] * slope, 1e-14 * std::fabs(dy[i]));
    EXPECT_NEAR(by_x.v[k], -2 * t * slope * dy[i] * c[i], 1e-13 * std::fabs(dy[i] * c[i]));
    EXPECT_NEAR(by_dy.v[k], slope * c[i], 1e-14 * std::fabs(c[i]));
  }
}

TEST(SecondOrder, RightKernelsPassEveryCase) {
  for (const OpDef& op : second_order_ops()) {
    std::int64_t compared = 0;
    for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16})
      for (const OpCall& call : cases_of(op.signature, dtype, CaseSet::quick, 1)) {
        const CaseResult result = run_case(op, call, {});
        EXPECT_FALSE(convicts(result.verdict)) << result.name << " " << result.code;
        for (const CheckResult& check : result.checks)
          if (check.name().starts_with("backward dd")) compared += check.compared;
      }
    EXPECT_GT(compared, 10000) << op.signature.name;
  }
}

TEST(SecondOrder, PlantedFaultsHaveTheirCause) {
  const CaseResult tanh = run(*find_op("tanh_backward.without_two"), "tanh_backward.without_two(x=bf16[5,7],seed=1)");
  ASSERT_EQ(tanh.code, Code::ac101);
  EXPECT_EQ(ampcheck::name(subject_of(*deciding_check(tanh))), "backward dx");
  EXPECT_TRUE(contains(deciding_check(tanh)->cause, "without the factor 2")) << deciding_check(tanh)->cause;
  const CaseResult mul = run(*find_op("mul_backward.one_term"), "mul_backward.one_term(x=bf16[5,7],seed=1)");
  ASSERT_EQ(mul.code, Code::ac101);
  EXPECT_EQ(ampcheck::name(subject_of(*deciding_check(mul))), "backward ddz");
  EXPECT_TRUE(contains(deciding_check(mul)->cause, "without the term")) << deciding_check(mul)->cause;
  // First order is right: nobody who looks at it alone sees these.
  EXPECT_FALSE(convicts(run(*find_op("tanh"), "tanh(x=bf16[5,7],seed=1)").verdict));
}

TEST(SecondOrder, TheBackwardItselfIsJudgedToo) {
  OpDef op = *find_op("tanh");
  op.kernel.backward = [](const kernels::KernelCall& call) { from_doubles(to_doubles(call.at("dy")), call.at("dx")); };
  const OpDef wrong = backward_as_op(op, find_op("tanh_backward")->kernel.backward);
  const CaseResult result = run(wrong, "tanh_backward(x=fp16[5,7],seed=1)");
  EXPECT_EQ(result.code, Code::ac101);
  EXPECT_EQ(ampcheck::name(subject_of(*deciding_check(result))), "forward grad_x");
}

TEST(SecondOrder, PlantedFaultsOfTheOtherOpsAreCaughtWhereTheyAre) {
  for (const char* name : {"gelu_backward.slope", "gelu_tanh_backward.slope", "silu_backward.slope",
                           "layer_norm_backward.dead_path", "rms_norm_backward.dead_path"}) {
    const OpDef& op = *find_op(name);
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
      const CaseResult result = run_case(op, default_call(op.signature, dtype), {});
      ASSERT_EQ(result.code, Code::ac101) << result.name;
      EXPECT_EQ(ampcheck::name(subject_of(*deciding_check(result))), "backward dx") << result.name;
    }
  }
}

/// layer_norm: grad_x = P(dy w), a gradient of which by x is compared with centred differences of grad_x itself, in
/// fp64.
TEST(SecondOrder, ReferenceOfANormIsTheSlopeOfItsGradient) {
  const OpDef& op = *find_op("layer_norm_backward");
  const OpCall call =
      parse_call("layer_norm_backward(x=fp32[3,5],weight=fp32,bias=fp32,dy=fp32,eps=0.1,seed=3)", op.signature);
  const RunOptions options;
  CaseRun at(op, call, options);
  const NamedValues cotangents = at.cotangents(1);
  const auto sum_at = [&](const NamedValues& inputs) {
    CaseRun moved(op, call, options, inputs);
    double sum = 0;
    for (const auto& [name, c] : cotangents) {
      const reference::Ball value = moved.reference.ball(0, Pass::forward, name.substr(1));
      for (std::size_t i = 0; i < c.size(); ++i) sum += c[i] * value.v[static_cast<std::int64_t>(i)];
    }
    return sum;
  };
  for (const char* name : {"x", "weight", "bias", "dy"}) {
    const reference::Ball by = at.reference.ball(0, Pass::backward, gradient_name(name));
    for (std::int64_t i = 0; i < by.count(); ++i) {
      NamedValues up = at.reference.inputs(), down = up;
      const double h = 0x1p-14;  // its square, 4e-9, is the error of the difference relative to the third derivative
      up.at(name)[static_cast<std::size_t>(i)] += h;
      down.at(name)[static_cast<std::size_t>(i)] -= h;
      EXPECT_NEAR(by.v[i], (sum_at(up) - sum_at(down)) / (2 * h), 1e-5 * (1 + std::fabs(by.v[i]))) << name << " " << i;
    }
  }
}

TEST(SecondOrder, WantsABackwardThatWritesItsGradientsAlone) {
  try {
    backward_as_op(*find_op("embedding"), nullptr);  // adds to dweight
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_TRUE(contains(error.what(), "[embedding] backward as an op")) << error.what();
  }
}

TEST(SecondOrder, IsCheckedByName) {
  const auto out = ampcheck::testing::ampcheck("check mul_backward --regimes quick --dtype bf16");
  EXPECT_EQ(out.exit_code, 0) << out.out << out.err;
  EXPECT_TRUE(contains(out.out, "mul_backward")) << out.out;
}

}  // namespace
}  // namespace ampcheck::checks
