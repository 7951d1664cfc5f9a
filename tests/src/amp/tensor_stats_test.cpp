// SPDX-License-Identifier: Apache-2.0
// Statistics on bits against the definitions, element by element; all codes of the small formats.
#include "src/amp/tensor_stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "src/amp/exponent_histogram.h"
#include "src/error.h"
#include "src/parallel.h"
#include "src/random.h"
#include "src/rounding.h"

namespace ampcheck {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor of_values(Dtype dtype, const std::vector<double>& values) {
  Tensor made(dtype, {static_cast<std::int64_t>(values.size())});
  from_doubles(values, made.view());
  return made;
}

/// Any patterns: NaN payloads, infinities and subnormals as often as random bits give them.
Tensor of_random_bits(Dtype dtype, std::int64_t n, std::uint32_t seed) {
  Tensor made(dtype, {n});
  std::mt19937 random(seed);
  for (std::int64_t i = 0; i < n * bytes(dtype); ++i)
    static_cast<std::uint8_t*>(made.data())[i] = static_cast<std::uint8_t>(random());
  return made;
}

/// The definitions, one element at a time.
TensorStats plain_stats(const TensorView& view) {
  TensorStats stats(view.dtype);
  const FloatFormat& f = format(view.dtype);
  for (std::int64_t i = 0; i < view.count(); ++i) {
    const std::uint64_t code = bits_at(view, i), magnitude = code & f.magnitude_mask();
    const double x = decode_scalar(f, code);
    ++stats.count;
    stats.negatives += (code & f.sign_code()) != 0;
    stats.largest_code = std::max(stats.largest_code, magnitude);
    if (std::isnan(x)) {
      ++stats.nans;
      if (f.has_infinity()) ++stats.exponents.back();
      continue;
    }
    ++stats.exponents[magnitude >> f.fraction_bits()];
    if (std::isinf(x)) {
      ++(x > 0 ? stats.positive_infinities : stats.negative_infinities);
      continue;
    }
    stats.largest_finite_code = std::max(stats.largest_finite_code, magnitude);
    stats.zeros += x == 0.0;
    stats.at_max += std::fabs(x) == f.max_finite();
    if (x == 0.0) continue;
    stats.smallest_code = std::min(stats.smallest_code, magnitude);
    ++(std::fabs(x) < f.min_normal() ? stats.subnormals : stats.normals);
  }
  return stats;
}

void expect_same(const TensorStats& a, const TensorStats& b) {
  EXPECT_EQ(a.count, b.count);
  EXPECT_EQ(a.zeros, b.zeros);
  EXPECT_EQ(a.subnormals, b.subnormals);
  EXPECT_EQ(a.normals, b.normals);
  EXPECT_EQ(a.positive_infinities, b.positive_infinities);
  EXPECT_EQ(a.negative_infinities, b.negative_infinities);
  EXPECT_EQ(a.nans, b.nans);
  EXPECT_EQ(a.negatives, b.negatives);
  EXPECT_EQ(a.at_max, b.at_max);
  EXPECT_EQ(a.largest_code, b.largest_code);
  EXPECT_EQ(a.largest_finite_code, b.largest_finite_code);
  EXPECT_EQ(a.smallest_code, b.smallest_code);
  EXPECT_EQ(a.exponents, b.exponents);
}

constexpr Dtype kFloats[] = {Dtype::fp64, Dtype::fp32, Dtype::fp16, Dtype::bf16, Dtype::e4m3fn, Dtype::e5m2};

TEST(TensorStats, EqualsTheDefinitions) {
  for (const Dtype dtype : kFloats)
    for (const std::int64_t n : {0, 1, 15, 4097, 70001}) {
      SCOPED_TRACE(std::string(name(dtype)) + " " + std::to_string(n));
      const Tensor tensor = of_random_bits(dtype, n, 7);
      expect_same(tensor_stats(tensor.view()), plain_stats(tensor.view()));
    }
}

TEST(TensorStats, EveryCodeOfTheSmallFormats) {
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16, Dtype::e4m3fn, Dtype::e5m2}) {
    SCOPED_TRACE(name(dtype));
    const std::int64_t codes = std::int64_t{1} << (8 * bytes(dtype));
    Tensor tensor(dtype, {codes});
    for (std::int64_t i = 0; i < codes; ++i)
      std::memcpy(static_cast<std::byte*>(tensor.data()) + i * bytes(dtype), &i,
                  static_cast<std::size_t>(bytes(dtype)));
    expect_same(tensor_stats(tensor.view()), plain_stats(tensor.view()));
  }
}

