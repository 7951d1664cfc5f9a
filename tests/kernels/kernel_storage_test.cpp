// SPDX-License-Identifier: Apache-2.0
// kernels/storage.h against decoding by ldexp and a slow rounding in integers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/storage.h"

namespace ampcheck::kernels::test {
namespace {

struct Layout {
  int precision;    ///< significand bits, the hidden one included
  int min_quantum;  ///< exponent of the smallest subnormal
  std::uint32_t infinity;
  std::uint32_t nan;
};
constexpr Layout kBf16Layout{8, -133, 0x7f80u, 0x7fc0u};
constexpr Layout kFp16Layout{11, -24, 0x7c00u, 0x7e00u};

double slow_decode(std::uint32_t code, const Layout& f) {
  const std::uint32_t magnitude = code & 0x7fffu;
  const double sign = (code & 0x8000u) != 0 ? -1.0 : 1.0;
  if (magnitude > f.infinity) return std::nan("");
  if (magnitude == f.infinity) return sign * HUGE_VAL;
  const int exponent = static_cast<int>(magnitude >> (f.precision - 1));
  const std::uint32_t hidden = 1u << (f.precision - 1);
  const std::uint32_t fraction = magnitude & (hidden - 1u);
  if (exponent == 0) return sign * std::ldexp(fraction, f.min_quantum);
  return sign * std::ldexp(fraction + hidden, f.min_quantum + exponent - 1);
}

/// Rounds significand * 2^exponent by looking at the bits that fall off.
std::uint32_t slow_encode(std::uint32_t bits, const Layout& f) {
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const int field = static_cast<int>((bits >> 23) & 0xffu);
  std::uint64_t significand = bits & 0x7fffffu;
  if (field == 255) return significand != 0 ? f.nan : (sign | f.infinity);
  if (field != 0) significand |= 0x800000u;
  if (significand == 0) return sign;
  const int exponent = (field == 0 ? 1 : field) - 150;
  int length = 0;
  while ((significand >> length) != 0) ++length;
  const int quantum = std::max(exponent + length - f.precision, f.min_quantum);
  const int drop = quantum - exponent;
  std::uint64_t kept = 0;
  if (drop <= 0) {
    kept = significand << -drop;
  } else if (drop <= 40) {
    kept = significand >> drop;
    const std::uint64_t rest = significand - (kept << drop);
    const std::uint64_t half = std::uint64_t{1} << (drop - 1);
    if (rest > half || (rest == half && (kept & 1u) != 0)) ++kept;
  }
  // A carry into the next binade, or out of the subnormals, is the carry of this addition.
  const std::uint64_t binade = static_cast<std::uint64_t>(quantum - f.min_quantum) << (f.precision - 1);
  return sign | static_cast<std::uint32_t>(std::min<std::uint64_t>(binade + kept, f.infinity));
}

/// SplitMix64 (Steele, Lea, Flood 2014), a hash of the counter.
std::uint32_t pattern(std::uint64_t counter) {
  std::uint64_t z = (counter + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<std::uint32_t>((z ^ (z >> 31)) >> 32);
}

std::vector<float> patterns(const Layout& f) {
  std::vector<float> x;
  for (std::uint64_t i = 0; i < 1'500'000; ++i) x.push_back(math::from_bits(pattern(i)));
  for (std::uint64_t i = 0; i < 500'000; ++i)  // exponents in the range of fp16 and below it
    x.push_back(math::from_bits((pattern(~i) & 0x807fffffu) | (((pattern(i) & 0x1fu) + 0x62u) << 23)));
  for (std::uint32_t code = 0; code < f.infinity; ++code) {
    const double low = slow_decode(code, f);
    const double high = code + 1 == f.infinity ? 2.0 * low - slow_decode(code - 1, f) : slow_decode(code + 1, f);
    for (const double edge : {low, 0.5 * (low + high)}) {
      const std::uint32_t bits = math::to_bits(static_cast<float>(edge));
      for (const std::uint32_t near : {bits - 1u, bits, bits + 1u})
        if (near < 0x80000000u) x.insert(x.end(), {math::from_bits(near), math::from_bits(near | 0x80000000u)});
    }
  }
  for (const std::uint32_t bits :
       {0x7f800000u, 0x7f800001u, 0x7fbfffffu, 0x7fc00000u, 0x7fffffffu, 0x7f7fffffu, 0u, 1u})
    x.insert(x.end(), {math::from_bits(bits), math::from_bits(bits | 0x80000000u)});
  return x;
}

template <class T>
std::vector<T> encode(const std::vector<float>& x) {
  std::vector<T> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = from_float<T>(x[i]);
  return y;
}

std::uint64_t mismatches(const std::vector<float>& x, const std::vector<std::uint32_t>& codes, const Layout& f) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < x.size(); ++i) count += codes[i] != slow_encode(math::to_bits(x[i]), f);
  return count;
}

template <class T>
void check_storage(const Layout& f) {
  for (std::uint32_t code = 0; code < 0x10000u; ++code) {
    const float got = to_float(T{static_cast<std::uint16_t>(code)});
    const double want = slow_decode(code, f);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << code;
      ASSERT_EQ(from_float<T>(got).bits, f.nan) << code;
      continue;
    }
    ASSERT_EQ(static_cast<double>(got), want) << code;
    ASSERT_EQ(std::signbit(got), std::signbit(want)) << code;
    ASSERT_EQ(from_float<T>(got).bits, code);
  }
  const std::vector<float> x = patterns(f);
  ASSERT_GE(x.size(), 2'000'000u);
  std::vector<std::uint32_t> codes;
  for (const T value : encode<T>(x)) codes.push_back(value.bits);
  EXPECT_EQ(mismatches(x, codes, f), 0u);
  // Planted faults: truncation instead of rounding, and ties away from zero.
  std::vector<std::uint32_t> truncated, ties_away;
  for (const float v : x) {
    const std::uint32_t bits = math::to_bits(v);
    const std::uint32_t unit = 1u << (24 - f.precision);
    const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
    truncated.push_back(slow_encode(finite ? bits & ~(unit - 1u) : bits, f));
    ties_away.push_back(slow_encode(finite && (bits & (unit - 1u)) == unit / 2 ? bits + 1u : bits, f));
  }
  EXPECT_GT(mismatches(x, truncated, f), 0u);
  EXPECT_GT(mismatches(x, ties_away, f), 0u);
}

TEST(KernelStorage, Bf16DecodesEveryCodeAndRoundsToNearestEven) { check_storage<Bf16>(kBf16Layout); }
TEST(KernelStorage, Fp16DecodesEveryCodeAndRoundsToNearestEven) { check_storage<Fp16>(kFp16Layout); }

TEST(KernelStorage, NamedBoundaries) {
  EXPECT_EQ(from_float<Bf16>(0x1.fep127f).bits, 0x7f7fu);
  EXPECT_EQ(from_float<Bf16>(0x1.ffp127f).bits, 0x7f80u);  // the tie above the largest: to infinity
  EXPECT_EQ(from_float<Bf16>(-0x1p-149f).bits, 0x8000u);
  EXPECT_EQ(from_float<Fp16>(65504.0f).bits, 0x7bffu);
  EXPECT_EQ(from_float<Fp16>(65519.996f).bits, 0x7bffu);
  EXPECT_EQ(from_float<Fp16>(65520.0f).bits, 0x7c00u);
  EXPECT_EQ(from_float<Fp16>(0x1p-25f).bits, 0u);  // half of the smallest: to even
  EXPECT_EQ(from_float<Fp16>(0x1.000002p-25f).bits, 1u);
  EXPECT_EQ(from_float<Fp16>(-std::numeric_limits<float>::quiet_NaN()).bits, 0x7e00u);
  EXPECT_EQ(from_float<float>(-0.0f), 0.0f);
  EXPECT_EQ(math::to_bits(to_float(from_float<float>(0x1.234p-140f))), math::to_bits(0x1.234p-140f));
}

}  // namespace
}  // namespace ampcheck::kernels::test
