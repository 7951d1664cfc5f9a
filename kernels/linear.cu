// SPDX-License-Identifier: Apache-2.0
// y = x weight^T + bias.       Run it alone: ampcheck check linear
// Backward: dx = dy weight, dweight = dy^T x, dbias = sum of dy over rows.
#include "kernels/column_reduce.h"
#include "kernels/matmul.h"

namespace ampcheck::kernels {

namespace {

void forward(const KernelCall& call) {
  matmul(call, Matrix(call.at("x")), Matrix(call.at("weight")).transposed(), call.find("bias"), &call.at("y"));
}

void backward(const KernelCall& call) {
  const TensorView& dy = call.at("dy");
  matmul(call, Matrix(dy), Matrix(call.at("weight")), nullptr, call.find("dx"));
  matmul(call, Matrix(dy).transposed(), Matrix(call.at("x")), nullptr, call.find("dweight"));
  column_reduce(call, call.find("dbias"), dy.shape, Same{}, Same{}, dy);
}

}  // namespace

Kernel linear_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
