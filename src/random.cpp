// SPDX-License-Identifier: Apache-2.0
// Philox of many counters side by side, so that it vectorises: the same bits as one at a time.
#include "src/random.h"

#include <algorithm>

namespace ampcheck {

namespace {

constexpr std::size_t kLanes = 64;
struct Lanes {
  std::uint32_t word[4][kLanes];
};

/// Blocks first, first + step, ... of a stream.
void blocks(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::uint64_t step, Lanes& lanes) {
  for (std::size_t i = 0; i < kLanes; ++i) {
    const std::uint64_t index = first + step * i;
    lanes.word[0][i] = static_cast<std::uint32_t>(index), lanes.word[1][i] = static_cast<std::uint32_t>(index >> 32);
    lanes.word[2][i] = static_cast<std::uint32_t>(stream), lanes.word[3][i] = static_cast<std::uint32_t>(stream >> 32);
  }
  auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      const std::uint64_t a = std::uint64_t{0xD2511F53u} * lanes.word[0][i], b = std::uint64_t{0xCD9E8D57u} * lanes.word[2][i];
      lanes.word[0][i] = static_cast<std::uint32_t>(b >> 32) ^ lanes.word[1][i] ^ key0;
      lanes.word[2][i] = static_cast<std::uint32_t>(a >> 32) ^ lanes.word[3][i] ^ key1;
      lanes.word[1][i] = static_cast<std::uint32_t>(b);
      lanes.word[3][i] = static_cast<std::uint32_t>(a);
    }
    key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
  }
}

/// The six numbers of 16 bits that a block gives to an Irwin-Hall sum.
std::uint32_t six(const Lanes& lanes, std::size_t i) {
  std::uint32_t sum = 0;
  for (std::size_t k = 0; k < 3; ++k) sum += (lanes.word[k][i] >> 16) + (lanes.word[k][i] & 0xffffu);
  return sum;
}

}  // namespace

void Random::bits(std::uint64_t first, std::span<std::uint64_t> out) const {
  Lanes lanes;
  for (std::size_t start = 0; start < out.size(); start += kLanes) {
    blocks(seed_, stream_, first + start, 1, lanes);
    const std::size_t n = std::min(kLanes, out.size() - start);
    for (std::size_t i = 0; i < n; ++i) out[start + i] = std::uint64_t{lanes.word[0][i]} << 32 | lanes.word[1][i];
  }
}

void Random::normals(std::uint64_t first, std::span<double> out) const {
  Lanes even, odd;
  double numbers[kLanes];
  for (std::size_t start = 0; start < out.size(); start += kLanes) {
    blocks(seed_, stream_, 2 * (first + start), 2, even);
    blocks(seed_, stream_, 2 * (first + start) + 1, 2, odd);
    // Whole numbers: the sum is exact in any order. Its twelve halves make the 6.
    for (std::size_t i = 0; i < kLanes; ++i)
      numbers[i] = (static_cast<double>(static_cast<std::int32_t>(six(even, i) + six(odd, i))) + 6.0) * 0x1p-16 - 6.0;
    std::copy_n(numbers, std::min(kLanes, out.size() - start), out.begin() + static_cast<std::ptrdiff_t>(start));
  }
}

}  // namespace ampcheck
