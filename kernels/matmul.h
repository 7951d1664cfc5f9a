// SPDX-License-Identifier: Apache-2.0
// Pattern: matrix products of any strides, fp32 accumulation.
//
// The order on the CPU and in the plain CUDA kernel: one fp32 chain per output, acc = fma(a[i,k], b[k,j], acc) for
// k = 0, 1, 2, ... from acc = 0. On CUDA cuBLAS is used where it can be loaded (any order, declared so in the
// contract).
#pragma once

#include "kernels/launch.h"

namespace ampcheck::kernels {

/// A matrix in the memory of a tensor.
struct Matrix {
  const void* data = nullptr;
  Dtype dtype = Dtype::fp32;
  std::int64_t rows = 0, columns = 0;
  std::int64_t row_stride = 0, column_stride = 0;  ///< in elements

  Matrix() = default;
  /// The last two axes of a view.
  explicit Matrix(const TensorView& view);
  Matrix(const float* dense, std::int64_t row_count, std::int64_t column_count);
  Matrix transposed() const;
};

/// CPU: c[i * columns + j] continues its chain over k with a[i,k] b[k,j], or begins it at 0; c is dense fp32 of a.rows
/// x b.columns.
void matmul_accumulate(const Matrix& a, const Matrix& b, float* c, bool from_zero = false);

/// out[i,j] = sum over k of a[i,k] b[k,j], + bias[j] if there is one, rounded once. Nothing if out is null.
void matmul(const KernelCall& call, const Matrix& a, const Matrix& b, const TensorView* bias, const TensorView* out);

}  // namespace ampcheck::kernels
