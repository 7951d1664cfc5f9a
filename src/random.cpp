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
using D64 = hn::ScalableTag<std::uint64_t>;
using D32 = hn::Repartition<std::uint32_t, D64>;
using D = hn::ScalableTag<double>;
using V64 = hn::Vec<D64>;

constexpr std::size_t kMost = HWY_MAX_BYTES / sizeof(std::uint64_t);  ///< lanes of the widest vector

/// The words of one block a lane, in its lower half; the upper one holds anything.
struct Block {
  V64 word[4];
};

/// The upper half of each lane in its lower one: a shuffle, since shifts wait for the same port as products.
HWY_INLINE V64 upper(V64 v) { return hn::BitCast(D64(), hn::Shuffle2301(hn::BitCast(D32(), v))); }

/// One block a lane: that of a 64-bit counter. A product of two lower halves fills a lane, and only shifts apart.
HWY_INLINE Block blocks(std::uint64_t seed, std::uint64_t stream, V64 counter) {
  const D64 d;
  const D32 d32;
  const V64 first = hn::Set(d, 0xD2511F53u), second = hn::Set(d, 0xCD9E8D57u);
  V64 w0 = counter, w1 = hn::ShiftRight<32>(counter), w2 = hn::Set(d, stream), w3 = hn::Set(d, stream >> 32);
  auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const V64 a = hn::MulEven(hn::BitCast(d32, w0), hn::BitCast(d32, first)), b = hn::MulEven(hn::BitCast(d32, w2), hn::BitCast(d32, second));
    w0 = hn::Xor(hn::Xor(upper(b), w1), hn::Set(d, key0)), w1 = b;
    w2 = hn::Xor(hn::Xor(upper(a), w3), hn::Set(d, key1)), w3 = a;
    key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
  }
  return {{w0, w1, w2, w3}};
}

HWY_INLINE V64 counters(std::uint64_t first) {
  const D64 d;
  return hn::Add(hn::Set(d, first), hn::Iota(d, 0));
}

/// Stores all lanes, or the first of them where the end is near.
template <class Tag, class T>
HWY_INLINE void put(Tag d, hn::Vec<Tag> v, T* out, std::size_t start, std::size_t n) {
  if (start + hn::Lanes(d) <= n) return hn::StoreU(v, d, out + start);
  HWY_ALIGN T rest[kMost];
  hn::Store(v, d, rest);
  for (std::size_t i = start; i < n; ++i) out[i] = rest[i - start];
}

/// The six numbers of 16 bits that a block gives to an Irwin-Hall sum.
HWY_INLINE V64 six(const Block& block) {
  const D64 d;
  const V64 mask = hn::Set(d, 0xffffu);
  V64 sum = hn::Zero(d);
  for (int k = 0; k < 3; ++k) sum = hn::Add(sum, hn::Add(hn::And(hn::ShiftRight<16>(block.word[k]), mask), hn::And(block.word[k], mask)));
  return sum;
}

/// Exact below 2^52: the bits of 2^52 + v, less 2^52.
HWY_INLINE hn::Vec<D> number(V64 v) {
  const D d;
  const auto base = hn::Set(d, 0x1p52);
  return hn::Sub(hn::BitCast(d, hn::Or(v, hn::BitCast(D64(), base))), base);
}

void Bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::size_t n, std::uint64_t* out) {
  const D64 d;
  for (std::size_t start = 0; start < n; start += hn::Lanes(d)) {
    const Block block = blocks(seed, stream, counters(first + start));
    put(d, hn::Or(hn::ShiftLeft<32>(block.word[0]), hn::And(block.word[1], hn::Set(d, 0xffffffffu))), out, start, n);
  }
}

template <bool full>
HWY_INLINE void normals_of(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::size_t n, double* out) {
  const D64 d;
  const D real;
  for (std::size_t start = 0; start < n; start += hn::Lanes(d)) {
    const V64 twice = hn::ShiftLeft<1>(counters(first + start));
    const Block even = blocks(seed, stream, twice), odd = blocks(seed, stream, hn::Or(twice, hn::Set(d, 1)));
    // Whole numbers: the sum is exact in any order. Its twelve halves make the 6.
    auto normal = hn::Sub(hn::Mul(hn::Add(number(hn::Add(six(even), six(odd))), hn::Set(real, 6.0)), hn::Set(real, 0x1p-16)), hn::Set(real, 6.0));
    if (full) {  // Random::filling()
      const auto word = number(hn::And(even.word[3], hn::Set(d, 0xffffffffu)));
      normal = hn::Add(normal, hn::Mul(hn::Sub(word, hn::Set(real, 0x1p31)), hn::Set(real, 0x1p-48)));
    }
    put(real, normal, out, start, n);
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
