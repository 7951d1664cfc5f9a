// SPDX-License-Identifier: Apache-2.0
// Numbers that a kernel loses to the ends of the range are RANGE (AC203), of these elements alone; NaN and zero of
// another origin stay what they were.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "checks/run/run_case.h"
#include "src/op_call.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::contains;

CaseResult judged(const std::string& name) {
  const OpDef& op = *find_op(op_of(name));
  return run_case(op, parse_call(name, op.signature), {});
}

struct Case {
  const char* name;
  Code code;
  std::string words;
};

TEST(LostToRange, WhatIsRightAtSmallInputsOverflows) {
  const std::string overflow = "a number on the way overflows: at inputs of at most 4 it is not lost";
  for (const Case& one : std::vector<Case>{
           {"sigmoid.overflows(x=fp32[5,67],range=spike,seed=1)", Code::ac203, overflow},
           {"silu.overflows(x=bf16[5,67],range=spike,seed=1)", Code::ac203, overflow},
           {"softplus.overflows(x=fp16[5,67],range=spike,seed=1)", Code::ac203, overflow},
           {"softmax.no_shift(x=fp32[5,67],range=spike,seed=1)", Code::ac203, overflow},
           {"log_softmax.log_of_softmax(x=fp16[5,67],range=spike,seed=1)", Code::ac203, overflow},
           {"sigmoid.slope_by_square(x=fp32[5,67],range=spike,seed=1)", Code::ac203, overflow},
           {"attention.no_shift(q=fp32[2,2,5,7],causal=0,range=sweep20,seed=1)", Code::ac203, overflow},
           {"exp.clamped(x=bf16[5,67],range=spike,seed=1)", Code::ac203, "it is clamped or saturates"},
           {"add.saturates(x=fp16[2,1025],range=specials,seed=1)", Code::ac203, "it is clamped or saturates"}}) {
    const CaseResult result = judged(one.name);
    EXPECT_EQ(result.code, one.code) << one.name << " " << name(result.code);
    EXPECT_EQ(std::string(name(result.verdict)), "RANGE") << one.name;
    EXPECT_TRUE(convicts(result.verdict)) << one.name;
    const CheckResult* const check = deciding_check(result);
    ASSERT_NE(check, nullptr);
    EXPECT_TRUE(contains(check->cause, one.words)) << one.name << ": " << check->cause;
    EXPECT_LT(check->failed, check->compared) << "of the elements that are lost alone";
  }
}

/// A sum of squares beyond fp16: every number is divided by infinity.
TEST(LostToRange, ZerosOfATensorThatOverflowsInside) {
  const CaseResult result = judged("rms_norm.squares_in_fp16(x=fp32[5,67],range=scale+8,seed=1)");
  EXPECT_EQ(result.code, Code::ac203);
  const CheckResult* const check = deciding_check(result);
  ASSERT_NE(check, nullptr);
  EXPECT_EQ(check->cause,
            "all of it is zero; a number on the way leaves the range: at inputs of at most 16 it is not lost");
}

/// What follows from an overflow of another tensor is no finding of its own kind.
TEST(LostToRange, GradientsFollow) {
  const CaseResult result = judged("attention.no_shift(q=fp32[2,2,5,7],causal=0,range=sweep20,seed=1)");
  int lost = 0;
  for (const CheckResult& check : result.checks) {
    EXPECT_FALSE(is_wrong_number(check.code)) << check.name() << ": " << check.cause;
    lost += check.code == Code::ac203;
  }
  EXPECT_GT(lost, 3);
}

TEST(LostToRange, OtherNaNsAndZerosAreNot) {
  for (const Case& one : std::vector<Case>{
           {"pow.by_logarithm(x=fp32[5,7],seed=1)", Code::ac102, "NaN"},
           {"cross_entropy.smoothing_over_others(x=fp32[1,1],seed=1)", Code::ac102, "NaN"},
           {"log_softmax.sum_without_tail(x=fp32[5,7],seed=1)", Code::ac102, "a sum leaves out"},
           {"relu.drops_nan(x=fp32[2,1025],range=specials,seed=1)", Code::ac103, "the NaN is dropped"},
           {"div.guarded(x=fp32[5,7],range=signed_zeros,seed=1)", Code::ac103, "finite where infinity is due"},
           {"gelu.no_tail(x=fp32[2,1025],seed=1)", Code::ac101, "0 where x is below a number between -3"},
           {"elu.no_tail(x=fp32[2,1025],range=sweep20,seed=1)", Code::ac101, "written as zero"},
           {"mul.dead_dy(x=fp32[2,1025],range=scale+8,seed=1)", Code::ac101, "zero"},
           {"sigmoid.overflows(x=fp32[5,7],seed=1)", Code::none, ""},
           {"softmax(x=fp32[5,67],range=spike,seed=1)", Code::none, ""}}) {
    const CaseResult result = judged(one.name);
    EXPECT_EQ(result.code, one.code) << one.name << " " << name(result.code);
    if (const CheckResult* const check = deciding_check(result); check != nullptr) {
      EXPECT_TRUE(contains(check->cause, one.words)) << one.name << ": " << check->cause;
    }
  }
}

}  // namespace
}  // namespace ampcheck::checks
