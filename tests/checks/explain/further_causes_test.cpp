// SPDX-License-Identifier: Apache-2.0
// Causes beyond one changed formula: each is said of a kernel that has it, and none of a kernel that is right or wrong
// in another way.
#include "checks/explain/further_causes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "checks/explain/odds.h"
#include "checks/run/runner.h"
#include "reference/text/formula_text.h"
#include "src/random.h"
#include "src/rounding.h"
#include "tests/support/run_program.h"

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
  return check == nullptr || check->code == Code::none ? "nothing found"
                                                       : std::string(ampcheck::name(check->code)) + " " + check->cause;
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
    {"softmax.no_rescaling(x=bf16[5,7],seed=1)",
     "with the running maximum of x for that of all: what was added up is not rescaled in the sum"},
    {"softmax.halves_not_merged(x=fp32[5,7],seed=1)", "with the maximum of each half of x"},
    {"relu.guided(x=bf16[5,7],seed=1)", "with max(dy, 0) for dy: not linear in the cotangent"},
    {"layer_norm.gradient_of_n_minus_1(x=bf16[5,7],seed=1)", "with 1/6 for 1/7 in the last 2 of 4 means"},
    {"relu.cotangent_sign(x=bf16[5,7],seed=1)", "with the mask of another input: dy for x in the condition"},
    {"silu.slope_of_product_missing(x=bf16[5,7],seed=1)", "without the term"},
    {"swiglu.gradients_swapped(gate=bf16[5,7],seed=1)", "another output or gradient, 'dup'"},
    {"batch_norm.momentum_exchanged(x=fp32[5,3,4],seed=1)", "with the factors 0.9 and 0.1 of its two terms exchanged"},
    {"attention.mask_off_by_one(q=fp32[2,2,5,7],seed=1)",
     "with a mask that is off by one: its edge is one column later"},
    {"attention.mask_missing_in_backward(q=fp32[2,2,5,7],seed=1)", "without the mask: what is hidden"},
    {"attention.key_tail(q=fp32[3,1,17,65],seed=1)", "or what follows its last full vector, in all of its sums"},
    {"max.by_size(x=fp32[5,7],seed=1)", "the number of the largest size for the maximum of x"},
    {"max.without_tail(x=fp32[5,31],seed=1)",
     "without the numbers after the last full vector of 8 in the maximum of x"},
    {"max_pool2d.overlap_overwrites(x=fp32[2,3,5,7],kernel=3,seed=1)", "only the last non-zero of the terms that meet"},
    {"mse_loss.rows_not_elements(x=fp32[5,7],seed=1)", "off by a factor of 7, which is the extent of"},
    {"sqrt.slope_of_rsqrt(x=fp32[5,7],seed=1)", "the gradient of another activation: rsqrt"},
    // What no list of slips has: other places, sums of other rows, soft masks, of a single number what others show.
    {"group_norm.groups_interleaved(x=fp32[3,4,5],seed=1)", "dealt out to 2 groups in turn"},
    {"sum.not_cleared(x=fp32[5,7],seed=1)", "begins anew every 4 rows: it takes in the rows before"},
    {"attention.soft_mask(q=fp32[2,2,5,7],seed=1)", "hidden elements that keep a weight of exp(-10): the mask is soft"},
    {"attention.only_before(q=bf16[2,2,5,7],seed=1)", "one column earlier, but for rows that would see nothing"},
    {"swiglu.halves_exchanged(gate=bf16[5,7],seed=1)", "with gate and up exchanged"},
    {"attention.lse_of_next(q=bf16[2,2,5,7],seed=1)", "shifted by one of lse along axis 2: another row's"},
    {"mse_loss.absolute(x=bf16[5,7],seed=1)", "with |v| for square(v) of x - target"},
    {"mse_loss.half(x=fp32[5,7],seed=1)", "off by a factor of 0.5"},
    {"cumsum.running_maximum(x=fp32[5,7],seed=1)", "with the running maximum of x for its cumulative sum"},
    // A saved tensor is explained as an output is; a broken relation quotes what is wrong with the values.
    {"layer_norm.eps_missing(x=fp32[5,7],eps=0.1,seed=1)", "without the term eps 0.1"},
    {"layer_norm.eps_outside(x=bf16[5,7],seed=1)", "with the eps 1e-05 outside the root"},
    {"attention.lse_of_first_head(q=fp32[2,2,5,7],seed=1)",
     "its values: these are the values of the formula with the first head or image of lse for all"},
    // Other indices, an unstable algebra, a condition on the data, few digits.
    {"embedding.index_of_8_bits(weight=bf16[1030,7],index=i64[5],seed=1)",
     "right for 'index' with its indices cut to 8 bits"},
    {"cross_entropy.no_shift(x=fp16[1,1],seed=1)", "the errors are those of exp(v) without subtracting the maximum"},
    {"layer_norm.one_pass_variance(x=bf16[5,7],range=mean30,seed=2)", "the errors are those of the one pass variance"},
    {"tanh.cancels_at_zero(x=fp32[2,1025],seed=1)", "it cancels near zero"},
    {"relu.slope_at_zero(x=bf16[5,7],range=integers9,seed=1)", "no subgradient: at x["},
    {"gelu_tanh.tanh_saturates(x=fp32[2,1025],seed=1)", "and x or 0 there: it saturates"},
    {"exp.clamped(x=bf16[5,67],range=spike,seed=1)", "finite where the value overflows to infinity"},
    {"softmax.exp_table(x=fp32[5,7],seed=1)",
     "AC304 errors of up to 0.0024 of the value, on 35 of 35 elements: as of a fast or approximate exp"},
    {"add.truncates(x=bf16[5,7],seed=1)", "AC305 truncated, not rounded, to bf16 (declared: to nearest; 10^"},
    {"rms_norm.dx_truncated(x=bf16[5,7],seed=1)", "AC305 truncated, not rounded, to bf16 (declared: to nearest; 10^"},
    {"add.flushes(x=fp32[5,67],range=subnormal,seed=1)", "AC303 flushes subnormals (declared: kept; 10^"},
    {"softmax.y_saved_in_bf16(x=fp32[5,7],seed=1)", "AC302 keeps y in bf16 (declared: fp32; 10^"},
    {"div.rough_reciprocal(x=fp32[5,7],seed=1)", "as of a fast or approximate reciprocal"},
    // NaN and infinity have a cause, and so have buffers that are added to.
    {"log_softmax.sum_without_tail(x=fp32[5,7],seed=1)",
     "AC102 infinite: an overflow on the way; a sum leaves out what follows the last full vector of 8"},
    {"softmax.dropped_tail(x=fp32[64,129],seed=1)", "AC101 a sum leaves out its last term"},
    {"embedding.in_bf16(weight=fp32[11,7],index=i64[5],seed=1)", "AC301 accumulates in bf16: the errors are 1 times"},
    // Digits lost between partial sums, in the one accumulator whose replays have the kernel's bits, on the way of one
    // element.
    {"linear.split_k_in_bf16(x=fp32[5,7],weight=fp32[3,7],seed=1)", "AC301 accumulates in bf16, if in partial sums"},
    {"sum.in_fp16(x=bf16[5,7],seed=8)", "perhaps: accumulates in fp16"},
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

