// SPDX-License-Identifier: Apache-2.0
// What a judge and the process of its kernels agree on. Only tools/workers/runner.cpp and runner_main.cpp include this.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/tensor.h"
#include "tools/workers/message.h"

namespace ampcheck::tools {

inline constexpr int kSharedMemory = 6;                        ///< descriptor of the runner
inline constexpr std::uint64_t kNoMemory = ~std::uint64_t{0};  ///< offset of a tensor without elements or place

/// What became of a call.
enum class CallEnd : std::uint8_t { done, kernel_error, no_memory, environment_error, plugin_error, other_error };
/// What became of loading the library: the second message of a runner. The first one is `up`: it is about to load it,
/// and what ends it from here on is the library's doing. A process that finds no memory says so with the
/// same number, wherever it is.
enum class LoadEnd : std::uint8_t {
  done,
  plugin_error,
  no_memory = static_cast<std::uint8_t>(CallEnd::no_memory),
  environment_error,
  other_error,
  up
};

/// Bytes from the first element to the end of the last one.
inline std::size_t reach_of(const TensorView& view) {
  if (view.count() == 0) return 0;
  std::int64_t last = 0;
  for (int i = 0; i < view.shape.rank; ++i) last += (view.shape[i] - 1) * view.strides[i];
  return static_cast<std::size_t>((last + 1) * bytes(view.dtype));
}

}  // namespace ampcheck::tools