/// Blocks of one binade, of some, of more than are counted one by one, of zeros alone, and with what is not finite;
/// tails of every kind; and tensors so large that one thread counts pairs of fields.
TEST(TensorStats, ExponentsOfEveryKindOfBlock) {
  set_threads(1);
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16})
    for (const std::int64_t n : {1, 31, 32, 33, 4095, 4096, 4097, 20000, (1 << 21) + 77})
      for (const int binades : {0, 1, 12, 30, 60}) {
        if (n > 20000 && (dtype == Dtype::fp16 || binades % 30 != 0)) continue;
        SCOPED_TRACE(std::string(name(dtype)) + " " + std::to_string(n) + " " + std::to_string(binades));
        std::mt19937 random(static_cast<unsigned>(n + binades));
        const int first = dtype == Dtype::fp16 ? 1 : 90, fraction = format(dtype).fraction_bits(),
                  most = dtype == Dtype::fp16 ? 31 : 256;
        Tensor tensor(dtype, {n});
        for (std::int64_t i = 0; i < n; ++i) {
          const auto draw = static_cast<std::uint32_t>(random());
          const int field = binades == 0 || draw % 97 == 0 ? 0
                            : draw % 5003 == 1
                                ? most - 1
                                : std::min(first + static_cast<int>(draw % static_cast<unsigned>(binades)), most - 1);
          const std::uint32_t code = static_cast<std::uint32_t>(field) << fraction |
                                     (binades == 0 ? 0 : draw >> 8 & ((1u << fraction) - 1)) |
                                     (draw >> 31) << (8 * bytes(dtype) - 1);
          if (bytes(dtype) == 4)
            tensor.span<std::uint32_t>()[static_cast<std::size_t>(i)] = code;
          else
            tensor.span<std::uint16_t>()[static_cast<std::size_t>(i)] = static_cast<std::uint16_t>(code);
        }
        expect_same(tensor_stats(tensor.view()), plain_stats(tensor.view()));
      }
  set_threads(0);
}

template <class Code>
void expect_pairs_fold(Dtype dtype) {
  constexpr std::int64_t kCount = 70001;
  const Tensor tensor = of_random_bits(dtype, kCount, 5);
  PairHistogram<Code, 8192> pairs;
  each_block<Code>(tensor.view(), 0, kCount, [&](const Code* x, std::int64_t n) { pairs.add(x, n); });
  std::vector<std::int64_t> exponents(256);
  pairs.add_to(exponents);
  EXPECT_EQ(exponents, plain_stats(tensor.view()).exponents) << name(dtype);
}

/// As a tensor of more elements than 32-bit counters can count, with fewer.
TEST(TensorStats, PairsOfFieldsAreFoldedBeforeTheyOverflow) {
  expect_pairs_fold<std::uint32_t>(Dtype::fp32);
  expect_pairs_fold<std::uint16_t>(Dtype::bf16);
}

