// SPDX-License-Identifier: Apache-2.0
// Pattern: out[i] = f(in0[i], in1[i], ...) over tensors of one shape, any rank and strides.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/launch.h"
#include "src/parallel.h"

namespace ampcheck::kernels {

/// The gradient of a sum, a broadcast.
struct Copy {
  AMPCHECK_HD float operator()(float x) const { return x; }
};

namespace detail {

/// Elements converted at a time on the CPU: a few KiB per operand, so that all stay in the first-level cache.
inline constexpr std::int64_t kChunk = 512;
/// Elements of one parallel piece.
inline constexpr std::int64_t kPiece = 32 * kChunk;

template <class F, std::size_t N, std::size_t... I>
void elementwise_chunk(const F& f, const std::array<Operand, N>& in, const Operand& out, std::int64_t first,
                       std::int64_t n, std::index_sequence<I...>) {
  alignas(64) float buffers[N + 1][kChunk];
  const float* const from[N] = {read(in[I], first, n, buffers[I])...};
  float* __restrict__ result = buffers[N];
  AMPCHECK_VECTOR_LOOP
  for (std::int64_t i = 0; i < n; ++i) result[i] = f(from[I][i]...);
  write(out, first, n, result);
}

#if AMPCHECK_CUDA_COMPILER
template <class F, std::size_t N>
struct ElementwiseArguments {
  F f;
  Operand in[N];
  Operand out;
  std::int64_t count;
};

template <class F, std::size_t N, std::size_t... I>
__device__ __forceinline__ float apply_at(const ElementwiseArguments<F, N>& a, std::int64_t i,
                                          std::index_sequence<I...>) {
  return a.f(load(a.in[I], i)...);
}

template <class F, std::size_t N>
__global__ void elementwise_kernel(const ElementwiseArguments<F, N> a) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < a.count; i += step)
    store(a.out, i, apply_at(a, i, std::make_index_sequence<N>()));
}
#endif

template <class F, std::size_t N>
void elementwise_operands(const KernelCall& call, const F& f, const std::array<Operand, N>& in, const Operand& out,
                          std::int64_t count) {
  if (count == 0) return;
  if (call.device == Device::cuda) {
#if AMPCHECK_CUDA_COMPILER
    ElementwiseArguments<F, N> arguments{f, {}, out, count};
    std::copy(in.begin(), in.end(), arguments.in);
    elementwise_kernel<<<grid_for(count, 256), 256, 0, stream_of(call)>>>(arguments);
    check_cuda(cudaGetLastError(), "elementwise");
    return;
#else
    throw_no_cuda();
#endif
  }
  parallel_for(count, kPiece, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += kChunk)
      elementwise_chunk(f, in, out, i, std::min(kChunk, end - i), std::make_index_sequence<N>());
  });
}

}  // namespace detail

/// out = f(in...), every element once; the inputs broadcast to the shape of out. Does nothing if out is null (a
/// gradient nobody asked for). f is a functor of floats, `AMPCHECK_HD float operator()(float, ...) const`. An output
/// may overwrite an input.
template <class F, class... Views>
void elementwise(const KernelCall& call, const TensorView* out, const F& f, const Views&... in) {
  if (out == nullptr) return;
  const std::array<Operand, sizeof...(in)> operands = {Operand(expand(in, out->shape))...};
  detail::elementwise_operands(call, f, operands, Operand(*out), out->count());
}

}  // namespace ampcheck::kernels
