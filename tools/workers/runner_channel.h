// SPDX-License-Identifier: Apache-2.0
// What a judge and the process of its kernels agree on. Only tools/workers/runner.cpp and runner_main.cpp include this.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

#include "src/tensor.h"

namespace ampcheck::tools {

inline constexpr int kSharedMemory = 6;                        ///< descriptor of the runner
inline constexpr std::uint64_t kNoMemory = ~std::uint64_t{0};  ///< offset of a tensor without elements or place
inline constexpr std::uint64_t kMostMessage = 16 << 20;

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

inline bool write_whole(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = write(file, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

inline bool read_whole(int file, char* to, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = read(file, to, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

/// A message behind its length. False if the other side is gone.
inline bool send_message(int file, const std::string& text) {
  const std::uint64_t size = text.size();
  return write_whole(file, std::string(reinterpret_cast<const char*>(&size), sizeof size) + text);
}
inline bool receive_message(int file, std::string& text) {
  std::uint64_t size = 0;
  if (!read_whole(file, reinterpret_cast<char*>(&size), sizeof size) || size > kMostMessage) return false;
  text.resize(size);
  return read_whole(file, text.data(), size);
}

}  // namespace ampcheck::tools
