// SPDX-License-Identifier: Apache-2.0
// Kernels of the CPU device whose matrix products run on the model of a GPU's tensor cores (src/tensor_core), to the
// bit.
#pragma once

#include "kernels/kernel.h"
#include "src/tensor_core/product.h"

namespace ampcheck::kernels {

struct Matrix;

/// Where products run, and their order over k. Operands of fp32 are cut off to tf32. A generation that has no
/// instruction for a type (V100 for bf16) leaves its products to fp32 chains.
struct Cores {
  TensorCore generation = TensorCore::h100;
  tensor_core::Order order;
};

/// The kernel with its products on these cores, where it makes them by matmul.h or asks for them here: linear, conv2d,
/// attention.
Kernel on_cores(Kernel kernel, const Cores& cores);

/// Of the kernel that runs in this thread; null: products are fp32 chains.
const Cores* cores_of_thread();

/// c = a b, or c += a b. False, and c as it was, where the cores have no instruction for the types.
bool core_matmul(const Cores& cores, const Matrix& a, const Matrix& b, float* c, bool from_zero);

/// The passes of attention with products on the cores of this thread: what a product takes that is not in memory is
/// rounded to the storage type first. False where this thread has none, or they have no instruction for the type.
bool attention_on_cores(const KernelCall& call, bool backward);

}  // namespace ampcheck::kernels
