// SPDX-License-Identifier: Apache-2.0
// Patterns: sums over rows, one per column (the gradients of weights and biases), and the sum over a whole tensor.
//
// The order of a column's sum: lane l of 32 takes rows l, l + 32, ... in this order, starting from 0; then the lanes
// join as a tree, lane l with l + 16, l + 8, l + 4, l + 2, l + 1. A whole tensor is summed the same way over its
// row-major elements with 1024 lanes. On CUDA a lane is a thread of one block, so both devices give the same bits.
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

/// How many of a functor's last operands hold one number a row: F::kOnePerRow where there is one.
template <class F>
constexpr std::size_t one_per_row() {
  if constexpr (requires { F::kOnePerRow; }) return F::kOnePerRow;
  return 0;
}

/// The first n of `lanes` times n numbers become the tree's sums over the lanes.
inline void join_lanes(float* lane, int lanes, std::int64_t n) {
  for (std::int64_t half = lanes / 2 * n; half >= n && half > 0; half /= 2) {
    const float* from = lane + half;
    AMPCHECK_VECTOR_LOOP
    for (std::int64_t i = 0; i < half; ++i) lane[i] += from[i];
  }
}

/// sum[i] += f(in...[first + i]) for i < n, n <= kTensorLanes; the last kOnePerRow operands are read at `first` alone.
template <std::size_t kOnePerRow, class F, std::size_t N, std::size_t... I>
void add_run(const F& f, const std::array<Operand, N>& in, std::int64_t first, std::int64_t n, float* __restrict__ sum,
             std::index_sequence<I...>) {
  constexpr auto repeats = [](std::size_t which) { return which + kOnePerRow >= N; };
  alignas(64) float buffers[N][kTensorLanes];
  const float* const from[N] = {read(in[I], first, repeats(I) ? 1 : n, buffers[I])...};
  const float same[N] = {(repeats(I) ? *from[I] : 0.0f)...};
  AMPCHECK_VECTOR_LOOP
  for (std::int64_t i = 0; i < n; ++i) sum[i] += f((repeats(I) ? same[I] : from[I][i])...);
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
      for (std::int64_t row = 0; row < a.rows; ++row) {
        float* const sum = lane + row % kLanes * n;
        if (row < kLanes) std::fill_n(sum, n, 0.0f);
        add_run<one_per_row<F>()>(a.f, in, row * a.columns + first, n, sum, std::make_index_sequence<N>());
      }
      if (a.rows < kLanes) std::fill(lane + a.rows * n, lane + kLanes * n, 0.0f);
      join_lanes(lane, kLanes, n);
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
    add_run<0>(a.f, in, i, std::min<std::int64_t>(kTensorLanes, a.columns - i), lane, std::make_index_sequence<N>());
  join_lanes(lane, kTensorLanes, 1);
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
/// broadcast to `shape`; out has as many elements as the last axis. Does nothing if out is null. A functor whose last
/// operands are the same all along a row says how many: static constexpr std::size_t kOnePerRow.
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
