// SPDX-License-Identifier: Apache-2.0
// Which accumulator a product has, read off its bits: each one that is known is named, and what is none is not.
#include "checks/run/core_reading.h"

#include <gtest/gtest.h>

#include "checks/case/case_run.h"
#include "checks/define/op_def.h"
#include "checks/run/runner.h"
#include "kernels/cores.h"
#include "kernels/matmul.h"
#include "src/tensor_core/multiply.h"

namespace ampcheck::checks {
namespace {

using tensor_core::Input;
using tensor_core::Unit;

/// y = x weight^T in 8 bits, its result in fp32, by an instruction; `scale` is a planted fault.
OpDef fp8_linear(const tensor_core::Product& product, float scale = 1) {
  OpDef op = *find_op("linear");
  op.signature.precision.storage = {Dtype::e4m3fn};
  op.signature.outputs[0].type = TypeRule::fp32;
  op.signature.inputs.pop_back();  // no bias
  op.forms = {{"product", [](reference::FormulaCall& call) {
                 call.output("y", reference::matmul(call["x"], call["weight"], false, true));
               }}};
  op.kernel.backward = nullptr;
  op.kernel.forward = [product, scale](const kernels::KernelCall& call) {
    const kernels::Matrix x(call.at("x")), w = kernels::Matrix(call.at("weight")).transposed();
    const TensorView& y = call.at("y");
    std::vector<float> d(static_cast<std::size_t>(x.rows * w.columns));
    tensor_core::multiply(product, {x.data, 1, x.rows, x.columns, x.row_stride, x.column_stride},
                          {w.data, 1, w.rows, w.columns, w.row_stride, w.column_stride}, nullptr, d.data());
    for (std::size_t i = 0; i < d.size(); ++i) y.as<float>()[i] = d[i] * scale;
  };
  return op;
}

std::string found(const OpDef& op, Dtype storage) {
  const CoreReadings readings = read_cores(op, storage, 1);
  return readings.found() == nullptr ? "none" : readings.found()->words;
}

TEST(CoreReading, NamesTheCoresOfEachGeneration) {
  const auto on = [](TensorCore core, Dtype storage) {
    OpDef op = *find_op("linear");
    op.kernel = kernels::on_cores(op.kernel, {core, {}});
    return found(op, storage);
  };
  EXPECT_EQ(on(TensorCore::v100, Dtype::fp16), "tensor cores of v100");
  EXPECT_EQ(on(TensorCore::a100, Dtype::fp16), "tensor cores of turing or a100 or ada");
  EXPECT_EQ(on(TensorCore::h100, Dtype::fp16), "tensor cores of h100 or b200");
  EXPECT_EQ(on(TensorCore::h100, Dtype::bf16), "tensor cores of h100 or b200");
  EXPECT_EQ(on(TensorCore::h100, Dtype::fp32), "tensor cores of h100 or b200") << "tf32";
  EXPECT_EQ(found(*find_op("linear"), Dtype::fp16), "fp32, by fused multiply-add or fp32, of rounded products")
      << "products of fp16 are exact in fp32";
}

TEST(CoreReading, NamesWhatHopperDoesInEightBits) {
  const auto by = [](TensorCore core, Unit unit, int promote) {
    return found(
        fp8_linear({{core, Input::e4m3, Input::e4m3, tensor_core::Output::fp32, 32, unit}, {.promote = promote}}),
        Dtype::e4m3fn);
  };
  EXPECT_EQ(by(TensorCore::h100, Unit::wgmma, 0), "tensor cores of h100 (wgmma)");
  EXPECT_EQ(by(TensorCore::h100, Unit::wgmma, 4), "tensor cores of h100 (wgmma, promoted every 4)");
  EXPECT_EQ(by(TensorCore::h100, Unit::mma, 0), "tensor cores of h100 (mma) or b200 (mma)");
  EXPECT_EQ(by(TensorCore::ada, Unit::mma, 0), "tensor cores of ada (mma)");
  EXPECT_EQ(by(TensorCore::b200, Unit::tcgen05, 0), "tensor cores of b200 (tcgen05)");
}

TEST(CoreReading, NamesNothingThatDoesNotGiveEveryBit) {
  const tensor_core::Product wgmma{
      {TensorCore::h100, Input::e4m3, Input::e4m3, tensor_core::Output::fp32, 32, Unit::wgmma}, {}};
  EXPECT_EQ(found(fp8_linear(wgmma, 1 + 0x1p-20f), Dtype::e4m3fn), "none");
  tensor_core::Product split = wgmma;
  split.order.split = 3;
  EXPECT_EQ(found(fp8_linear(split), Dtype::e4m3fn), "none") << "an order that is not among the known ones";
  EXPECT_TRUE(read_cores(*find_op("softmax"), Dtype::fp16, 1).all.empty()) << "no product of matrices";
}

}  // namespace
}  // namespace ampcheck::checks
