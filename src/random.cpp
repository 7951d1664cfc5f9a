// SPDX-License-Identifier: Apache-2.0
// Philox of many counters side by side, compiled once per SIMD target: the same bits as one at a time.
#include "src/random.h"

#include <algorithm>

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
using D8 = hn::Repartition<std::uint8_t, D64>;
using D = hn::ScalableTag<double>;
using V64 = hn::Vec<D64>;

constexpr std::size_t kMost = HWY_MAX_BYTES / sizeof(std::uint64_t);  ///< lanes of the widest vector
constexpr std::uint64_t kFirst = 0xD2511F53u, kSecond = 0xCD9E8D57u;

/// The words of one block a lane, in its lower half; the upper one holds anything.
struct Block {
  V64 word[4];
};

/// The upper half of each lane in its lower one: a shuffle, since shifts wait for the same port as products.
HWY_INLINE V64 upper(V64 v) { return hn::BitCast(D64(), hn::Shuffle2301(hn::BitCast(D32(), v))); }

/// What is the same for blocks whose counters differ in their lower 32 bits alone: all that two rounds make of the
/// other words.
struct Start {
  std::uint32_t w2_key, w1_key, w2, w3;
  std::uint32_t key0, key1;  ///< of the third round
  Start(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
    key0 = static_cast<std::uint32_t>(seed);
    key1 = static_cast<std::uint32_t>(seed >> 32);
    const std::uint64_t b = kSecond * static_cast<std::uint32_t>(stream);
    const std::uint32_t w0 = static_cast<std::uint32_t>(b >> 32) ^ static_cast<std::uint32_t>(counter >> 32) ^ key0;
    w2_key = static_cast<std::uint32_t>(stream >> 32) ^ key1;
    next_keys();
    const std::uint64_t a = kFirst * w0;
    w1_key = static_cast<std::uint32_t>(b) ^ key0;
    w2 = static_cast<std::uint32_t>(a >> 32) ^ key1;
    w3 = static_cast<std::uint32_t>(a);
    next_keys();
  }
  void next_keys() {
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
};

/// Blocks whose product of the first round with the counter's lower half is `product`. A product of two lower halves
/// fills a lane, and only shifts apart.
template <int rounds>
HWY_INLINE Block blocks(const Start& start, V64 product) {
  const D64 d;
  const D32 d32;
  const V64 first = hn::Set(d, kFirst), second = hn::Set(d, kSecond);
  V64 w1 = hn::MulEven(hn::BitCast(d32, hn::Xor(upper(product), hn::Set(d, start.w2_key))), hn::BitCast(d32, second));
  V64 w0 = hn::Xor(upper(w1), hn::Set(d, start.w1_key)), w2 = hn::Xor(product, hn::Set(d, start.w2)),
      w3 = hn::Set(d, start.w3);
  auto key0 = start.key0, key1 = start.key1;
  for (int round = 2; round < rounds; ++round) {
    const V64 a = hn::MulEven(hn::BitCast(d32, w0), hn::BitCast(d32, first)),
              b = hn::MulEven(hn::BitCast(d32, w2), hn::BitCast(d32, second));
    w0 = hn::Xor(hn::Xor(upper(b), w1), hn::Set(d, key0));
    w1 = b;
    w2 = hn::Xor(hn::Xor(upper(a), w3), hn::Set(d, key1));
    w3 = a;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{w0, w1, w2, w3}};
}

/// Their products, of the counters' lower halves alone.
HWY_INLINE V64 products(std::uint64_t first) {
  const D64 d;
  const V64 counter = hn::Add(hn::Set(d, first), hn::Iota(d, 0));
  return hn::MulEven(hn::BitCast(D32(), counter), hn::BitCast(D32(), hn::Set(d, kFirst)));
}

/// Stores all lanes, or the first of them where the end is near.
template <class Tag, class T>
HWY_INLINE void put(Tag d, hn::Vec<Tag> v, T* out, std::size_t start, std::size_t n) {
  if (start + hn::Lanes(d) <= n) return hn::StoreU(v, d, out + start);
  HWY_ALIGN T rest[kMost];
  hn::Store(v, d, rest);
  for (std::size_t i = start; i < n; ++i) out[i] = rest[i - start];
}

void Bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::size_t n, std::uint64_t* out) {
  const D64 d;
  const Start same(seed, stream, first);
  V64 product = products(first);
  const V64 step = hn::Set(d, kFirst * hn::Lanes(d));
  for (std::size_t start = 0; start < n; start += hn::Lanes(d)) {
    const Block block = blocks<kRounds>(same, product);
    product = hn::Add(product, step);
    put(d, hn::Or(hn::ShiftLeft<32>(block.word[0]), hn::And(block.word[1], hn::Set(d, 0xffffffffu))), out, start, n);
  }
}

