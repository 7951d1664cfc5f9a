// SPDX-License-Identifier: Apache-2.0
// z = x + y, one rounding to fp32 and one to storage.       Run it alone: ampcheck check add
//
// The template for a new op. An op is three files and one word: this kernel, the formula (reference/add.h), the op
// definition (checks/ops/add.cpp), and `add` in AMPCHECK_OPS in CMakeLists.txt. The kernel shares nothing with the
// formula: what is written here is what is being judged.
//
// 1. Mathematics is a functor of fp32 values, the same source for the CPU and for CUDA (AMPCHECK_HD). fma is written as
//    math::fma where it is meant; exp, tanh and so on come from kernels/math.h.
// 2. A pattern (elementwise.h, row_reduce.h, column_reduce.h, gather_scatter.h, matmul.h) runs it over tensors of any
//    strides and storage dtype, on both devices, with one written order of arithmetic.
// 3. <op>_kernel() names forward and backward. Tensors are found by the names in the op definition; backward finds the
//    cotangent of output "z" as "dz" and writes the gradient of input "x" to "dx". at() insists, find() gives null for
//    an absent optional tensor or a gradient nobody asked for, which the patterns skip.
#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

struct Add {
  AMPCHECK_HD float operator()(float x, float y) const { return x + y; }
};

void forward(const KernelCall& call) { elementwise(call, &call.at("z"), Add{}, call.at("x"), call.at("y")); }

void backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), Copy{}, call.at("dz"));
  elementwise(call, call.find("dy"), Copy{}, call.at("dz"));
}

}  // namespace

Kernel add_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
