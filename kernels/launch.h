// SPDX-License-Identifier: Apache-2.0
// What every pattern is made of: a tensor as a kernel sees it (Operand), reading and writing it as fp32 on both
// devices, and the launch of a CUDA kernel. The dtype is looked up once a run of elements on the CPU and by a uniform
// branch on the GPU, so that no functor is compiled once per dtype.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/kernel.h"
#include "kernels/storage.h"

#if defined(__CUDACC__)
#define AMPCHECK_CUDA_COMPILER 1
#include <cuda_runtime.h>
#endif

/// Asserts that the iterations of the next loop are independent.
#define AMPCHECK_VECTOR_LOOP _Pragma("GCC ivdep")

namespace ampcheck::kernels {

/// Lanes of a row or column reduction: the width of a warp, and four vectors of the CPU.
inline constexpr int kLanes = 32;

/// A tensor as a kernel sees it: elements by row-major index, any strides, dimensions merged where they can be.
/// Without data every element is `fill`: an absent optional tensor.
struct Operand {
  void* data = nullptr;
  Dtype dtype = Dtype::fp32;
  float fill = 0;
  int rank = 1;
  std::int64_t extent[kMaxRank] = {};
  std::int64_t stride[kMaxRank] = {};

  Operand() = default;
  explicit Operand(const TensorView& view, float fill_value = 0);
  /// An absent tensor of `count` elements.
  Operand(std::int64_t count, float fill_value);

  AMPCHECK_HD std::int64_t offset(std::int64_t index) const {
    std::int64_t at = 0;
    for (int i = rank - 1; i > 0; --i) {
      at += index % extent[i] * stride[i];
      index /= extent[i];
    }
    return at + index * stride[0];
  }
};

/// `view` seen in `shape` by zero strides, aligned at the last axis: [D] and [N,1] become [N,D].
TensorView expand(const TensorView& view, const Shape& shape);
/// The same memory with these axes in this order.
TensorView permute(const TensorView& view, std::initializer_list<int> axes);
/// The operand of an optional tensor expanded to a shape; `fill` everywhere if it is null.
Operand expanded_or(const TensorView* view, const Shape& shape, float fill);
/// Elements of all axes but the last.
std::int64_t row_count(const Shape& shape);

// ---- CPU ----------------------------------------------------------------------------------------------------------

/// Elements [first, first + n), row-major, as fp32: a pointer into the tensor where it is dense fp32, else into buffer.
const float* read(const Operand& from, std::int64_t first, std::int64_t n, float* buffer);
/// Rounds n values (RNE) into elements [first, first + n).
void write(const Operand& to, std::int64_t first, std::int64_t n, const float* values);
std::int64_t read_index(const Operand& from, std::int64_t index);

// ---- CUDA ---------------------------------------------------------------------------------------------------------

/// Throws: this build or this machine cannot run a kernel on the cuda device.
[[noreturn]] void throw_no_cuda();

#if AMPCHECK_CUDA_COMPILER

__device__ __forceinline__ float load(const Operand& from, std::int64_t index) {
  if (from.data == nullptr) return from.fill;
  const std::int64_t at = from.offset(index);
  switch (from.dtype) {
    case Dtype::bf16: return to_float(static_cast<const Bf16*>(from.data)[at]);
    case Dtype::fp16: return to_float(static_cast<const Fp16*>(from.data)[at]);
    default: return static_cast<const float*>(from.data)[at];
  }
}

__device__ __forceinline__ void store(const Operand& to, std::int64_t index, float value) {
  const std::int64_t at = to.offset(index);
  switch (to.dtype) {
    case Dtype::bf16: static_cast<Bf16*>(to.data)[at] = from_float<Bf16>(value); break;
    case Dtype::fp16: static_cast<Fp16*>(to.data)[at] = from_float<Fp16>(value); break;
    default: static_cast<float*>(to.data)[at] = value;
  }
}

__device__ __forceinline__ std::int64_t load_index(const Operand& from, std::int64_t index) {
  return static_cast<const std::int64_t*>(from.data)[from.offset(index)];
}

inline void check_cuda(cudaError_t status, const char* where) {
  if (status != cudaSuccess)
    throw Error("[" + std::string(where) + "] CUDA failed, got " + cudaGetErrorName(status) + " (" +
                cudaGetErrorString(status) + "), want cudaSuccess");
}

inline cudaStream_t stream_of(const KernelCall& call) { return static_cast<cudaStream_t>(call.stream); }

/// Blocks of a grid-stride loop over `work` pieces, `per_block` at a time.
inline unsigned grid_for(std::int64_t work, std::int64_t per_block) {
  const std::int64_t blocks = (work + per_block - 1) / per_block;
  return static_cast<unsigned>(blocks < 65536 ? blocks : 65536);
}

#endif

}  // namespace ampcheck::kernels