/// One ulp is a factor near 1, too: of a few elements among right ones it is not said.
TEST(Causes, AFewUlpsAreNoConstantFactor) {
  const std::string few = cause_of("exp.polynomial_beyond_range(x=bf16[5,7],seed=1)"),
                    most = cause_of("mean.count_in_bf16(x=bf16[5,257],seed=1)");
  EXPECT_FALSE(contains(few, "constant factor")) << few;
  EXPECT_TRUE(contains(few, "off by at most 2 ulp of bf16, on 3 of 35 elements")) << few;
  EXPECT_TRUE(contains(most, "off by a constant factor of 1.0051, which is 257/256")) << most;
}

/// Wrong in another way: what replays and changed formulas say stands alone.
TEST(Causes, AreNotSaidOfOtherFaults) {
  EXPECT_EQ(cause_of("softmax.sign(x=bf16[8,33],seed=2)"),
            "AC101 these are the values of the formula with the other sign of the term sum(dy * y)");
  const std::string low = cause_of("softmax.bf16_accumulation(x=bf16[64,129],seed=1)");
  EXPECT_TRUE(low.starts_with("AC301 accumulates in bf16: the errors are")) << low;
  for (const char* name : {"softmax.kahan(x=bf16[8,33],seed=1)", "layer_norm(x=bf16[5,7],range=mean30,seed=1)",
                           "embedding(weight=bf16[1030,7],index=i64[5],seed=1)"})
    EXPECT_EQ(cause_of(name), "nothing found");
}

