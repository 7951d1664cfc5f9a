// SPDX-License-Identifier: Apache-2.0
// Built-in ops that store in fp64: right as they are, and found where a kernel goes through float or is off by 1e-12.
#include "checks/define/fp64_ops.h"

#include <gtest/gtest.h>

#include "checks/data/regimes.h"
#include "checks/run/runner.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::ampcheck;
using testing::contains;

/// Cases with a finding among those of the quick set whose inputs have so few elements.
int convicted(const OpDef& op, std::string& causes, std::int64_t most = 400) {
  int out = 0;
  for (const OpCall& call : cases_of(op.signature, Dtype::fp64, CaseSet::quick, 1)) {
    std::int64_t elements = 0;
    for (const TensorSpec& spec : op.signature.inputs) elements += call.has(spec) ? call.shape(spec).count() : 0;
    if (elements > most) continue;
    const CaseResult result = run_case(op, call, {});
    out += convicts(result.verdict);
    for (const CheckResult& check : result.checks) causes += check.cause + "\n";
  }
  return out;
}

/// The op with each number of an output changed.
OpDef changed(const OpDef& op, double (*change)(double)) {
  OpDef out = op;
  out.kernel.forward = [inner = op.kernel.forward, change,
                        output = op.signature.outputs[0].name](const kernels::KernelCall& call) {
    inner(call);
    std::vector<double> values = to_doubles(call.at(output));
    for (double& v : values) v = change(v);
    from_doubles(values, call.at(output));
  };
  return out;
}

TEST(Fp64Ops, AreRightAndErrorsThatFp32DoesNotSeeAreFound) {
  int ops = 0;
  for (const OpDef& op : all_ops()) {
    const OpDef* const made = op_in_fp64(op);
    ASSERT_NE(made, nullptr) << op.signature.name;
    ++ops;
    std::string causes;
    EXPECT_EQ(convicted(*made, causes), 0) << op.signature.name << causes;
    EXPECT_GT(convicted(changed(*made, [](double v) { return v * (1 + 1e-12); }), causes), 0) << op.signature.name;
  }
  EXPECT_EQ(ops, 36);
}

/// The op with each number of the first gradient that a launch asks for off by 1e-12 of it.
OpDef with_gradient_off(const OpDef& op) {
  OpDef out = op;
  out.kernel.backward = [inner = op.kernel.backward, inputs = op.signature.inputs](const kernels::KernelCall& call) {
    const TensorView* gradient = nullptr;
    for (const TensorSpec& spec : inputs)
      if (gradient == nullptr) gradient = call.find(gradient_name(spec.name));
    inner(call);
    if (gradient == nullptr) return;
    std::vector<double> values = to_doubles(*gradient);
    for (double& v : values) v *= 1 + 1e-12;
    from_doubles(values, *gradient);
  };
  return out;
}

TEST(Fp64Ops, ErrorsOfGradientsAreFound) {
  for (const OpDef& op : all_ops()) {
    std::string causes;
    EXPECT_GT(convicted(with_gradient_off(*op_in_fp64(op)), causes), 0) << op.signature.name;
  }
}

TEST(Fp64Ops, AResultThroughFloatIsNamed) {
  for (const char* const name : {"add", "gelu", "softmax", "layer_norm", "linear", "mean"}) {
    std::string causes;
    const OpDef op = changed(*op_in_fp64(*find_op(name)), [](double v) { return double(float(v)); });
    EXPECT_GT(convicted(op, causes, 4000), 0) << name;  // most sums of two small numbers are numbers of float
    EXPECT_TRUE(contains(causes, "float")) << name << "\n" << causes;
  }
}

TEST(Fp64Ops, TheProgramHasThemWhereTheyAreAskedFor) {
  const auto right = ampcheck("check add --dtype fp64 --regimes quick");
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
  EXPECT_TRUE(contains(right.out, "add             fp64")) << right.out;
  EXPECT_FALSE(contains(ampcheck("check add --regimes quick").out, "fp64"));
  const auto one = ampcheck("check 'softmax(x=fp64[2,5],seed=1)'");
  EXPECT_EQ(one.exit_code, 0) << one.out << one.err;
  EXPECT_EQ(ampcheck("replay 'softmax(x=fp64[2,5],seed=1)'").exit_code, 0);
  EXPECT_EQ(ampcheck("check attention --dtype fp64 --regimes quick").exit_code, 0);
  const auto none = ampcheck("check softmax.dot_missing --dtype fp64");
  EXPECT_EQ(none.exit_code, 4) << none.out << none.err;
  EXPECT_TRUE(contains(none.err, "softmax.dot_missing is not declared for fp64, but for fp32, fp16, bf16")) << none.err;
}

}  // namespace
}  // namespace ampcheck::checks