/// Large enough for pairs of fields and for several threads; every SIMD target; any order; parts merged.
TEST(TensorStats, NeitherOrderNorThreadsNorSimdMatter) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    SCOPED_TRACE(name(dtype));
    constexpr std::int64_t kCount = (1 << 21) + 4321;
    Tensor tensor = of_random_bits(dtype, kCount, 11);
    const TensorStats expected = plain_stats(tensor.view());
    for (const std::string_view target : simd_targets()) {
      set_simd_target(target);
      for (const int used : {1, 2}) {
        set_threads(used);
        expect_same(tensor_stats(tensor.view()), expected);
      }
    }
    set_simd_target("");
    set_threads(0);
    const TensorSums sums = tensor_sums(tensor.view());
    TensorView front = tensor.view(), back = tensor.view();
    front.shape[0] = 300000;
    back.shape[0] = kCount - 300000;
    back.data = static_cast<std::byte*>(back.data) + 300000 * bytes(dtype);
    TensorStats merged = tensor_stats(back);
    merged.merge(tensor_stats(front));
    expect_same(merged, expected);
    if (bytes(dtype) == 4) {
      std::reverse(tensor.span<std::uint32_t>().begin(), tensor.span<std::uint32_t>().end());
    } else {
      std::reverse(tensor.span<std::uint16_t>().begin(), tensor.span<std::uint16_t>().end());
    }
    expect_same(tensor_stats(tensor.view()), expected);
    EXPECT_EQ(tensor_sums(tensor.view()).sum, sums.sum);
    EXPECT_EQ(tensor_sums(tensor.view()).abs_sum, sums.abs_sum);
  }
  EXPECT_THROW(TensorStats(Dtype::fp16).merge(TensorStats(Dtype::bf16)), Error);
}

TEST(TensorStats, StridedViewsSeeTheirOwnElements) {
  const Tensor memory = of_random_bits(Dtype::bf16, 6000, 3);
  TensorView view = memory.view();
  view.shape = Shape{40, 50};
  view.strides = Shape{3, 120};
  expect_same(tensor_stats(view), plain_stats(view));
  EXPECT_NE(tensor_stats(view).largest_code, 0u);
}

/// Planted: one element of many changed in its class; each is seen.
TEST(TensorStats, OneElementShows) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    const FloatFormat& f = format(dtype);
    for (const double planted : {kInf, -kInf, std::nan(""), 0.0, f.min_subnormal(), f.max_finite(), -1.0}) {
      std::vector<double> values(300000, 1.0);
      const TensorStats clean = tensor_stats(of_values(dtype, values).view());
      EXPECT_EQ(clean.normals, 300000);
      values[123456] = planted;
      const TensorStats found = tensor_stats(of_values(dtype, values).view());
      EXPECT_EQ(found.positive_infinities, planted == kInf);
      EXPECT_EQ(found.negative_infinities, planted == -kInf);
      EXPECT_EQ(found.nans, std::isnan(planted));
      EXPECT_EQ(found.zeros, planted == 0.0);
      EXPECT_EQ(found.subnormals, planted == f.min_subnormal());
      EXPECT_EQ(found.at_max, planted == f.max_finite());
      EXPECT_EQ(found.negatives, planted == -1.0 || planted == -kInf);
      EXPECT_EQ(std::isnan(found.amax()), std::isnan(planted));
      if (!std::isnan(planted)) {
        EXPECT_EQ(found.amax(), std::max(1.0, std::fabs(planted)));
      }
    }
  }
}

TEST(TensorStats, RangeInPowersOfTwo) {
  const TensorStats stats = tensor_stats(of_values(Dtype::fp16, {0.0, 6.0, -0x1p-16, 0x1p-14}).view());
  EXPECT_EQ(stats.headroom(), 13);  // 6 is in the binade of 4, the format ends in that of 32768
  EXPECT_EQ(stats.footroom(), -2);  // two binades into the subnormals
  EXPECT_EQ(stats.with_exponent(2), 1);
  EXPECT_EQ(stats.with_exponent(-14), 1);
  EXPECT_EQ(stats.amin(), 0x1p-16);
  EXPECT_FALSE(tensor_stats(of_values(Dtype::fp16, {0.0, 0.0}).view()).headroom().has_value());
}