/// Numbers that a contract gives are likelier under it than under another, either way; of what neither tells apart
/// nothing is said.
TEST(Causes, OddsAreThoseOfTheContractThatTheNumbersFollow) {
  Interval declared;
  declared.dtype = Dtype::fp32;
  declared.shape = Shape{64};
  std::vector<double> exact, coarse;
  for (Numbers* const n : {&declared.value, &declared.radius, &declared.low, &declared.high}) {
    n->channel = reference::make_channel(64);
    n->count = 64;
  }
  for (std::size_t i = 0; i < 64; ++i) {
    const double v = 1 + 0x1p-6 * static_cast<double>(i);
    declared.value[i] = v;
    declared.radius[i] = 0x1p-23 * v;
    exact.push_back(v);
    coarse.push_back(v * (1 + (i % 2 == 0 ? 0x1p-9 : -0x1p-9)));
  }
  const auto in_bf16 = [&](std::size_t i) { return Expected{declared.value[i], 0x1p-9 * declared.value[i]}; };
  const auto as_declared = [&](std::size_t i) { return Expected{declared.value[i], declared.radius[i]}; };
  const double for_coarse = log10_odds(declared, coarse, in_bf16), for_exact = log10_odds(declared, exact, in_bf16);
  EXPECT_GT(for_coarse, 64 * 1000.0);  // off by 2^14 radii each
  EXPECT_LT(for_exact, -64 * 3.0);     // where it spreads its likelihood over 2^14 radii
  EXPECT_EQ(log10_odds(declared, coarse, as_declared), 0);
  EXPECT_EQ(against("fp32", {for_coarse, "others"}), "(declared: fp32; more than 10^1000 : 1 against others)");
  EXPECT_EQ(against("fp32", {for_exact, "others"}), "(declared: fp32; the numbers do not tell it from others)");
  EXPECT_EQ(against("fp32", {22.7, "others"}), "(declared: fp32; 10^22 : 1 against others)");
  declared.how.assign(64, Judgement::open);
  EXPECT_EQ(log10_odds(declared, coarse, in_bf16), 0);
}

