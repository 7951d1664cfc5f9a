// SPDX-License-Identifier: Apache-2.0
// Patterns: sums over rows, one per column (the gradients of weights and biases), and the sum over a whole tensor.
//
// The order of a column's sum: lane l of 32 takes rows l, l + 32, ... in this order, starting from 0; then the lanes join
// as a tree, lane l with l + 16, l + 8, l + 4, l + 2, l + 1. A whole tensor is summed the same way over its row-major
// elements with 1024 lanes. On CUDA a lane is a thread of one block, so both devices give the same bits.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/launch.h"
#include "src/parallel.h"

namespace ampcheck::kernels {

/// The sum as it is, and the sum over n.
struct Same {
  AMPCHECK_HD float operator()(float sum) const { return sum; }
};
struct Divide {
  float by;
  AMPCHECK_HD float operator()(float sum) const { return math::divide(sum, by); }
};

namespace detail {

inline constexpr std::int64_t kColumnBlock = 512;  ///< columns summed together on the CPU
inline constexpr int kTensorLanes = 1024;

/// lane[l * stride + i] for i < n and all lanes becomes the tree's sum in lane 0.
inline void join_lanes(float* lane, int lanes, std::int64_t stride, std::int64_t n) {
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) {
      float* to = lane + l * stride;
      const float* from = lane + (l + width) * stride;
      AMPCHECK_VECTOR_LOOP
      for (std::int64_t i = 0; i < n; ++i) to[i] += from[i];
    }
}

/// sum[i] += f(in...[first + i]) for i < n, n <= kTensorLanes.
template <class F, std::size_t N, std::size_t... I>
void add_run(const F& f, const std::array<Operand, N>& in, std::int64_t first, std::int64_t n,
             float* __restrict__ sum, std::index_sequence<I...>) {
  alignas(64) float buffers[N][kTensorLanes];
  const float* const from[N] = {read(in[I], first, n, buffers[I])...};
  AMPCHECK_VECTOR_LOOP
  for (std::int64_t i = 0; i < n; ++i) sum[i] += f(from[I][i]...);
}

template <class F, class Finish, std::size_t N>
struct SumArguments {
  F f;
  Finish finish;
  Operand in[N];
  Operand out;
  std::int64_t rows, columns;  ///< for a whole tensor: one row
};

template <class F, class Finish, std::size_t N>
void column_reduce_cpu(const SumArguments<F, Finish, N>& a) {
  std::array<Operand, N> in;
  std::copy(a.in, a.in + N, in.begin());
  parallel_for(a.columns, kColumnBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = begin; first < end; first += kColumnBlock) {
      const std::int64_t n = std::min(kColumnBlock, end - first);
      alignas(64) float lane[kLanes * kColumnBlock];
      std::fill_n(lane, kLanes * n, 0.0f);
      for (std::int64_t row = 0; row < a.rows; ++row)
        add_run(a.f, in, row * a.columns + first, n, lane + row % kLanes * n,
                std::make_index_sequence<N>());
      join_lanes(lane, kLanes, n, n);
      for (std::int64_t i = 0; i < n; ++i) lane[i] = a.finish(lane[i]);
      write(a.out, first, n, lane);
    }
  });
}

template <class F, class Finish, std::size_t N>
void tensor_reduce_cpu(const SumArguments<F, Finish, N>& a) {
  std::array<Operand, N> in;
  std::copy(a.in, a.in + N, in.begin());
  alignas(64) float lane[kTensorLanes] = {};
  for (std::int64_t i = 0; i < a.columns; i += kTensorLanes)
    add_run(a.f, in, i, std::min<std::int64_t>(kTensorLanes, a.columns - i), lane, std::make_index_sequence<N>());
  join_lanes(lane, kTensorLanes, 1, 1);
  const float result = a.finish(lane[0]);
  write(a.out, 0, 1, &result);
}

#if AMPCHECK_CUDA_COMPILER