/// The window against really rounding the scaled values.
TEST(TensorStats, ScaleWindowIsWhatRoundingDoes) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> values;
    for (int i = 0; i < 20; ++i)
      values.push_back(std::ldexp(static_cast<double>(random() % 4096) + 1.0, -static_cast<int>(random() % 40)));
    if (trial % 3 == 0) values[0] = 0x1p-30;  // a power of two: the tie that rounds to zero
    const TensorStats stats = tensor_stats(of_values(Dtype::fp32, values).view());
    for (const FloatFormat& target : {kFp16, kE5m2, kE4m3fn}) {
      const ScaleWindow window = *stats.scale_window(target);
      const auto loses = [&](int s) {
        bool zero = false, over = false;
        for (const double value : values) {
          const double scaled = std::ldexp(value, s), stored = decode_scalar(target, encode_scalar(target, scaled));
          zero = zero || stored == 0.0;
          over = over || scaled > target.max_finite();
        }
        return std::pair(zero, over);
      };
      EXPECT_FALSE(loses(window.first).first);
      EXPECT_TRUE(loses(window.first - 1).first);
      EXPECT_FALSE(loses(window.last).second);
      EXPECT_TRUE(loses(window.last + 1).second);
      const int far = window.first - 12;
      std::int64_t flushed = 0, edge = 0;
      for (const double value : values) {
        const double scaled = std::ldexp(value, far);
        flushed += decode_scalar(target, encode_scalar(target, scaled)) == 0.0;
        edge += scaled == target.min_subnormal() / 2;
      }
      EXPECT_EQ(stats.flushed_at(target, far), flushed - edge);
    }
  }
}

TEST(TensorSums, ExactWhateverCancels) {
  const Tensor tensor = of_values(Dtype::fp32, {0x1p100, 1.0, -0x1p100, 0x1p-140});
  EXPECT_EQ(tensor_sums(tensor.view()).sum, 1.0);
  EXPECT_EQ(tensor_sums(tensor.view()).abs_sum, 0x1p101);
  EXPECT_EQ(tensor_sums(tensor.view()).cancellation_bits(), 101.0);
  EXPECT_EQ(tensor_sums(of_values(Dtype::fp64, {0x1p1000, -3.0, -0x1p1000}).view()).sum, -3.0);
  EXPECT_TRUE(std::isinf(tensor_sums(of_values(Dtype::bf16, {3.0, -3.0}).view()).cancellation_bits()));
  // fp16 sums of this length are exact in fp64.
  const Tensor random = of_random_bits(Dtype::fp16, 5000, 9);
  double sum = 0.0, magnitudes = 0.0;
  for (const double value : to_doubles(random.view()))
    if (std::isfinite(value)) {
      sum += value;
      magnitudes += std::fabs(value);
    }
  EXPECT_EQ(tensor_sums(random.view()).sum, sum);
  EXPECT_EQ(tensor_sums(random.view()).abs_sum, magnitudes);
  EXPECT_EQ(tensor_sums(of_values(Dtype::e4m3fn, {1.0, std::nan(""), -0.5}).view()).sum, 0.5);
}

// Shadow
// ----------------------------------------------------------------------------------------------------------------------

TEST(ShadowStats, ClassesByHand) {
  const std::vector<double> shadow = {1e-9, 0.0, 70000.0, 1e6, 1.0, 1.0 + 0x1p-12, 6.2e-5, kInf, 2.0, -1e-9};
  const std::vector<double> stored = {0.0, 0.0, kInf, 65504.0, 1.0, 1.0, 6.0e-5, 3.0, std::nan(""), -0.0};
  const Tensor x = of_values(Dtype::fp16, stored), r = of_values(Dtype::fp64, shadow);
  const ShadowStats stats = shadow_stats(x.view(), r.view());
  EXPECT_EQ(stats.count, 10);
  EXPECT_EQ(stats.shadow_not_zero, 9);
  EXPECT_EQ(stats.flushed, 2);
  EXPECT_EQ(stats.saturated, 2);
  EXPECT_EQ(stats.subnormal_loss, 1);
  EXPECT_EQ(stats.non_finite_made, 1);
  EXPECT_EQ(stats.non_finite_killed, 1);
  EXPECT_EQ(stats.exact, 2);  // 0 and 1
  EXPECT_EQ(stats.judged, 7);
  EXPECT_EQ(stats.became_subnormal, 2);
  EXPECT_THROW(shadow_stats(x.view(), of_values(Dtype::fp64, {1.0}).view()), Error);
  EXPECT_THROW(shadow_stats(r.view(), r.view()), Error);
}