/// What names no cause: one factor for all, errors of one size, or the declared contract where nothing is wrong.
TEST(Causes, HaveToBeatWhatNamesNone) {
  Interval declared;
  declared.dtype = Dtype::fp32;
  declared.shape = Shape{256};
  std::vector<double> right, scaled, coarse;
  std::vector<std::int64_t> all;
  for (Numbers* const n : {&declared.value, &declared.radius, &declared.low, &declared.high}) {
    n->channel = reference::make_channel(256);
    n->count = 256;
  }
  const Random random(1, "errors");
  for (std::size_t i = 0; i < 256; ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const double v = 1 + random.uniform(i), error = 0x1p-9 * (2 * random.uniform(1000 + i) - 1);
    declared.value[i] = v;
    declared.radius[i] = 0x1p-23 * v;
    right.push_back(v);
    scaled.push_back(0.99 * v);
    coarse.push_back(v * (1 + error));
    all.push_back(at);
  }
  EXPECT_EQ(likeliest_rival(declared, right, {}).words, "the declared contract");
  EXPECT_EQ(likeliest_rival(declared, scaled, all).words, "a factor of 0.99");
  const Rival rival = likeliest_rival(declared, coarse, all);
  EXPECT_EQ(rival.words, "errors of no known origin");
  // A law of the right size that knows nothing else of the errors is worth no more than the two fitted numbers cost;
  // one that knows each of them is.
  const auto of_that_size = [&](std::size_t i) { return Expected{declared.value[i], 0x1p-10 * declared.value[i]}; };
  const auto of_each = [&](std::size_t i) { return Expected{coarse[i], 0x1p-23}; };
  EXPECT_LE(log10_odds(declared, coarse, of_that_size) - rival.log10, std::log10(256));
  EXPECT_GT(log10_odds(declared, coarse, of_each) - rival.log10, 256);
  EXPECT_EQ(against("fp32", {0.5, "errors of no known origin"}),
            "(declared: fp32; the numbers do not tell it from errors of no known origin)");
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
  EXPECT_TRUE(
      contains(deciding_check(result)->cause, "right for eps=1e-05 in place of 0.25: the attribute is not followed"))
      << deciding_check(result)->cause;
}

using Values = std::vector<double>;

/// A kernel of y, or of dx where the formula has a gradient: x, and dy or ones, of `columns` columns.
using Body = Values (*)(const Values& x, const Values& dy, std::size_t columns);

template <class F>
Values each(const Values& x, F f) {
  Values out;
  for (const double v : x) out.push_back(f(v));
  return out;
}
Values rounded(Values x, const FloatFormat& format, Rounding rounding = Rounding::nearest_even) {
  round_values(format, {.rounding = rounding}, x, x);
  return x;
}

/// x plus the largest number of its row, of those from `first` on and but for the last `without`.
Values plus_maximum(const Values& x, std::size_t columns, std::size_t first, std::size_t without) {
  Values out = x;
  for (std::size_t row = 0; row < x.size(); row += columns) {
    const auto begin = x.begin() + static_cast<std::ptrdiff_t>(row);
    const double most = *std::max_element(begin + static_cast<std::ptrdiff_t>(first),
                                          begin + static_cast<std::ptrdiff_t>(columns - without));
    for (std::size_t k = 0; k < columns; ++k) out[row + k] += most;
  }
  return out;
}

/// Each row's sum of its terms `counts(index)`.
template <class F>
Values row_sums(const Values& x, std::size_t columns, F counts) {
  Values out;
  for (std::size_t row = 0; row < x.size(); row += columns) {
    double sum = 0;
    for (std::size_t k = 0; k < columns; ++k) sum += counts(k) ? x[row + k] : 0;
    out.push_back(sum);
  }
  return out;
}
Values column_sums(const Values& x, std::size_t columns) {
  Values out(columns, 0.0);
  for (std::size_t i = 0; i < x.size(); ++i) out[i % columns] += x[i];
  return out;
}

/// Of each row of 6: one window of 3 times exp of another, from `first` and `second` on.
Values gated(const Values& x, std::size_t first, std::size_t second) {
  Values out;
  for (std::size_t row = 0; row < x.size(); row += 6)
    for (std::size_t k = 0; k < 3; ++k) out.push_back(x[row + first + k] * std::exp(x[row + second + k]));
  return out;
}

/// A formula, a kernel that is right, one with the slip that the words name, and one that is wrong nearby: the words
/// are not said of it.
struct Slip {
  const char *name, *call, *formula;
  bool gradient;
  Body right, wrong;
  const char* words;
  Body other;
};
void PrintTo(const Slip& slip, std::ostream* out) { *out << slip.name; }

