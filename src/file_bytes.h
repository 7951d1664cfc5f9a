// SPDX-License-Identifier: Apache-2.0
// Whole files in memory, and little-endian numbers in bytes.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "src/error.h"

namespace ampcheck {

/// The user names a file that is not there.
struct MissingFileError : EnvironmentError {
  using EnvironmentError::EnvironmentError;
};

static_assert(std::endian::native == std::endian::little, "files are read and written as memory stands");

/// All bytes of a regular file. Throws Error that begins with "[what] 'path'".
std::string read_bytes(const std::string& path, const std::string& what);

/// The element `index` of an array of T that begins anywhere in memory.
template <class T>
T take(std::string_view bytes, std::size_t index = 0) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void put(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

/// The CRC-32 of zip, PNG and Python's zlib.crc32.
std::uint32_t crc32(std::string_view bytes);

/// A text of a file as a message shows it: in single quotes, control characters as '?', at most 80 bytes.
std::string quoted_text(std::string_view text);

}  // namespace ampcheck