TEST(ShadowStats, UlpBucketsByHand) {
  const double ulp = 0x1p-10;  // of fp16 in [1, 2)
  std::vector<double> shadow, stored;
  for (const double error : {0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0}) {
    stored.push_back(1.5);
    shadow.push_back(1.5 + error * ulp);
  }
  const ShadowStats stats = shadow_stats(of_values(Dtype::fp16, stored).view(), of_values(Dtype::fp64, shadow).view());
  EXPECT_EQ(stats.ulps[0], 2);
  EXPECT_EQ(stats.ulps[1], 2);
  EXPECT_EQ(stats.ulps[2], 2);
  EXPECT_EQ(stats.ulps[3], 2);
  EXPECT_EQ(stats.ulps[4], 1);
  EXPECT_EQ(stats.toward_zero, 9);
  EXPECT_DOUBLE_EQ(stats.bias(), -18.0 / 9.0);
}

/// Rounding to nearest is unbiased; truncation, the planted fault, is not. The errors stay where the format says.
TEST(ShadowStats, BiasTellsTruncationFromRounding) {
  std::mt19937_64 random(1);
  std::vector<double> shadow;
  for (int i = 0; i < 200000; ++i)
    shadow.push_back((static_cast<double>(random() >> 11) * 0x1p-53 + 0.5) * ((random() & 1) != 0 ? 1.0 : -1.0));
  const Tensor r = of_values(Dtype::fp64, shadow);
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16, Dtype::fp32, Dtype::e4m3fn}) {
    SCOPED_TRACE(name(dtype));
    const auto stored = [&](Rounding rounding) {
      Tensor x(dtype, r.shape());
      encode(format(dtype), {rounding}, std::span<const double>(shadow), x.data());
      return x;
    };
    const ShadowStats nearest = shadow_stats(stored(Rounding::nearest_even).view(), r.view());
    EXPECT_LT(std::fabs(nearest.bias_z()), 5.0);
    EXPECT_EQ(nearest.exact + nearest.ulps[0], nearest.count);
    const ShadowStats down = shadow_stats(stored(Rounding::down).view(), r.view());
    EXPECT_LT(down.bias_z(), -50.0);
    const ShadowStats zero = shadow_stats(stored(Rounding::toward_zero).view(), r.view());
    EXPECT_EQ(zero.away_from_zero, 0);
    EXPECT_GT(zero.toward_zero, 0);
  }
}