const Slip kSlips[] = {
    {"truncation", "bf16[8,16]", "y = 1.1 * x", false,
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return 1.1 * v; }); },
     [](const Values& x, const Values&, std::size_t) {
       return rounded(each(x, [](double v) { return 1.1 * v; }), kBf16, Rounding::toward_zero);
     },
     "truncated, not rounded, to bf16",
     [](const Values& x, const Values&, std::size_t) {
       return each(rounded(each(x, [](double v) { return 1.1 * v; }), kBf16, Rounding::toward_zero),
                   [](double v) { return v * (1 + 0x1p-7); });
     }},
    {"constant_slightly_off", "fp32[8,16]", "y = x + 0.044715 * x * x * x", false,
     [](const Values& x, const Values&, std::size_t) {
       return each(x, [](double v) { return v + 0.044715 * v * v * v; });
     },
     [](const Values& x, const Values&, std::size_t) {
       return each(x, [](double v) { return v + 0.0447 * v * v * v; });
     },
     "with 0.0447 for the constant 0.044715, which is slightly off",
     [](const Values& x, const Values&, std::size_t) {
       return each(x, [](double v) { return v + 2 * 0.044715 * v * v * v; });
     }},
    {"divided_for_times", "fp32[8,16]", "y = x * exp(x)", false,
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return v * std::exp(v); }); },
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return v / std::exp(v); }); },
     "divided by exp(x) for times exp(x)",
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return v * std::exp(2 * v); }); }},
    {"factor_twice", "fp32[8,16]", "y = x * exp(x)", false,
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return v * std::exp(v); }); },
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return v * std::exp(2 * v); }); },
     "with the factor exp(x) twice",
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return v / std::exp(v); }); }},
    {"turned_condition", "fp32[8,16]", "y = where(x < 0.5, x, 2 * x)", false,
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return v < 0.5 ? v : 2 * v; }); },
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return v < 0.5 ? 2 * v : v; }); },
     "turned round",
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return 2 * v; }); }},
    {"maximum_without_first", "fp32[16,3]", "y = x + max(x, -1)", false,
     [](const Values& x, const Values&, std::size_t columns) { return plus_maximum(x, columns, 0, 0); },
     [](const Values& x, const Values&, std::size_t columns) { return plus_maximum(x, columns, 1, 0); },
     "without the first number of the maximum of x",
     [](const Values& x, const Values&, std::size_t columns) { return plus_maximum(x, columns, 0, 1); }},
    {"first_term_alone", "fp32[8,16]", "y = x + x * x + exp(x)", false,
     [](const Values& x, const Values&, std::size_t) {
       return each(x, [](double v) { return v + v * v + std::exp(v); });
     },
     [](const Values& x, const Values&, std::size_t) { return x; },
     "with only the term x, without the terms that follow it",
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return v + v * v; }); }},
    {"power_rule_without_its_factor", "fp32[8,16]", "y = x * x * x", true,
     [](const Values& x, const Values& dy, std::size_t) {
       Values out = x;
       for (std::size_t i = 0; i < x.size(); ++i) out[i] *= 3 * x[i] * dy[i];
       return out;
     },
     [](const Values& x, const Values& dy, std::size_t) {
       Values out = x;
       for (std::size_t i = 0; i < x.size(); ++i) out[i] *= x[i] * dy[i];
       return out;
     },
     "with a factor of 1 for 3 of",
     [](const Values& x, const Values& dy, std::size_t) {
       Values out = x;
       for (std::size_t i = 0; i < x.size(); ++i) out[i] = 3 * std::fabs(x[i]) * dy[i];
       return out;
     }},
    {"from_an_element_on", "fp32[40,64]", "y = x * x", false,
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return v * v; }); },
     [](const Values& x, const Values&, std::size_t) {
       Values out = each(x, [](double v) { return v * v; });
       for (std::size_t i = 1024; i < x.size(); ++i) out[i] *= 1.5;
       return out;
     },
     "only from element 1024 on: an index or grid overflows",
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return 1.5 * v * v; }); }},
    {"inverse_of_a_quotient", "fp32[8,16]", "y = x / (1 + x * x)", false,
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return v / (1 + v * v); }); },
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return (1 + v * v) / v; }); },
     "divided by x, the inverse",
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return v * (1 + v * v); }); }},
    {"first_block_alone", "fp32[8,24]", "y = sum(x, -1)", false,
     [](const Values& x, const Values&, std::size_t columns) {
       return row_sums(x, columns, [](std::size_t) { return true; });
     },
     [](const Values& x, const Values&, std::size_t columns) {
       return row_sums(x, columns, [](std::size_t k) { return k < 8; });
     },
     "with only the first block of 8 in the sum of x: the others are lost",
     [](const Values& x, const Values&, std::size_t columns) {
       return row_sums(x, columns, [](std::size_t k) { return k >= 8; });
     }},
    {"one_lane_of_pairs", "fp32[8,16]", "y = sum(x, -1)", false,
     [](const Values& x, const Values&, std::size_t columns) {
       return row_sums(x, columns, [](std::size_t) { return true; });
     },
     [](const Values& x, const Values&, std::size_t columns) {
       return row_sums(x, columns, [](std::size_t k) { return k % 2 == 0; });
     },
     "with only the first term of each pair in the sum of x",
     [](const Values& x, const Values&, std::size_t columns) {
       return row_sums(x, columns, [](std::size_t k) { return k % 2 == 1; });
     }},
    {"sum_along_the_other_axis", "fp32[9,9]", "y = sum(x, -1)", false,
     [](const Values& x, const Values&, std::size_t columns) {
       return row_sums(x, columns, [](std::size_t) { return true; });
     },
     [](const Values& x, const Values&, std::size_t columns) { return column_sums(x, columns); },
     "with the sum of x along axis 0 for axis 1",
     [](const Values& x, const Values&, std::size_t columns) {
       return row_sums(x, columns, [](std::size_t k) { return k != 0; });
     }},
    {"one_cotangent_for_all", "fp32[8,16]", "y = x * x * x", true,
     [](const Values& x, const Values& dy, std::size_t) {
       Values out = x;
       for (std::size_t i = 0; i < x.size(); ++i) out[i] *= 3 * x[i] * dy[i];
       return out;
     },
     [](const Values& x, const Values& dy, std::size_t) {
       return each(x, [&](double v) { return 3 * v * v * dy[0]; });
     },
     "with the first element of dy for all of it",
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return 3 * v * v; }); }},
    {"equal_terms_among_others", "fp32[8,16]", "y = x * x * x + exp(x)", true,
     [](const Values& x, const Values& dy, std::size_t) {
       Values out = dy;
       for (std::size_t i = 0; i < x.size(); ++i) out[i] *= 3 * x[i] * x[i] + std::exp(x[i]);
       return out;
     },
     [](const Values& x, const Values& dy, std::size_t) {
       Values out = dy;
       for (std::size_t i = 0; i < x.size(); ++i) out[i] *= x[i] * x[i] + std::exp(x[i]);
       return out;
     },
     "with a factor of 1 for 3 of",
     [](const Values& x, const Values& dy, std::size_t) {
       Values out = dy;
       for (std::size_t i = 0; i < x.size(); ++i) out[i] *= 3 * x[i] * x[i] - std::exp(x[i]);
       return out;
     }},
    {"overflow_in_fp16", "fp32[8,16]", "y = square(300 * x) / 90000", false,
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return v * v; }); },
     [](const Values& x, const Values&, std::size_t) {
       return each(rounded(each(x, [](double v) { return 90000 * v * v; }), kFp16), [](double v) { return v / 90000; });
     },
     "of 128 overflow",
     [](const Values& x, const Values&, std::size_t) {
       return each(rounded(each(x, [](double v) { return 90000 * v * v; }), kBf16), [](double v) { return v / 90000; });
     }},
    {"one_window_for_another", "fp32[8,6]", "y = slice(x, -1, 0, 3) * exp(slice(x, -1, 3, 6))", false,
     [](const Values& x, const Values&, std::size_t) { return gated(x, 0, 3); },
     [](const Values& x, const Values&, std::size_t) { return gated(x, 0, 0); }, "with x[.., 0:3] for x[.., 3:6]",
     [](const Values& x, const Values&, std::size_t) { return gated(x, 3, 0); }},
    {"windows_exchanged", "fp32[8,6]", "y = slice(x, -1, 0, 3) * exp(slice(x, -1, 3, 6))", false,
     [](const Values& x, const Values&, std::size_t) { return gated(x, 0, 3); },
     [](const Values& x, const Values&, std::size_t) { return gated(x, 3, 0); },
     "with x[.., 0:3] and x[.., 3:6] exchanged",
     [](const Values& x, const Values&, std::size_t) { return gated(x, 3, 3); }},
    {"underflow_in_fp16", "fp32[8,16]", "y = square(0.001 * x) * 1000000", false,
     [](const Values& x, const Values&, std::size_t) { return each(x, [](double v) { return v * v; }); },
     [](const Values& x, const Values&, std::size_t) {
       return each(rounded(each(x, [](double v) { return 1e-6 * v * v; }), kFp16), [](double v) { return v * 1e6; });
     },
     "of 128 underflow to 0",
     [](const Values& x, const Values&, std::size_t) {
       return each(rounded(each(x, [](double v) { return 1e-6 * v * v; }), kBf16), [](double v) { return v * 1e6; });
     }},
};

