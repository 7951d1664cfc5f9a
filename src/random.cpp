// SPDX-License-Identifier: Apache-2.0
// Philox of many counters side by side, compiled once per SIMD target: the same bits as one at a time.
#include "src/random.h"

#ifndef HWY_DISABLE_PCLMUL_AES
#define HWY_DISABLE_PCLMUL_AES  // unused here; with them x86-64-v3 would count as SSSE3 and be compiled again as AVX2
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/random.cpp"
#include <hwy/foreach_target.h>  // must precede highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ampcheck {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D32 = hn::ScalableTag<std::uint32_t>;
using V32 = hn::Vec<D32>;

constexpr std::size_t kMost = HWY_MAX_BYTES / sizeof(std::uint32_t);  ///< lanes of the widest vector

/// Both halves of the 64-bit products of each lane with one number.
HWY_INLINE void multiply(V32 a, V32 factor, V32& low, V32& high) {
  const D32 d;
  const auto even = hn::MulEven(a, factor), odd = hn::MulEven(hn::Shuffle2301(a), factor);
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
}

struct Block {
  V32 word[4];
};

/// Blocks first, first + step, ... of a stream, one a lane.
HWY_INLINE Block blocks(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::uint32_t step) {
  const D32 d;
  const auto set = [&](std::uint64_t v) { return hn::Set(d, static_cast<std::uint32_t>(v)); };
  const V32 low = set(first), at = hn::Add(low, hn::Mul(hn::Iota(d, 0), set(step)));
  const V32 carry = hn::IfThenElse(hn::Lt(at, low), set(1), hn::Zero(d));
  V32 w0 = at, w1 = hn::Add(set(first >> 32), carry), w2 = set(stream), w3 = set(stream >> 32);
  V32 key0 = set(seed), key1 = set(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    V32 a_low, a_high, b_low, b_high;
    multiply(w0, set(0xD2511F53u), a_low, a_high);
    multiply(w2, set(0xCD9E8D57u), b_low, b_high);
    w0 = hn::Xor(hn::Xor(b_high, w1), key0), w2 = hn::Xor(hn::Xor(a_high, w3), key1);
    w1 = b_low, w3 = a_low;
    key0 = hn::Add(key0, set(0x9E3779B9u)), key1 = hn::Add(key1, set(0xBB67AE85u));
  }
  return {{w0, w1, w2, w3}};
}

/// The six numbers of 16 bits that a block gives to an Irwin-Hall sum.
HWY_INLINE V32 six(const Block& block) {
  const D32 d;
  const V32 mask = hn::Set(d, 0xffffu);
  V32 sum = hn::Zero(d);
  for (int k = 0; k < 3; ++k) sum = hn::Add(sum, hn::Add(hn::ShiftRight<16>(block.word[k]), hn::And(block.word[k], mask)));
  return sum;
}

void Bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::size_t n, std::uint64_t* out) {
  const D32 d;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN std::uint32_t high[kMost], low[kMost];
  for (std::size_t start = 0; start < n; start += lanes) {
    const Block block = blocks(seed, stream, first + start, 1);
    hn::Store(block.word[0], d, high), hn::Store(block.word[1], d, low);
    const std::size_t count = n - start < lanes ? n - start : lanes;
    for (std::size_t i = 0; i < count; ++i) out[start + i] = std::uint64_t{high[i]} << 32 | low[i];
  }
}

template <bool full>
HWY_INLINE void normals_of(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::size_t n, double* out) {
  const D32 d;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN std::uint32_t sum[kMost], rest[kMost];
  for (std::size_t start = 0; start < n; start += lanes) {
    const Block even = blocks(seed, stream, 2 * (first + start), 2), odd = blocks(seed, stream, 2 * (first + start) + 1, 2);
    hn::Store(hn::Add(six(even), six(odd)), d, sum);
    if (full) hn::Store(even.word[3], d, rest);
    const std::size_t count = n - start < lanes ? n - start : lanes;
    // Whole numbers: the sum is exact in any order. Its twelve halves make the 6.
    for (std::size_t i = 0; i < count; ++i) {
      const double normal = (static_cast<double>(static_cast<std::int32_t>(sum[i])) + 6.0) * 0x1p-16 - 6.0;
      out[start + i] = full ? normal + Random::filling(rest[i]) : normal;
    }
  }
}

void Normals(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::size_t n, double* out) {
  normals_of<false>(seed, stream, first, n, out);
}
void FullNormals(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::size_t n, double* out) {
  normals_of<true>(seed, stream, first, n, out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ampcheck
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ampcheck {

HWY_EXPORT(Bits);
HWY_EXPORT(Normals);
HWY_EXPORT(FullNormals);

void Random::bits(std::uint64_t first, std::span<std::uint64_t> out) const {
  HWY_DYNAMIC_DISPATCH(Bits)(seed_, stream_, first, out.size(), out.data());
}

void Random::normals(std::uint64_t first, std::span<double> out) const {
  HWY_DYNAMIC_DISPATCH(Normals)(seed_, stream_, first, out.size(), out.data());
}

void Random::full_normals(std::uint64_t first, std::span<double> out) const {
  HWY_DYNAMIC_DISPATCH(FullNormals)(seed_, stream_, first, out.size(), out.data());
}

}  // namespace ampcheck
#endif  // HWY_ONCE
