// SPDX-License-Identifier: Apache-2.0
// Messages between two of our processes, through a pipe.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

namespace ampcheck::tools {

inline constexpr std::uint64_t kMostMessage = 16 << 20;

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

/// A message behind its length.
inline std::string framed(const std::string& text) {
  const std::uint64_t size = text.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + text;
}
/// False if the other side is gone.
inline bool send_message(int file, const std::string& text) { return write_whole(file, framed(text)); }
inline bool receive_message(int file, std::string& text) {
  std::uint64_t size = 0;
  if (!read_whole(file, reinterpret_cast<char*>(&size), sizeof size) || size > kMostMessage) return false;
  text.resize(size);
  return read_whole(file, text.data(), size);
}

}  // namespace ampcheck::tools
