// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/cublas.h"
#include "kernels/elementwise.h"
#include "src/parallel.h"

namespace ampcheck::kernels {

namespace {

struct AddBias {
  AMPCHECK_HD float operator()(float sum, float bias) const { return sum + bias; }
};

void matmul_cpu(const Matrix& a, const Matrix& b, const TensorView* bias, const TensorView& out) {
  const std::int64_t rows = out.shape[0], columns = out.shape[1];
  const bool in_place = out.dtype == Dtype::fp32 && out.is_dense();
  const auto sums = std::make_unique_for_overwrite<float[]>(in_place ? 0 : static_cast<std::size_t>(rows * columns));
  float* c = in_place ? out.as<float>() : sums.get();
  matmul_accumulate(a, b, c, true);
  if (in_place && bias == nullptr) return;
  std::vector<float> bias_buffer(static_cast<std::size_t>(columns));
  const Operand to(out);
  const float* add = bias ? read(Operand(*bias), 0, columns, bias_buffer.data()) : nullptr;
  parallel_for(rows, std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(columns, 1)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   float* row = c + i * columns;
                   if (add)
                     for (std::int64_t j = 0; j < columns; ++j) row[j] += add[j];
                   if (!in_place) write(to, i * columns, columns, row);
                 }
               });
}

#if AMPCHECK_CUDA_COMPILER

constexpr int kCudaTile = 16;

__device__ __forceinline__ float element(const Matrix& m, std::int64_t row, std::int64_t column) {
  const std::int64_t at = row * m.row_stride + column * m.column_stride;
  switch (m.dtype) {
    case Dtype::bf16: return to_float(static_cast<const Bf16*>(m.data)[at]);
    case Dtype::fp16: return to_float(static_cast<const Fp16*>(m.data)[at]);
    default: return static_cast<const float*>(m.data)[at];
  }
}

/// A block makes 16 x 16 outputs, a thread one chain.
__global__ void matmul_kernel(const __grid_constant__ Matrix a, const __grid_constant__ Matrix b,
                              const __grid_constant__ Operand bias, const __grid_constant__ Operand out) {
  __shared__ float a_tile[kCudaTile][kCudaTile + 1], b_tile[kCudaTile][kCudaTile + 1];
  const std::int64_t across = (b.columns + kCudaTile - 1) / kCudaTile;
  const std::int64_t tiles = across * ((a.rows + kCudaTile - 1) / kCudaTile);
  for (std::int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const std::int64_t i = t / across * kCudaTile + threadIdx.y, j = t % across * kCudaTile + threadIdx.x;
    float sum = 0;
    for (std::int64_t k0 = 0; k0 < a.columns; k0 += kCudaTile) {
      const std::int64_t k_a = k0 + threadIdx.x, k_b = k0 + threadIdx.y;
      a_tile[threadIdx.y][threadIdx.x] = i < a.rows && k_a < a.columns ? element(a, i, k_a) : 0.0f;
      b_tile[threadIdx.y][threadIdx.x] = k_b < b.rows && j < b.columns ? element(b, k_b, j) : 0.0f;
      __syncthreads();
      for (int k = 0; k < kCudaTile && k0 + k < a.columns; ++k)
        sum = math::fma(a_tile[threadIdx.y][k], b_tile[k][threadIdx.x], sum);
      __syncthreads();
    }
    if (i < a.rows && j < b.columns) {
      if (bias.data != nullptr) sum += load(bias, j);
      store(out, i * b.columns + j, sum);
    }
  }
}

void matmul_cuda(const KernelCall& call, const Matrix& a, const Matrix& b, const TensorView* bias,
                 const TensorView& out) {
  const std::int64_t count = out.count();
  if (count == 0) return;
  if (can_use_cublas(a, b)) {
    // fp32 sums, then bias and one rounding: the library's own epilogue would round twice.
    void* sums = nullptr;
    check_cuda(cudaMallocAsync(&sums, static_cast<std::size_t>(count) * 4, stream_of(call)), "matmul");
    cublas_matmul(a, b, static_cast<float*>(sums), call.stream);
    const TensorView view{sums, Dtype::fp32, out.shape, row_major_strides(out.shape)};
    if (bias)
      elementwise(call, &out, AddBias{}, view, *bias);
    else
      elementwise(call, &out, Copy{}, view);
    check_cuda(cudaFreeAsync(sums, stream_of(call)), "matmul");
    return;
  }
  const std::int64_t tiles =
      ((out.shape[0] + kCudaTile - 1) / kCudaTile) * ((out.shape[1] + kCudaTile - 1) / kCudaTile);
  matmul_kernel<<<grid_for(tiles, 1), dim3(kCudaTile, kCudaTile), 0, stream_of(call)>>>(
      a, b, bias ? Operand(*bias) : Operand(), Operand(out));
  check_cuda(cudaGetLastError(), "matmul");
}

#endif

}  // namespace

void matmul(const KernelCall& call, const Matrix& a, const Matrix& b, const TensorView* bias, const TensorView* out) {
  if (out == nullptr) return;
  if (call.device == Device::cpu) return matmul_cpu(a, b, bias, *out);
#if AMPCHECK_CUDA_COMPILER
  matmul_cuda(call, a, b, bias, *out);
#else
  throw_no_cuda();
#endif
}

}  // namespace ampcheck::kernels