template <class F, class Finish, std::size_t N, std::size_t... I>
__device__ __forceinline__ float term_at(const SumArguments<F, Finish, N>& a, std::int64_t i,
                                         std::index_sequence<I...>) {
  return a.f(load(a.in[I], i)...);
}

/// A block sums 32 columns: threadIdx.x is the column, threadIdx.y the lane.
template <class F, class Finish, std::size_t N>
__global__ void column_kernel(const __grid_constant__ SumArguments<F, Finish, N> a) {
  __shared__ float lane[kLanes][kLanes + 1];
  for (std::int64_t block = blockIdx.x; block * kLanes < a.columns; block += gridDim.x) {
    const std::int64_t column = block * kLanes + threadIdx.x;
    float sum = 0;
    if (column < a.columns)
      for (std::int64_t row = threadIdx.y; row < a.rows; row += kLanes)
        sum += term_at(a, row * a.columns + column, std::make_index_sequence<N>());
    lane[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    for (int width = kLanes / 2; width > 0; width /= 2) {
      if (threadIdx.y < width) lane[threadIdx.y][threadIdx.x] += lane[threadIdx.y + width][threadIdx.x];
      __syncthreads();
    }
    if (threadIdx.y == 0 && column < a.columns) store(a.out, column, a.finish(lane[0][threadIdx.x]));
    __syncthreads();  // the next columns reuse the lanes
  }
}

template <class F, class Finish, std::size_t N>
__global__ void tensor_kernel(const __grid_constant__ SumArguments<F, Finish, N> a) {
  __shared__ float lane[kTensorLanes];
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < a.columns; i += kTensorLanes)
    sum += term_at(a, i, std::make_index_sequence<N>());
  lane[threadIdx.x] = sum;
  __syncthreads();
  for (int width = kTensorLanes / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) lane[threadIdx.x] += lane[threadIdx.x + width];
    __syncthreads();
  }
  if (threadIdx.x == 0) store(a.out, 0, a.finish(lane[0]));
}

#endif

}  // namespace detail

/// out[j] = finish(sum over i of f(in[i,j]...)): j is the last axis of `shape`, i all others, row-major. The inputs
/// broadcast to `shape`; out has as many elements as the last axis. Does nothing if out is null.
template <class F, class Finish, class... Views>
void column_reduce(const KernelCall& call, const TensorView* out, const Shape& shape, const F& f, const Finish& finish,
                   const Views&... in) {
  if (out == nullptr || shape.last() == 0) return;
  const detail::SumArguments<F, Finish, sizeof...(in)> arguments{
      f, finish, {Operand(expand(in, shape))...}, Operand(*out), row_count(shape), shape.last()};
  if (call.device == Device::cpu) return detail::column_reduce_cpu(arguments);
#if AMPCHECK_CUDA_COMPILER
  detail::column_kernel<<<grid_for(shape.last(), kLanes), dim3(kLanes, kLanes), 0, stream_of(call)>>>(arguments);
  check_cuda(cudaGetLastError(), "column_reduce");
#else
  throw_no_cuda();
#endif
}

/// out[0] = finish(sum over all elements of f(in...)); the inputs broadcast to `shape`.
template <class F, class Finish, class... Views>
void tensor_reduce(const KernelCall& call, const TensorView& out, const Shape& shape, const F& f, const Finish& finish,
                   const Views&... in) {
  const detail::SumArguments<F, Finish, sizeof...(in)> arguments{
      f, finish, {Operand(expand(in, shape))...}, Operand(out), 1, shape.count()};
  if (call.device == Device::cpu) return detail::tensor_reduce_cpu(arguments);
#if AMPCHECK_CUDA_COMPILER
  detail::tensor_kernel<<<1, detail::kTensorLanes, 0, stream_of(call)>>>(arguments);
  check_cuda(cudaGetLastError(), "tensor_reduce");
#else
  throw_no_cuda();
#endif
}

}  // namespace ampcheck::kernels
