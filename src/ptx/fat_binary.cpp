// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "src/ptx/fat_binary.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstring>

#include "src/ptx/text.h"

namespace ampcheck::ptx {

namespace {

constexpr std::uint32_t kMagic = 0xba55ed50u;
constexpr std::uint16_t kPtx = 1;  ///< the kind of a part; machine code has another
constexpr std::uint64_t kLz4 = 0x2000, kZstd = 0x8000;
constexpr std::uint64_t kMostText = std::uint64_t{1} << 28;

template <class T>
T at(const std::uint8_t* bytes, std::size_t offset) {
  T out;
  std::memcpy(&out, bytes + offset, sizeof out);
  return out;
}

[[noreturn]] void damaged(const std::string& what) {
  throw PtxError("[fat binary] got " + what + ", want PTX as nvcc embeds it");
}

/// A function of a library that is loaded on first use.
void* function_of(const char* library, const char* name) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  void* const out = handle == nullptr ? nullptr : dlsym(handle, name);
  if (out == nullptr)
    throw EnvironmentError("[fat binary] got compressed PTX and no " + std::string(library) +
                           ", want it installed, or nvcc --compress-mode=none");
  return out;
}

bool expand_zstd(const std::uint8_t* from, std::size_t bytes, std::string& to) {
  using Decompress = std::size_t (*)(void*, std::size_t, const void*, std::size_t);
  static const auto kDecompress = reinterpret_cast<Decompress>(function_of("libzstd.so.1", "ZSTD_decompress"));
  return kDecompress(to.data(), to.size(), from, bytes) == to.size();
}

bool expand_lz4(const std::uint8_t* from, std::size_t bytes, std::string& to) {
  using Decompress = int (*)(const char*, char*, int, int);
  static const auto kDecompress = reinterpret_cast<Decompress>(function_of("liblz4.so.1", "LZ4_decompress_safe"));
  const auto size = static_cast<int>(to.size());
  return kDecompress(reinterpret_cast<const char*>(from), to.data(), static_cast<int>(bytes), size) == size;
}

/// A part begins with: kind (2 bytes), version (2), bytes of this header (4), bytes behind it (8), bytes without
/// padding if it is compressed (4), 8 more, architecture (4), 8 more, how it is compressed (8), 8 more, bytes when
/// expanded (8).
constexpr std::size_t kLeastHeader = 64;

PtxText text_of(const std::uint8_t* part, std::size_t header, std::size_t bytes) {
  PtxText out{static_cast<int>(at<std::uint32_t>(part, 28)), {}};
  const auto how = at<std::uint64_t>(part, 40);
  const std::uint8_t* const body = part + header;
  if ((how & (kLz4 | kZstd)) == 0) {
    out.text.assign(reinterpret_cast<const char*>(body), bytes);
  } else {
    const std::size_t compressed = at<std::uint32_t>(part, 16);
    const auto expanded = at<std::uint64_t>(part, 56);
    if (compressed > bytes || expanded > kMostText) damaged("compressed PTX of an impossible size");
    out.text.resize(expanded);
    const bool whole =
        (how & kZstd) != 0 ? expand_zstd(body, compressed, out.text) : expand_lz4(body, compressed, out.text);
    if (!whole) damaged("PTX that does not expand");
  }
  out.text.resize(std::min(out.text.find('\0'), out.text.size()));  // padding
  return out;
}

}  // namespace

std::vector<PtxText> ptx_of_fat_binary(const void* fat_binary) {
  const auto* const all = static_cast<const std::uint8_t*>(fat_binary);
  if (all == nullptr || at<std::uint32_t>(all, 0) != kMagic) damaged("no fat binary");
  const std::size_t first = at<std::uint16_t>(all, 6);
  const auto bytes = at<std::uint64_t>(all, 8);
  if (first < 16 || bytes > (std::uint64_t{1} << 40)) damaged("a fat binary of an unknown version");
  std::vector<PtxText> out;
  for (std::uint64_t offset = 0; offset + kLeastHeader <= bytes;) {
    const std::uint8_t* const part = all + first + offset;
    const std::size_t header = at<std::uint32_t>(part, 4);
    const auto body = at<std::uint64_t>(part, 8);
    if (header < kLeastHeader || body > bytes || offset + header + body > bytes) damaged("a part over the end");
    if (at<std::uint16_t>(part, 0) == kPtx) out.push_back(text_of(part, header, body));
    offset += header + body;
  }
  return out;
}

}  // namespace ampcheck::ptx