/// An op y of x by that formula whose kernel is `body` (its forward, or its backward where the formula has a gradient).
OpDef small_op(const Slip& slip, Body body) {
  OpDef op;
  op.signature = {.name = "small",
                  .inputs = {{.name = "x", .dims = "N D", .differentiable = slip.gradient}},
                  .outputs = {{.name = "y"}},
                  .dims = {{"N", {2, 3, 4}}, {"D", {3, 5, 7}}}};
  op.forms = {reference::form_from_text(op.signature, "formula", slip.formula)};
  const auto run = [](const kernels::KernelCall& call, const char* to, Body work) {
    const TensorView* const dy = call.find("dy");
    const Values x = to_doubles(call.at("x")), g = dy == nullptr ? Values(x.size(), 1.0) : to_doubles(*dy);
    from_doubles(rounded(work(x, g, static_cast<std::size_t>(call.at("x").shape.last())), kFp32), call.at(to));
  };
  const Body cube = [](const Values& x, const Values&, std::size_t) {
    return each(x, [](double v) { return v * v * v; });
  };
  const Body cube_and_exp = [](const Values& x, const Values&, std::size_t) {
    return each(x, [](double v) { return v * v * v + std::exp(v); });
  };
  const Body with_gradient = std::string_view(slip.formula).find("exp") == std::string_view::npos ? cube : cube_and_exp;
  op.kernel.forward = [=, forward = slip.gradient ? with_gradient : body](const kernels::KernelCall& call) {
    run(call, "y", forward);
  };
  op.kernel.backward = [=](const kernels::KernelCall& call) {
    if (call.find("dx") != nullptr) run(call, "dx", body);
  };
  return op;
}

