// SPDX-License-Identifier: Apache-2.0
// A kernel whose processor takes subnormals for zero: right where the contract says so, named where it does not.
#include <gtest/gtest.h>
#include <pmmintrin.h>
#include <xmmintrin.h>

#include "checks/data/regimes.h"
#include "checks/define/op_def.h"
#include "checks/run/runner.h"

namespace ampcheck::checks {
namespace {

/// Runs a kernel with flush-to-zero and denormals-are-zero, as code of -ffast-math does.
kernels::KernelFn flushing(kernels::KernelFn kernel) {
  return [kernel](const kernels::KernelCall& call) {
    const unsigned before = _mm_getcsr();
    _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
    _MM_SET_DENORMALS_ZERO_MODE(_MM_DENORMALS_ZERO_ON);
    kernel(call);
    _mm_setcsr(before);
  };
}

OpDef flushing_op(const char* name, bool declared) {
  OpDef op = *find_op(name);
  op.kernel.forward = flushing(op.kernel.forward);
  op.kernel.backward = flushing(op.kernel.backward);
  op.signature.precision.flushes_subnormals = declared;
  return op;
}

constexpr const char* kOps[] = {"add",      "mul",     "div",    "sum",    "mean",
                                "rms_norm", "softmax", "linear", "swiglu", "mse_loss"};

TEST(Flushing, IsRightWhereTheContractSaysSo) {
  for (const char* name : kOps) {
    const OpDef op = flushing_op(name, true);
    for (const Dtype storage : {Dtype::fp32, Dtype::bf16})
      for (const char* range : {"normal", "subnormal", "scale-20", "loguniform30"})
        for (const char* cotangent : {"mixed", "near_subnormal", "small"}) {
          OpCall call = default_call(op.signature, storage);
          call.range = range;
          call.cotangent = cotangent;
          const CaseResult result = run_case(op, call, {});
          EXPECT_FALSE(convicts(result.verdict)) << result.name << " " << result.code;
        }
  }
}

TEST(Flushing, IsNamedWhereItDoesNot) {
  int named = 0;
  for (const char* name : kOps) {
    const OpDef op = flushing_op(name, false);
    OpCall call = default_call(op.signature, Dtype::fp32);
    call.range = "subnormal";
    call.cotangent = "near_subnormal";
    const CaseResult result = run_case(op, call, {});
    if (!convicts(result.verdict)) continue;
    EXPECT_TRUE(result.code == Code::ac303 || result.verdict == Verdict::structural)
        << result.name << " " << result.code;
    named += result.code == Code::ac303;
  }
  EXPECT_GE(named, 3);
}

}  // namespace
}  // namespace ampcheck::checks
