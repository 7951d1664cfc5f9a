// SPDX-License-Identifier: Apache-2.0
// cuBLAS, loaded on first use: a program linked to it takes 170 ms to start.
#pragma once

#include "kernels/matmul.h"
#include "src/accumulator.h"

namespace ampcheck::kernels {

/// True if the library can be loaded and takes this product: one dtype, no zero extents or strides it has no name for.
bool can_use_cublas(const Matrix& a, const Matrix& b);

/// From now on matrix products may take it (as at the start), or not: then they are the plain chains of
/// kernels/matmul.h, with the CPU's bits.
void use_cublas(bool on);

/// The tensor cores that its products of 16-bit matrices run on: those of the GPU that is there; none without cuBLAS.
TensorCore cublas_cores();

/// sums[i * columns + j] = sum over k of a[i,k] b[k,j] in fp32 (no tf32), in the library's order, on that stream.
void cublas_matmul(const Matrix& a, const Matrix& b, float* sums, void* stream);

}  // namespace ampcheck::kernels
