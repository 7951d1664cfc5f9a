// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: value = f(seed, stream, index), the same on every machine, thread count and order.
// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

namespace ampcheck {

using Philox = std::array<std::uint32_t, 4>;

constexpr Philox philox4x32(Philox counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

/// FNV-1a, to turn a name into a stream number.
constexpr std::uint64_t hash_name(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return h;
}

/// A stream of random numbers addressed by index; no state.
class Random {
 public:
  constexpr Random(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}
  constexpr Random(std::uint64_t seed, std::string_view stream) : Random(seed, hash_name(stream)) {}

  /// 64 random bits.
  constexpr std::uint64_t bits(std::uint64_t index) const {
    const Philox r = block(index);
    return std::uint64_t{r[0]} << 32 | r[1];
  }
  /// Uniform in [0, 1) with 53 random bits.
  constexpr double uniform(std::uint64_t index) const { return static_cast<double>(bits(index) >> 11) * 0x1p-53; }
  /// Uniform integer in [0, n); n below 2^32.
  constexpr std::uint64_t below(std::uint64_t index, std::uint64_t n) const { return (bits(index) >> 32) * n >> 32; }
  /// Irwin-Hall normal: 12 uniforms of 16 bits minus their mean; no libm, so the bits are the same everywhere.
  constexpr double normal(std::uint64_t index) const {
    double sum = 0;
    for (std::uint64_t part = 0; part < 2; ++part) {
      const Philox r = block(2 * index + part);
      for (int i = 0; i < 3; ++i) {
        sum += (r[static_cast<std::size_t>(i)] >> 16) + 0.5;
        sum += (r[static_cast<std::size_t>(i)] & 0xffffu) + 0.5;
      }
    }
    return sum * 0x1p-16 - 6.0;
  }

  /// normal() is a multiple of 2^-16: hundreds of them add up exactly in fp32, in any order. This one has all its bits: what
  /// lies between two multiples is filled from a word that normal() leaves.
  constexpr double full_normal(std::uint64_t index) const { return normal(index) + filling(block(2 * index)[3]); }

  /// bits(), normal() and full_normal() of first, first + 1, ...: the same numbers, many at a time.
  void bits(std::uint64_t first, std::span<std::uint64_t> out) const;
  void normals(std::uint64_t first, std::span<double> out) const;
  void full_normals(std::uint64_t first, std::span<double> out) const;

  /// 32 bits as a number in [-2^-17, 2^-17).
  static constexpr double filling(std::uint32_t word) { return (static_cast<double>(word) - 0x1p31) * 0x1p-48; }

 private:
  constexpr Philox block(std::uint64_t index) const {
    return philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                       static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
                      {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
  }
  std::uint64_t seed_;
  std::uint64_t stream_;
};

}  // namespace ampcheck
