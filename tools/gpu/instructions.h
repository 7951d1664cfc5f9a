// SPDX-License-Identifier: Apache-2.0
// Single tensor-core instructions on given numbers: for each vector, d = a . b + c as the hardware computes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ampcheck::gpu {

enum class Input { fp16, bf16, tf32, e4m3, e5m2 };
enum class Output { fp32, fp16 };
/// Both are PTX: mma.sync, which a warp issues (for 16 bits and tf32 through wmma), and Hopper's wgmma, of 8 bits.
enum class Unit { mma, wgmma };

/// Vectors of k elements each, k = extent(input); bits in the input's format (tf32: fp32), c and d in the output's.
struct Vectors {
  Input input = Input::fp16;
  Output output = Output::fp32;
  std::vector<std::uint32_t> a, b;  ///< count * k
  std::vector<std::uint32_t> c;     ///< count
  std::size_t count() const { return c.size(); }
};

/// Products of one instruction: 16 of 16 bits, 8 of tf32, 32 of 8 bits.
inline int extent(Input input) {
  return input == Input::tf32 ? 8 : input == Input::fp16 || input == Input::bf16 ? 16 : 32;
}

/// d of every vector. Throws std::runtime_error where CUDA fails or the GPU has no such instruction.
std::vector<std::uint32_t> run(const Vectors& vectors, Unit unit);

/// Name and compute capability of the GPU, "NVIDIA H100 80GB HBM3 sm_90".
std::string gpu_name();

}  // namespace ampcheck::gpu