/// Over an fp32 shadow the loops are floats where they can be: the same as over the same numbers in fp64, at every kind
/// of element.
TEST(ShadowStats, FloatsAndDoublesAgree) {
  constexpr std::size_t kCount = 70007;
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16})
    for (const int kind : {0, 1, 2, 3}) {
      std::vector<double> values(kCount);
      std::mt19937 random(static_cast<unsigned>(kind));
      for (std::size_t i = 0; i < kCount; ++i) {
        const int exponent = kind == 0 ? 0
                             : kind == 1
                                 ? -14 - static_cast<int>(random() % 14)
                                 : static_cast<int>(random() % 280) - 145;  // normal; subnormal in fp16; all of fp32
        values[i] = i % 97 == 5 && kind > 0 ? 0.0
                                            : std::ldexp(static_cast<double>(random()) * 0x1p-32 + 1.0, exponent) *
                                                  (random() % 2 == 0 ? 1 : -1);
      }
      const Tensor r = of_values(Dtype::fp32, values);
      std::vector<double> shadow = to_doubles(r.view());
      Tensor x = of_values(dtype, shadow);
      if (kind == 3)
        for (std::size_t i = 0; i < kCount; i += 1000) x.span<std::uint16_t>()[i] ^= 0x0101;  // further off than an ulp
      ShadowSums floats, doubles;
      const ShadowStats a = shadow_stats(x.view(), r.view(), 0x1p-20, floats),
                        b = shadow_stats(x.view(), of_values(Dtype::fp64, shadow).view(), 0x1p-20, doubles);
      EXPECT_EQ(std::memcmp(&a, &b, sizeof a), 0) << name(dtype) << kind;
      EXPECT_EQ(floats.above, doubles.above) << name(dtype) << kind;
      EXPECT_EQ(floats.flushed, doubles.flushed) << name(dtype) << kind;
      EXPECT_EQ(floats.overflowed, doubles.overflowed) << name(dtype) << kind;
      // Sums of as many positive terms in another order.
      EXPECT_NEAR(floats.error2, doubles.error2, kCount * 0x1p-53 * doubles.error2) << name(dtype) << kind;
      EXPECT_NEAR(floats.shadow2, doubles.shadow2, kCount * 0x1p-53 * doubles.shadow2) << name(dtype) << kind;
      EXPECT_TRUE(kind == 0 || floats.above < static_cast<std::int64_t>(kCount));
    }
}

/// A pass with its sums, on every SIMD target: the same bits.
TEST(ShadowStats, SimdDoesNotMatter) {
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16})
    for (const int kind : {0, 1, 2}) {
      std::vector<double> values(70001);
      std::mt19937 random(static_cast<unsigned>(kind));
      for (double& v : values)
        v = random() % 97 == 5 ? 0.0
                               : std::ldexp(static_cast<double>(random()) * 0x1p-32 + 1.0,
                                            kind == 0 ? 0 : -static_cast<int>(random() % (kind == 1 ? 12 : 40))) *
                                     (random() % 2 == 0 ? 1 : -1);
      const Tensor r = of_values(Dtype::fp32, values), x = of_values(dtype, to_doubles(r.view()));
      if (kind == 2) x.span<std::uint16_t>()[300] ^= 0x0101;
      std::vector<std::pair<ShadowStats, ShadowSums>> all;
      for (const std::string_view target : simd_targets()) {
        set_simd_target(target);
        ShadowSums sums;
        const ShadowStats stats = shadow_stats(x.view(), r.view(), 0x1p-20, sums);
        all.emplace_back(stats, sums);
      }
      set_simd_target("");
      for (const auto& [stats, sums] : all) {
        EXPECT_EQ(std::memcmp(&stats, &all.front().first, sizeof stats), 0) << name(dtype) << kind;
        EXPECT_EQ(sums.error2, all.front().second.error2) << name(dtype) << kind;
        EXPECT_EQ(sums.shadow2, all.front().second.shadow2) << name(dtype) << kind;
      }
      EXPECT_GT(all.front().second.error2, 0);
    }
}