std::string cause_of(const Slip& slip, Body body) {
  const OpDef op = small_op(slip, body);
  const CaseResult result =
      run_case(op, parse_call("small(x=" + std::string(slip.call) + ",seed=1)", op.signature), {});
  const CheckResult* const check = deciding_check(result);
  return check == nullptr || check->code == Code::none ? "nothing found"
                                                       : std::string(ampcheck::name(check->code)) + " " + check->cause;
}

class SlipsOfSmallFormulas : public ::testing::TestWithParam<Slip> {};
INSTANTIATE_TEST_SUITE_P(Planted, SlipsOfSmallFormulas, ::testing::ValuesIn(kSlips),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(SlipsOfSmallFormulas, AreNamedAndNotSaidOfOthers) {
  const Slip& slip = GetParam();
  EXPECT_EQ(cause_of(slip, slip.right), "nothing found");
  const std::string named = cause_of(slip, slip.wrong), other = cause_of(slip, slip.other);
  EXPECT_TRUE(contains(named, slip.words)) << named;
  EXPECT_FALSE(contains(other, slip.words)) << other;
  EXPECT_NE(other, "nothing found");
}

/// An optional input that stands in two places of the formula: no one change of it leaves it out.
TEST(Causes, AnInputThatIsLeftOutIsNamed) {
  const auto cause = [](double (*value)(double x, double w)) {
    OpDef op;
    op.signature = {.name = "small",
                    .inputs = {{.name = "x", .dims = "N D", .differentiable = false},
                               {.name = "w", .dims = "N D", .optional = true, .differentiable = false}},
                    .outputs = {{.name = "y"}},
                    .dims = {{"N", {2, 3, 4}}, {"D", {3, 5, 7}}}};
    op.forms = {reference::form_from_text(op.signature, "formula", "y = given(w, x * w + exp(w), x)")};
    op.kernel.forward = [value](const kernels::KernelCall& call) {
      Values y = to_doubles(call.at("x"));
      const Values w = call.find("w") == nullptr ? Values() : to_doubles(call.at("w"));
      for (std::size_t i = 0; i < w.size(); ++i) y[i] = value(y[i], w[i]);
      from_doubles(rounded(std::move(y), kFp32), call.at("y"));
    };
    op.kernel.backward = [](const kernels::KernelCall&) {};
    const CaseResult result = run_case(op, parse_call("small(x=fp32[8,16],w=fp32,seed=1)", op.signature), {});
    const CheckResult* const check = deciding_check(result);
    return check == nullptr || check->code == Code::none
               ? "nothing found"
               : std::string(ampcheck::name(check->code)) + " " + check->cause;
  };
  EXPECT_EQ(cause([](double x, double w) { return x * w + std::exp(w); }), "nothing found");
  const std::string left_out = cause([](double x, double) { return x; }),
                    other = cause([](double x, double w) { return x * w; });
  EXPECT_TRUE(contains(left_out, "right for a call without 'w': the optional input is left out")) << left_out;
  EXPECT_FALSE(contains(other, "left out")) << other;
}

/// The last row is never looked up.
TEST(Causes, AnIndexThatIsClampedTooEarlyIsNamed) {
  const auto cause = [](const std::function<double(double)>& slip) {
    OpDef op = *find_op("embedding");
    op.kernel.forward = [slip, forward = op.kernel.forward](const kernels::KernelCall& call) {
      Values index = to_doubles(call.at("index"));
      for (double& i : index) i = slip(i);
      const Tensor changed(Dtype::i64, call.at("index").shape);
      from_doubles(index, changed.view());
      kernels::KernelCall own = call;
      for (auto& [name, view] : own.tensors)
        if (name == "index") view = changed.view();
      forward(own);
    };
    const CaseResult result =
        run_case(op, parse_call("embedding(weight=fp32[11,7],index=i64[40],seed=1)", op.signature), {});
    const CheckResult* const check = deciding_check(result);
    return check == nullptr || check->code == Code::none ? "nothing found" : check->cause;
  };
  EXPECT_EQ(cause([](double i) { return i; }), "nothing found");
  const std::string clamped = cause([](double i) { return std::min(i, 9.0); }),
                    first = cause([](double) { return 0.0; });
  EXPECT_TRUE(contains(clamped, "clamped one too early")) << clamped;
  EXPECT_FALSE(contains(first, "clamped one too early")) << first;
}

}  // namespace
}  // namespace ampcheck::checks
