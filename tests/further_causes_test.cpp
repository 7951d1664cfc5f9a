// SPDX-License-Identifier: Apache-2.0
// Causes beyond one changed formula: each is said of a kernel that has it, and none of a kernel that is right or wrong in another way.
#include "checks/further_causes.h"

#include <gtest/gtest.h>

#include "tests/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::contains;

CaseResult result_of(const std::string& name) {
  const OpDef& op = *find_op(op_of(name));
  return run_case(op, parse_call(name, op.signature), {});
}

std::string cause_of(const std::string& name) {
  const CaseResult result = result_of(name);
  const CheckResult* const check = deciding_check(result);
  return check == nullptr || check->code.empty() ? "nothing found" : check->code + " " + check->cause;
}

struct Known {
  const char *name, *words;
};

void PrintTo(const Known& known, std::ostream* out) { *out << known.name; }

/// Planted faults, one a mechanism.
constexpr Known kKnown[] = {
    // Other weights of the terms of a sum or dot product.
    {"linear.overlapping_tiles(x=fp32[5,19],weight=fp32[3,19],seed=1)", "twice in the sum of x * weight: they overlap"},
    {"linear.dweight_last_block(x=fp32[67,7],weight=fp32[3,7],seed=1)", "blocks overwrite each other"},
    // Terms that lie outside, ties, sums without their other terms, sums that are not rescaled.
    {"max_pool2d.ties_share_all(x=fp16[2,3,5,7],kernel=3,range=integers9,seed=1)", "every one of equal maxima"},
    {"log_softmax.sum_missing(x=bf16[5,7],seed=1)", "with dy for its sum, without the terms of the other elements"},
    {"softmax.no_rescaling(x=bf16[5,7],seed=1)", "with the running maximum of x for that of all: what was added up is not rescaled in the sum"},
    {"softmax.halves_not_merged(x=fp32[5,7],seed=1)", "with the maximum of each half of x"},
    {"relu.guided(x=bf16[5,7],seed=1)", "with max(dy, 0) for dy: not linear in the cotangent"},
    {"layer_norm.gradient_of_n_minus_1(x=bf16[5,7],seed=1)", "with 1/6 for 1/7 in the last 2 of 4 means"},
    // A saved tensor is explained as an output is; a broken relation quotes what is wrong with the values.
    {"layer_norm.eps_outside(x=bf16[5,7],seed=1)", "with the eps 1e-05 outside the root"},
    {"attention.lse_of_first_head(q=fp32[2,2,5,7],seed=1)", "its values: these are the values of the formula with the first head or image of lse for all"},
    // Other indices, an unstable algebra, a condition on the data, few digits.
    {"embedding.index_of_8_bits(weight=bf16[1030,7],index=i64[5],seed=1)", "right for 'index' with its indices cut to 8 bits"},
    {"cross_entropy.no_shift(x=fp16[1,1],seed=1)", "the errors are those of exp(v) without subtracting the maximum"},
    {"layer_norm.one_pass_variance(x=bf16[5,7],range=mean30,seed=1)", "the errors are those of the one pass variance"},
    {"tanh.cancels_at_zero(x=fp32[2,1025],seed=1)", "it cancels near zero"},
    {"relu.slope_at_zero(x=bf16[5,7],range=integers9,seed=1)", "only where x is zero"},
    {"gelu_tanh.tanh_saturates(x=fp32[2,1025],seed=1)", "and x or 0 there: it saturates"},
    {"exp.clamped(x=bf16[5,67],range=spike,seed=1)", "finite where the value overflows to infinity"},
    {"softmax.exp_table(x=fp32[5,7],seed=1)", "AC304 errors of up to 0.0021 of the value, on 35 of 35 elements: as of a fast or approximate exp"},
    {"div.rough_reciprocal(x=fp32[5,7],seed=1)", "as of a fast or approximate reciprocal"},
    // NaN and infinity have a cause, and so have buffers that are added to.
    {"log_softmax.sum_without_tail(x=fp32[5,7],seed=1)", "AC102 infinite: an overflow on the way; a sum leaves out what follows the last full vector of 8"},
    {"softmax.dropped_tail(x=fp32[64,129],seed=1)", "AC101 a sum leaves out its last term"},
    {"embedding.in_bf16(weight=fp32[11,7],index=i64[5],seed=1)", "AC301 accumulates in bf16: the errors are 1 times"},
    // Digits lost between partial sums, in the one accumulator whose replays have the kernel's bits, on the way of one element.
    {"linear.split_k_in_bf16(x=fp32[5,7],weight=fp32[3,7],seed=1)", "AC301 accumulates in bf16, if in partial sums"},
    {"sum.in_fp16(x=bf16[5,7],seed=1)", "AC301 accumulates in fp16"},
    {"cross_entropy.logit_in_bf16(x=fp32[5,7],seed=1)", "AC302 keeps take("},
};

class Causes : public ::testing::TestWithParam<Known> {};
INSTANTIATE_TEST_SUITE_P(Planted, Causes, ::testing::ValuesIn(kKnown), [](const auto& info) {
  const std::string op(op_of(info.param.name));
  return op.substr(0, op.find('.')) + "_" + op.substr(op.find('.') + 1);
});

TEST_P(Causes, AreNamed) {
  const std::string cause = cause_of(GetParam().name);
  EXPECT_TRUE(contains(cause, GetParam().words)) << cause;
}

/// Wrong in another way: what replays and changed formulas say stands alone.
TEST(Causes, AreNotSaidOfOtherFaults) {
  EXPECT_EQ(cause_of("softmax.sign(x=bf16[8,33],seed=2)"), "AC101 these are the values of the formula with the other sign of the term sum(dy * y)");
  const std::string low = cause_of("softmax.bf16_accumulation(x=bf16[64,129],seed=1)");
  EXPECT_TRUE(low.starts_with("AC301 accumulates in bf16: the errors are")) << low;
  for (const char* name : {"softmax.kahan(x=bf16[8,33],seed=1)", "layer_norm(x=bf16[5,7],range=mean30,seed=1)", "embedding(weight=bf16[1030,7],index=i64[5],seed=1)"})
    EXPECT_EQ(cause_of(name), "nothing found");
}

/// An attribute that a kernel does not look at.
TEST(Causes, AnAttributeThatIsNotFollowedIsNamed) {
  OpDef op = *find_op("layer_norm");
  const kernels::KernelFn forward = op.kernel.forward;
  op.kernel.forward = [forward](const kernels::KernelCall& call) {
    Attributes usual = *call.attributes;
    usual.set("eps", 1e-5);
    kernels::KernelCall changed = call;
    changed.attributes = &usual;
    forward(changed);
  };
  const CaseResult result = run_case(op, parse_call("layer_norm(x=fp32[5,7],eps=0.25,seed=1)", op.signature), {});
  ASSERT_NE(deciding_check(result), nullptr);
  EXPECT_TRUE(contains(deciding_check(result)->cause, "right for eps=1e-05 in place of 0.25: the attribute is not followed")) << deciding_check(result)->cause;
}

}  // namespace
}  // namespace ampcheck::checks
