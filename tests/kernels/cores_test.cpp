// SPDX-License-Identifier: Apache-2.0
// linear and attention on tensor cores: the bits of the model, right under its contract, and found where they are not.
#include "kernels/cores.h"

#include <gtest/gtest.h>

#include <cmath>

#include "checks/data/regimes.h"
#include "checks/run/runner.h"
#include "kernels/matmul.h"
#include "src/rounding.h"
#include "src/tensor_core/multiply.h"

namespace ampcheck::kernels {
namespace {

using checks::find_op;
using checks::OpDef;

OpDef on(const char* name, const Cores& cores) {
  OpDef op = *find_op(name);
  op.kernel = on_cores(op.kernel, cores);
  op.signature.precision.accumulate = cores.generation;
  return op;
}

/// A case of an op that is convicted.
std::string convicted(const OpDef& op) {
  for (const Dtype storage : {Dtype::fp32, Dtype::fp16, Dtype::bf16})
    for (const char* range : {"normal", "positive", "loguniform8", "subnormal"}) {
      OpCall call = default_call(op.signature, storage);
      call.range = range;
      const CaseResult result = checks::run_case(op, call, {});
      if (convicts(result.verdict)) return result.name;
    }
  return "";
}

TEST(Cores, ProductsHaveTheModelsBits) {
  constexpr std::int64_t n = 9, k = 77, m = 21;
  std::vector<float> x(n * k), w(m * k), y(n * m), plain(y), want(y);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::exp2(static_cast<float>(i * 377 % 1021) / 128);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::exp2(static_cast<float>(i * 533 % 1013) / 128);
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16, Dtype::fp32}) {
    const Tensor kx(dtype, {n, k}), kw(dtype, {m, k}), ky(Dtype::fp32, {n, m});
    encode(format(dtype), {}, std::span<const float>(x), kx.data());
    encode(format(dtype), {}, std::span<const float>(w), kw.data());
    const Attributes attributes;
    KernelCall call;
    call.attributes = &attributes;
    call.tensors = {{"x", kx.view()}, {"weight", kw.view()}, {"y", ky.view()}};
    const auto result = [&](const Kernel& kernel) {
      kernel.forward(call);
      return std::vector<float>(ky.view().as<float>(), ky.view().as<float>() + n * m);
    };
    const Cores cores{TensorCore::a100, {.split = 2}};
    const tensor_core::Input type = dtype == Dtype::fp16   ? tensor_core::Input::fp16
                                    : dtype == Dtype::bf16 ? tensor_core::Input::bf16
                                                           : tensor_core::Input::tf32;
    const int bytes = ampcheck::bytes(dtype);
    tensor_core::multiply(
        {{.generation = TensorCore::a100, .a = type, .b = type, .k = dtype == Dtype::fp32 ? 8 : 16}, cores.order},
        {kx.data(), bytes, n, k, k, 1}, {kw.data(), bytes, k, m, 1, k}, nullptr, want.data());
    EXPECT_EQ(result(on_cores(find_op("linear")->kernel, cores)), want) << name(dtype);
    EXPECT_EQ(cores_of_thread(), nullptr) << "only while the kernel runs";
    EXPECT_NE(result(find_op("linear")->kernel), want) << name(dtype) << ": fp32 chains are something else";
    EXPECT_NE(result(on_cores(find_op("linear")->kernel, {TensorCore::a100, {}})), want) << "another order";
  }
}

TEST(Cores, RightProductsPassUnderTheirContract) {
  for (const char* name : {"linear", "attention"})
    for (const Cores& cores : {Cores{TensorCore::h100, {}}, Cores{TensorCore::a100, {.split = 2}},
                               Cores{TensorCore::v100, {}}, Cores{TensorCore::b200, {.promote = 1}}})
      EXPECT_EQ(convicted(on(name, cores)), "") << name << " " << static_cast<int>(cores.generation);
}

TEST(Cores, FaultsAreConvicted) {
  OpDef declared_fp32 = on("linear", {TensorCore::h100, {}});
  declared_fp32.signature.precision.accumulate = Dtype::fp32;
  EXPECT_NE(convicted(declared_fp32), "") << "tf32 operands";
  for (const char* name : {"linear", "attention"}) {
    OpDef faulty = on(name, {TensorCore::h100, {}});
    faulty.kernel.forward = [right = faulty.kernel.forward,
                             output = name == std::string("linear") ? "y" : "o"](const KernelCall& call) {
      right(call);
      const TensorView& view = call.at(output);
      std::vector<double> values = to_doubles(view);
      for (double& value : values) value *= 1 + 0x1p-5;
      from_doubles(values, view);
    };
    EXPECT_NE(convicted(faulty), "") << name;
  }
}

}  // namespace
}  // namespace ampcheck::kernels