/// Numbers whose twelve bytes and filling are one block. The bytes' sum S and the filling F stand in the bits of 2^12 +
/// S 2^-8 + F 2^-40: whatever is added or taken off here is exact.
template <bool full>
HWY_INLINE void normals_of(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::size_t n, double* out) {
  const D64 d;
  const D32 d32;
  const D8 d8;
  const D real;
  const Start same(seed, stream, first);
  V64 product = products(first);
  const V64 step = hn::Set(d, kFirst * hn::Lanes(d)), lower = hn::Set(d, 0xffffffffu),
            base = hn::BitCast(d, hn::Set(real, 0x1p12));
  const auto middle = hn::Set(real, 0x1p12 + Random::kMiddle);
  for (std::size_t start = 0; start < n; start += hn::Lanes(d)) {
    const Block block = blocks<kNormalRounds>(same, product);
    product = hn::Add(product, step);
    const V64 two =
        hn::BitCast(d, hn::OddEven(hn::BitCast(d32, upper(block.word[0])), hn::BitCast(d32, block.word[1])));
    const V64 sum =
        hn::Add(hn::SumsOf8(hn::BitCast(d8, two)), hn::SumsOf8(hn::BitCast(d8, hn::And(block.word[2], lower))));
    const V64 filling = hn::And(block.word[3], full ? lower : hn::Set(d, 0xff000000u));
    put(real, hn::Sub(hn::BitCast(real, hn::Or(hn::Add(hn::ShiftLeft<32>(sum), base), filling)), middle), out, start,
        n);
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

namespace {

/// Calls run(first, start, count) for parts whose counters share their upper 32 bits.
template <class Run>
void for_parts(std::uint64_t first, std::size_t n, const Run& run) {
  for (std::size_t start = 0; start < n;) {
    const std::uint64_t left = (std::uint64_t{1} << 32) - (first & 0xffffffffu);
    const std::size_t count = std::min<std::uint64_t>(n - start, left);
    run(first, start, count);
    start += count;
    first += count;
  }
}

}  // namespace

void Random::bits(std::uint64_t first, std::span<std::uint64_t> out) const {
  for_parts(first, out.size(), [&](std::uint64_t from, std::size_t at, std::size_t n) {
    HWY_DYNAMIC_DISPATCH(Bits)(seed_, stream_, from, n, out.data() + at);
  });
}

void Random::normals(std::uint64_t first, std::span<double> out) const {
  for_parts(first, out.size(), [&](std::uint64_t from, std::size_t at, std::size_t n) {
    HWY_DYNAMIC_DISPATCH(Normals)(seed_, stream_, from, n, out.data() + at);
  });
}

void Random::full_normals(std::uint64_t first, std::span<double> out) const {
  for_parts(first, out.size(), [&](std::uint64_t from, std::size_t at, std::size_t n) {
    HWY_DYNAMIC_DISPATCH(FullNormals)(seed_, stream_, from, n, out.data() + at);
  });
}

}  // namespace ampcheck
#endif  // HWY_ONCE
