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

constexpr int kRounds = 10;
constexpr int kNormalRounds =
    7;  ///< the fewest that pass BigCrush, ibidem: most of the cost of large test data is these

template <int rounds = kRounds>
constexpr Philox philox4x32(Philox counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < rounds; ++round) {
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
  /// Irwin-Hall normal: 12 uniform bytes less their mean, and a thirteenth that fills the steps between their sums; no
  /// libm, so the bits are the same everywhere. A multiple of 2^-16: hundreds of them add up exactly in fp32, in any
  /// order.
  constexpr double normal(std::uint64_t index) const { return filled(block<kNormalRounds>(index), 0xff000000u); }

  /// The same with all the bits of its words: a multiple of 2^-40, less than 2^-16 above normal().
  constexpr double full_normal(std::uint64_t index) const { return filled(block<kNormalRounds>(index), 0xffffffffu); }

  /// bits(), normal() and full_normal() of first, first + 1, ...: the same numbers, many at a time.
  void bits(std::uint64_t first, std::span<std::uint64_t> out) const;
  void normals(std::uint64_t first, std::span<double> out) const;
  void full_normals(std::uint64_t first, std::span<double> out) const;

  /// Mean of the sums of 12 bytes, in 2^-8, and of what fills a step.
  static constexpr double kMiddle = 12 * 127.5 * 0x1p-8 + 0x1p-9;

 private:
  template <int rounds = kRounds>
  constexpr Philox block(std::uint64_t index) const {
    return philox4x32<rounds>({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
                               static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
                              {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
  }
  /// The bytes of the first three words count 2^-8 a step, those of the last one that `mask` keeps less.
  static constexpr double filled(const Philox& r, std::uint32_t mask) {
    std::uint32_t sum = 0;
    for (std::size_t word = 0; word < 3; ++word)
      for (int shift = 0; shift < 32; shift += 8) sum += r[word] >> shift & 0xffu;
    return sum * 0x1p-8 + (r[3] & mask) * 0x1p-40 - kMiddle;
  }
  std::uint64_t seed_;
  std::uint64_t stream_;
};

}  // namespace ampcheck