TEST(ShadowStats, PartsAndThreadsAgree) {
  constexpr std::int64_t kCount = 300000;
  const Tensor x = of_random_bits(Dtype::fp16, kCount, 21);
  Tensor r(Dtype::fp32, {kCount});
  std::vector<double> shadow = to_doubles(x.view());
  std::mt19937 random(2);
  for (double& value : shadow) value *= 1.0 + (static_cast<double>(random() % 2000) - 1000.0) * 1e-6;
  from_doubles(shadow, r.view());
  set_threads(1);
  const ShadowStats one = shadow_stats(x.view(), r.view());
  set_threads(2);
  const ShadowStats two = shadow_stats(x.view(), r.view());
  set_threads(0);
  EXPECT_EQ(std::memcmp(&one, &two, sizeof one), 0);
  // Against the definition in long double: the sums of errors and squares.
  long double errors = 0.0L, squares = 0.0L;
  const std::vector<double> a = to_doubles(x.view()), b = to_doubles(r.view());
  std::int64_t judged = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) continue;
    const int e = b[i] == 0.0 ? -14 : std::clamp(std::ilogb(b[i]), -14, 15);
    const long double error = std::ldexp(static_cast<long double>(a[i]) - b[i], 10 - e);
    ++judged;
    errors += error;
    squares += error * error;
  }
  EXPECT_EQ(one.judged, judged);
  EXPECT_EQ(one.beyond, 0);
  // Each error is rounded to 2^-16 ulp.
  EXPECT_NEAR(static_cast<double>(one.error_sum) * 0x1p-16, static_cast<double>(errors),
              static_cast<double>(judged) * 0x1p-17);
  EXPECT_NEAR(static_cast<double>(one.square_sum_low) * 0x1p-32, static_cast<double>(squares),
              static_cast<double>(judged) * 0x1p-15);
}

TEST(TensorStats, OfACastToFp32FollowFromThoseOfItsSource) {
  int followed = 0;
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16})
    for (const double spread : {1.0, 0x1p-13, 0x1p-20, 0x1p-130})
      for (const char* with : {"", "zeros", "infinities", "nan", "nothing"}) {
        const std::int64_t n = std::string(with) == "nothing" ? 0 : 20'011;
        std::vector<double> values(static_cast<std::size_t>(n));
        Random(7, with).normals(0, values);
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] *= spread;
          if (i % 97 == 5 && std::string(with) == "zeros") values[i] = i % 2 == 0 ? 0.0 : -0.0;
          if (i % 97 == 5 && std::string(with) == "infinities") values[i] = i % 2 == 0 ? INFINITY : -INFINITY;
          if (i == 11 && std::string(with) == "nan") values[i] = NAN;
        }
        Tensor source(dtype, {n}), wide(Dtype::fp32, {n});
        from_doubles(values, source.view());
        from_doubles(to_doubles(source.view()), wide.view());
        const TensorStats known = tensor_stats(source.view());
        const std::optional<TensorStats> got = widened_stats(known, source.view());
        const bool dear = dtype == Dtype::fp16 && known.subnormals * 1000 > known.count;
        ASSERT_EQ(got.has_value(), known.nans == 0 && !dear) << name(dtype) << " " << spread << " " << with;
        if (!got) continue;
        ++followed;
        EXPECT_EQ(*got, tensor_stats(wide.view()))
            << name(dtype) << " " << spread << " " << with << ", " << known.subnormals << " subnormal";
      }
  EXPECT_GT(followed, 20);
}

/// Few subnormal numbers among many: each is counted at its own exponent.
TEST(TensorStats, SubnormalNumbersOfFp16AreNormalInFp32) {
  const std::int64_t n = 2'000'000;
  Tensor source(Dtype::fp16, {n}), wide(Dtype::fp32, {n});
  const auto codes = reinterpret_cast<std::uint16_t*>(source.view().as<std::byte>());
  for (std::int64_t i = 0; i < n; ++i) codes[i] = static_cast<std::uint16_t>(0x3c00 + i % 100);
  for (std::int64_t k = 0; k < 1023; ++k) codes[k * 1953 + 7] = static_cast<std::uint16_t>((k + 1) | (k % 2 << 15));
  from_doubles(to_doubles(source.view()), wide.view());
  const TensorStats known = tensor_stats(source.view());
  ASSERT_EQ(known.subnormals, 1023);
  const std::optional<TensorStats> got = widened_stats(known, source.view());
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(*got, tensor_stats(wide.view()));
  EXPECT_EQ(got->with_exponent(-24), 1);
  EXPECT_EQ(got->with_exponent(-15), 512);
}

}  // namespace
}  // namespace ampcheck
