// SPDX-License-Identifier: Apache-2.0
// A tensor against its shadow, by blocks: loops without branches over doubles, then one table per block.
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "src/amp/blocks.h"
#include "src/amp/tensor_stats.h"
#include "src/error.h"
#include "src/parallel.h"

namespace ampcheck {

namespace {

constexpr std::int64_t kGrain = 1 << 16;
constexpr std::int64_t kPart = 256;        // elements at a time: all buffers of them leave room in the first cache
constexpr std::int64_t kFloatPart = 1024;  // of floats: a quarter of the buffers, half the width
constexpr double kMax = std::numeric_limits<double>::max();
constexpr double kBeyond = 32767.0;  // ulps; keeps the error below 2^31 units of 2^-16 ulp
constexpr double kUnits = 65536.0;
constexpr double kRound = 0x1.8p52;  // added and taken away: rounds to an integer in the low bits
constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
constexpr std::uint64_t kInfinity = std::uint64_t{0x7ff} << 52;

/// Facts of the format as the loop needs them.
struct Limits {
  double max_finite, min_normal;
  std::int64_t lowest, highest, ulp;  ///< exponent fields of fp64
  explicit Limits(const FloatFormat& f)
      : max_finite(f.max_finite()),
        min_normal(f.min_normal()),
        lowest(f.min_exponent() + 1023),
        highest(f.max_exponent() + 1023),
        ulp(2046 + f.fraction_bits()) {}
};

struct Block {
  alignas(64) double x[kPart], shadow[kPart];
  alignas(64) double error[kPart];  ///< in ulps; NaN where it cannot be judged
  bool close = false;               ///< every error is at most one ulp, as in most tensors
};

// Each loop is small enough to become SIMD: doubles, and 64-bit integers as their masks and counters.

void find_errors(Block& b, std::int64_t n, const Limits& limits) {
  std::int64_t far = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double x = b.x[i], r = b.shadow[i];
    const auto field = static_cast<std::int64_t>(std::bit_cast<std::uint64_t>(std::fabs(r)) >> 52);
    const std::int64_t raised = field < limits.lowest ? limits.lowest : field,
                       kept = raised > limits.highest ? limits.highest : raised;
    const double per_ulp = std::bit_cast<double>(static_cast<std::uint64_t>(limits.ulp - kept) << 52);
    const double finite_or_nan = (x - x) + (r - r);  // 0, or NaN where one of them is not finite
    b.error[i] = (x - r) * per_ulp + finite_or_nan;
    far |= std::fabs(b.error[i]) <= 1.0 ? 0 : 1;
  }
  b.close = far == 0;
}

/// Whether all of a block and its shadow are normal numbers: then none of the classes below is met.
bool all_normal(const Block& b, std::int64_t n, const Limits& limits) {
  std::int64_t special = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double ax = std::fabs(b.x[i]), ar = std::fabs(b.shadow[i]);
    const std::int64_t x_normal = (ax >= limits.min_normal ? 1 : 0) & (ax <= limits.max_finite ? 1 : 0);
    const std::int64_t r_normal = (ar >= limits.min_normal ? 1 : 0) & (ar <= limits.max_finite ? 1 : 0);
    special |= 1 - (x_normal & r_normal);
  }
  return special == 0;
}

void count_classes(const Block& b, std::int64_t n, const Limits& limits, ShadowStats& stats) {
  if (all_normal(b, n, limits)) {
    stats.shadow_not_zero += n;
    return;
  }
  std::int64_t not_zero = 0, flushed = 0, loss = 0, became = 0, saturated = 0, made = 0, killed = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double ax = std::fabs(b.x[i]), ar = std::fabs(b.shadow[i]);
    const std::int64_t r_not_zero = ar != 0.0 ? 1 : 0, r_normal = ar >= limits.min_normal ? 1 : 0,
                       r_below = ar < limits.min_normal ? 1 : 0;
    const std::int64_t x_below = ax < limits.min_normal ? 1 : 0, x_zero = ax == 0.0 ? 1 : 0,
                       x_at_top = ax >= limits.max_finite ? 1 : 0;
    const std::int64_t r_finite = ar <= kMax ? 1 : 0, x_finite = ax <= kMax ? 1 : 0,
                       r_fits = ar <= limits.max_finite ? 1 : 0;
    not_zero += r_not_zero;
    flushed += x_zero & r_not_zero;
    loss += (x_below - x_zero) & r_normal;
    became += r_below & r_not_zero;
    saturated += (r_finite - r_fits) & x_at_top;
    made += (1 - x_finite) & r_fits;
    killed += x_finite & (1 - r_finite);
  }
  stats.shadow_not_zero += not_zero;
  stats.flushed += flushed;
  stats.subnormal_loss += loss;
  stats.became_subnormal += became;
  stats.saturated += saturated;
  stats.non_finite_made += made;
  stats.non_finite_killed += killed;
}

/// The integer value of a double with 0 <= value < 2^52.
std::int64_t integer(double value) {
  return std::bit_cast<std::int64_t>(value + 0x1p52) - std::bit_cast<std::int64_t>(0x1p52);
}

void sum_errors(const Block& b, std::int64_t n, ShadowStats& stats) {
  std::int64_t errors = 0, upper_squares = 0, middles = 0, lower_squares = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double e = b.error[i];
    const double rounded = (std::fabs(e) <= kBeyond ? e * kUnits : 0.0) + kRound;
    errors += std::bit_cast<std::int64_t>(rounded) - std::bit_cast<std::int64_t>(kRound);
    // The square of fewer than 31 bits by parts of 16, each an exact double.
    const double magnitude = std::fabs(rounded - kRound);
    const double upper = std::floor(magnitude * 0x1p-16), lower = magnitude - upper * 0x1p16;
    upper_squares += integer(upper * upper);
    middles += integer(2.0 * upper * lower);
    lower_squares += integer(lower * lower);
  }
  stats.error_sum += errors;
  const auto squares = (static_cast<unsigned __int128>(upper_squares) << 32) +
                       (static_cast<unsigned __int128>(middles) << 16) + static_cast<unsigned __int128>(lower_squares);
  const auto low = static_cast<std::uint64_t>(squares);
  stats.square_sum_low += low;
  stats.square_sum_high += static_cast<std::uint64_t>(squares >> 64) + (stats.square_sum_low < low ? 1 : 0);
}

void count_directions(const Block& b, std::int64_t n, ShadowStats& stats) {
  std::int64_t far = 0, toward = 0, away = 0, judged = 0, exact = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double a = std::fabs(b.error[i]), ax = std::fabs(b.x[i]), ar = std::fabs(b.shadow[i]);
    const std::int64_t finite = a >= 0.0 ? 1 : 0;
    far += a > kBeyond ? 1 : 0;
    exact += a == 0.0 ? 1 : 0;
    judged += finite;
    toward += finite & (ax < ar ? 1 : 0);
    away += finite & (ax > ar ? 1 : 0);
  }
  stats.beyond += far;
  stats.exact += exact;
  stats.judged += judged;
  stats.toward_zero += toward;
  stats.away_from_zero += away;
}

void count_buckets(const Block& b, std::int64_t n, ShadowStats& stats) {
  // ceil(log2 a) + 1: a power of two less one unit lies in the binade below. Zero and NaN fall outside the buckets.
  constexpr std::int64_t kFirst = 1023 - 2;
  alignas(64) std::int64_t bucket[kPart];
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t code = std::bit_cast<std::uint64_t>(b.error[i]) & ~kSign;
    const auto found = static_cast<std::int64_t>((code - 1) >> 52) - kFirst;  // zero wraps to the highest
    const std::int64_t raised = found < 0 ? 0 : found, kept = raised > kUlpBuckets - 1 ? kUlpBuckets - 1 : raised;
    bucket[i] = static_cast<std::int64_t>(code - 1) < static_cast<std::int64_t>(kInfinity) ? kept : kUlpBuckets;
    bucket[i] = code == 0 ? kUlpBuckets : bucket[i];
  }
  std::array<std::array<std::int32_t, kUlpBuckets + 1>, 4> tables{};  // equal neighbours do not wait for one another
  for (std::int64_t i = 0; i < n; ++i) ++tables[static_cast<std::size_t>(i) % 4][static_cast<std::size_t>(bucket[i])];
  for (const auto& table : tables)
    for (std::size_t k = 0; k < kUlpBuckets; ++k) stats.ulps[k] += table[k];
}

/// What the three loops above do, where every error is at most one ulp: 2^16 units, whose square is an exact double.
void count_close(const Block& b, std::int64_t n, ShadowStats& stats) {
  std::int64_t errors = 0, squares = 0, exact = 0, over_half = 0, toward = 0, away = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double e = b.error[i], a = std::fabs(e), ax = std::fabs(b.x[i]), ar = std::fabs(b.shadow[i]);
    const double rounded = e * kUnits + kRound, magnitude = rounded - kRound;
    errors += std::bit_cast<std::int64_t>(rounded) - std::bit_cast<std::int64_t>(kRound);
    squares += integer(magnitude * magnitude);
    exact += a == 0.0 ? 1 : 0;
    over_half += a > 0.5 ? 1 : 0;
    toward += ax < ar ? 1 : 0;
    away += ax > ar ? 1 : 0;
  }
  stats.error_sum += errors;
  const auto low = static_cast<std::uint64_t>(squares);
  stats.square_sum_low += low;
  stats.square_sum_high += stats.square_sum_low < low ? 1 : 0;
  stats.judged += n;
  stats.exact += exact;
  stats.toward_zero += toward;
  stats.away_from_zero += away;
  stats.ulps[0] += n - exact - over_half;
  stats.ulps[1] += over_half;
}

/// n elements from row-major index `at` on, as doubles.
void load(const TensorView& view, std::int64_t at, std::int64_t n, double* out) {
  if (view.is_dense()) return load_block(view, at, n, out);
  for (std::int64_t i = 0; i < n; ++i) load_block(view, view.offset(at + i), 1, out + i);
}

/// Facts of a 16-bit format as floats need them.
struct FloatLimits {
  float min_subnormal, min_normal, max_finite, noise;
  float tiny;            ///< below this, but for zero, one ulp is smaller than a float can divide by
  std::int32_t lowest;   ///< exponent field
  std::int32_t per_ulp;  ///< less the exponent field of a value: that of 1 / ulp
  FloatLimits(const FloatFormat& f, double of_noise)
      : min_subnormal(static_cast<float>(f.min_subnormal())),
        min_normal(static_cast<float>(f.min_normal())),
        max_finite(static_cast<float>(f.max_finite())),
        noise(static_cast<float>(of_noise)),
        tiny(f.min_normal() < 0x1p-119 ? 0x1p-119f : 0.0f),
        lowest(std::max(f.min_exponent(), -119) + 127),
        per_ulp(254 + f.fraction_bits()) {}
};

/// Sums of squares of x - r, of r and of the units. Every square is an exact double, so adding it fused or not gives
/// the same bits; and there are kLanes sums on every processor, so its width does not show either.
struct SquareSums {
  double error2, shadow2, units2;
};
constexpr int kLanes = 16;

/// n is a multiple of kLanes.
using SumSquares = SquareSums(const float* x, const float* r, const std::int32_t* units, std::int64_t n);

SquareSums total(const double (&error2)[kLanes], const double (&shadow2)[kLanes], const double (&units2)[kLanes]) {
  SquareSums sums{};
  for (int k = 0; k < kLanes; ++k) {
    sums.error2 += error2[k];
    sums.shadow2 += shadow2[k];
    sums.units2 += units2[k];
  }
  return sums;
}

#if defined(__AVX2__) && defined(__FMA__)
SquareSums sum_squares(const float* x, const float* r, const std::int32_t* units, std::int64_t n) {
  __m256d error2[4] = {}, shadow2[4] = {}, units2[4] = {};
  for (std::int64_t i = 0; i < n; i += kLanes)
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const __m128 shadow = _mm_loadu_ps(r + i + 4 * k);
      const __m256d e = _mm256_cvtps_pd(_mm_sub_ps(_mm_loadu_ps(x + i + 4 * k), shadow)), v = _mm256_cvtps_pd(shadow);
      const __m256d u = _mm256_cvtepi32_pd(_mm_loadu_si128(reinterpret_cast<const __m128i*>(units + i + 4 * k)));
      error2[k] = _mm256_fmadd_pd(e, e, error2[k]);
      shadow2[k] = _mm256_fmadd_pd(v, v, shadow2[k]);
      units2[k] = _mm256_fmadd_pd(u, u, units2[k]);
    }
  double of_error[kLanes], of_shadow[kLanes], of_units[kLanes];
  for (int k = 0; k < 4; ++k) {
    _mm256_storeu_pd(of_error + 4 * k, error2[k]);
    _mm256_storeu_pd(of_shadow + 4 * k, shadow2[k]);
    _mm256_storeu_pd(of_units + 4 * k, units2[k]);
  }
  return total(of_error, of_shadow, of_units);
}
#else
SquareSums sum_squares(const float* x, const float* r, const std::int32_t* units, std::int64_t n) {
  double error2[kLanes] = {}, shadow2[kLanes] = {}, units2[kLanes] = {};
  for (std::int64_t i = 0; i < n; i += kLanes)
    for (int k = 0; k < kLanes; ++k) {
      const double e = x[i + k] - r[i + k], v = r[i + k], u = units[i + k];
      error2[k] += e * e;
      shadow2[k] += v * v;
      units2[k] += u * u;
    }
  return total(error2, shadow2, units2);
}
#endif

// The loops of add_close(), which is compiled for two widths: each part goes into either.
#define AMPCHECK_INTO_BOTH [[gnu::always_inline]] inline

/// As integers magnitudes order as they do as numbers, with NaN above all: a maximum is less than comparisons and their
/// masks.
AMPCHECK_INTO_BOTH std::int32_t magnitude_bits(float v) { return std::bit_cast<std::int32_t>(v) & 0x7fffffff; }

/// Extremes and counts of a block, whose units of 2^-16 ulp are in `units`.
struct FloatErrors {
  std::int32_t largest = 0, furthest = 0, smallest = std::numeric_limits<std::int32_t>::max();  ///< magnitude_bits()
  std::int32_t over_half = 0, toward = 0, away = 0, above = 0;
  std::uint32_t sum = 0;  ///< modulo 2^32: what is beyond an ulp makes any number of units, and the block is dropped
};

AMPCHECK_INTO_BOTH FloatErrors find_float_errors(const float* x, const float* r, std::int64_t n,
                                                 const FloatLimits& limits, std::int32_t* units) {
  constexpr float kShift = 0x1.8p23f;
  const std::int32_t noise = magnitude_bits(limits.noise);
  FloatErrors out;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int32_t ax = magnitude_bits(x[i]), ar = magnitude_bits(r[i]);
    const std::int32_t own = ar >> 23, field = own < limits.lowest ? limits.lowest : own;
    const float e = (x[i] - r[i]) * std::bit_cast<float>((limits.per_ulp - field) << 23);
    const std::int32_t more = ax > ar ? ax : ar, less = ax > ar ? ar : ax, a = magnitude_bits(e);
    out.largest = more > out.largest ? more : out.largest;
    out.smallest = less < out.smallest ? less : out.smallest;
    out.furthest = a > out.furthest ? a : out.furthest;
    const std::uint32_t shifted =
        std::bit_cast<std::uint32_t>(e * static_cast<float>(kUnits) + kShift) - std::bit_cast<std::uint32_t>(kShift);
    units[i] = static_cast<std::int32_t>(shifted);
    out.sum += shifted;
    out.over_half += a > magnitude_bits(0.5f) ? 1 : 0;
    out.toward += ax < ar ? 1 : 0;
    out.away += ax > ar ? 1 : 0;
    out.above += ar > noise ? 1 : 0;
  }
  return out;
}

/// Whether an element is too small for its error to be a float.
AMPCHECK_INTO_BOTH bool any_tiny(const float* x, const float* r, std::int64_t n, const FloatLimits& limits) {
  std::int32_t tiny = 0;
  for (std::int64_t i = 0; limits.tiny > 0 && i < n; ++i)
    tiny |= (std::fabs(r[i]) < limits.tiny ? 1 : 0) & ((r[i] != 0.0f ? 1 : 0) | (x[i] != 0.0f ? 1 : 0));
  return tiny != 0;
}

/// The classes of a block that has numbers below the normal ones.
AMPCHECK_INTO_BOTH void count_small(const float* x, const float* r, std::int64_t n, const FloatLimits& limits,
                                    ShadowStats& stats, ShadowSums& sums) {
  std::int32_t zeros = 0, flushed = 0, loss = 0, became = 0, vanished = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const float ax = std::fabs(x[i]), ar = std::fabs(r[i]);
    const std::int32_t x_zero = ax == 0.0f ? 1 : 0, r_zero = ar == 0.0f ? 1 : 0,
                       r_normal = ar >= limits.min_normal ? 1 : 0;
    zeros += r_zero;
    flushed += x_zero & (1 - r_zero);
    became += 1 - r_normal - r_zero;
    loss += (ax < limits.min_normal ? 1 : 0) & (1 - x_zero) & r_normal;
    vanished += (ar > limits.noise ? 1 : 0) & x_zero & (ar < limits.min_subnormal ? 1 : 0);
  }
  sums.flushed += vanished;
  stats.shadow_not_zero -= zeros;
  stats.flushed += flushed;
  stats.subnormal_loss += loss;
  stats.became_subnormal += became;
}

/// sum() of a block of any length: its end is filled up with zeros.
AMPCHECK_INTO_BOTH SquareSums squares_of(const float* x, const float* r, const std::int32_t* units, std::int64_t n,
                                         SumSquares& sum) {
  const std::int64_t whole = n / kLanes * kLanes;
  SquareSums squares = sum(x, r, units, whole);
  if (whole == n) return squares;
  float rest_x[kLanes] = {}, rest_r[kLanes] = {};
  std::int32_t rest_units[kLanes] = {};
  std::copy(x + whole, x + n, rest_x);
  std::copy(r + whole, r + n, rest_r);
  std::copy(units + whole, units + n, rest_units);
  const SquareSums rest = sum(rest_x, rest_r, rest_units, kLanes);
  squares.error2 += rest.error2;
  squares.shadow2 += rest.shadow2;
  squares.units2 += rest.units2;
  return squares;
}

/// A block of a 16-bit tensor and of what it was rounded from: where no error is larger than one ulp the differences
/// are exact floats, of normal numbers by Sterbenz, and the loops are of half the width. False where one is, or an
/// element is beyond the format; then nothing was added.
AMPCHECK_INTO_BOTH bool add_close(const float* x, const float* r, std::int64_t n, const FloatLimits& limits,
                                  SumSquares& sum, ShadowStats& stats, ShadowSums& sums) {
  alignas(64) std::int32_t units[kFloatPart];
  const FloatErrors errors = find_float_errors(x, r, n, limits, units);
  if (errors.largest > magnitude_bits(limits.max_finite) || errors.furthest > magnitude_bits(1.0f)) return false;
  const bool small = errors.smallest < magnitude_bits(limits.min_normal);
  if (small && any_tiny(x, r, n, limits)) return false;
  stats.shadow_not_zero += n;
  if (small) count_small(x, r, n, limits, stats, sums);
  const SquareSums squares = squares_of(x, r, units, n, sum);
  sums.error2 += squares.error2;
  sums.shadow2 += squares.shadow2;
  sums.above += errors.above;
  const auto low = static_cast<std::uint64_t>(squares.units2);  // of 17 bits each: exact
  stats.error_sum += static_cast<std::int32_t>(errors.sum);
  stats.square_sum_low += low;
  stats.square_sum_high += stats.square_sum_low < low ? 1 : 0;
  const std::int64_t exact = n - errors.toward - errors.away;  // of one size and not of one sign: two ulps apart
  stats.judged += n;
  stats.exact += exact;
  stats.toward_zero += errors.toward;
  stats.away_from_zero += errors.away;
  stats.ulps[0] += n - exact - errors.over_half;
  stats.ulps[1] += errors.over_half;
  return true;
}

#if defined(__AVX2__) && defined(__FMA__)
#if defined(__clang__)
#define AMPCHECK_WIDE "avx512f,avx512bw,avx512dq,avx512vl"
#else
#define AMPCHECK_WIDE "avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"
#endif
/// The same sums and loops at twice the width.
__attribute__((target(AMPCHECK_WIDE))) SquareSums sum_squares_wide(const float* x, const float* r,
                                                                   const std::int32_t* units, std::int64_t n) {
  constexpr __mmask8 kAll = 0xff;  // of the forms without a mask gcc 12 says that they read what is not set
  __m512d error2[2] = {}, shadow2[2] = {}, units2[2] = {};
  for (std::int64_t i = 0; i < n; i += kLanes)
#pragma GCC unroll 2
    for (int k = 0; k < 2; ++k) {
      const __m256 shadow = _mm256_loadu_ps(r + i + 8 * k);
      const __m512d e = _mm512_maskz_cvtps_pd(kAll, _mm256_sub_ps(_mm256_loadu_ps(x + i + 8 * k), shadow)),
                    v = _mm512_maskz_cvtps_pd(kAll, shadow);
      const __m512d u =
          _mm512_maskz_cvtepi32_pd(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(units + i + 8 * k)));
      error2[k] = _mm512_fmadd_pd(e, e, error2[k]);
      shadow2[k] = _mm512_fmadd_pd(v, v, shadow2[k]);
      units2[k] = _mm512_fmadd_pd(u, u, units2[k]);
    }
  double of_error[kLanes], of_shadow[kLanes], of_units[kLanes];
  for (int k = 0; k < 2; ++k) {
    _mm512_storeu_pd(of_error + 8 * k, error2[k]);
    _mm512_storeu_pd(of_shadow + 8 * k, shadow2[k]);
    _mm512_storeu_pd(of_units + 8 * k, units2[k]);
  }
  return total(of_error, of_shadow, of_units);
}
__attribute__((target(AMPCHECK_WIDE))) bool add_close_wide(const float* x, const float* r, std::int64_t n,
                                                           const FloatLimits& limits, ShadowStats& stats,
                                                           ShadowSums& sums) {
  return add_close(x, r, n, limits, sum_squares_wide, stats, sums);
}
/// Highway's AVX3 has all of them.
bool runs_wide() { return simd_target().starts_with("AVX3"); }
#else
bool add_close_wide(const float*, const float*, std::int64_t, const FloatLimits&, ShadowStats&, ShadowSums&) {
  return false;
}
bool runs_wide() { return false; }
#endif

bool add_close_floats(bool wide, const float* x, const float* r, std::int64_t n, const FloatLimits& limits,
                      ShadowStats& stats, ShadowSums& sums) {
  return wide ? add_close_wide(x, r, n, limits, stats, sums) : add_close(x, r, n, limits, sum_squares, stats, sums);
}

void add_sums(const Block& b, std::int64_t n, double noise, double smallest, ShadowSums& sums) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double ax = std::fabs(b.x[i]), ar = std::fabs(b.shadow[i]), e = b.x[i] - b.shadow[i];
    const bool finite = ar <= kMax, kept = ax <= kMax, above = finite && ar > noise;
    sums.above += above ? 1 : 0;
    sums.flushed += above && ax == 0 && ar < smallest ? 1 : 0;  // a zero for a larger value is an error, but no flush
    sums.overflowed += finite && !kept ? 1 : 0;
    if (finite && kept) {
      sums.error2 += e * e;
      sums.shadow2 += b.shadow[i] * b.shadow[i];
    }
  }
}

ShadowStats part(const TensorView& x, const TensorView& shadow, std::int64_t begin, std::int64_t end, double noise = 0,
                 ShadowSums* sums = nullptr) {
  ShadowStats stats;
  ShadowSums unwanted;
  const Limits limits(format(x.dtype));
  const FloatLimits of_floats(format(x.dtype), noise);
  const bool floats = shadow.dtype == Dtype::fp32 && (x.dtype == Dtype::fp16 || x.dtype == Dtype::bf16) &&
                      x.is_dense() && shadow.is_dense();
  Block block;
  alignas(64) float narrow[kFloatPart];
  const bool wide = runs_wide();
  const auto add_floats = [&](std::int64_t at, std::int64_t n) {
    load_block(x, at, n, narrow);
    return add_close_floats(wide, narrow, shadow.as<const float>() + at, n, of_floats, stats,
                            sums != nullptr ? *sums : unwanted);
  };
  std::int64_t n = 0, far = begin;  // up to `far` floats are tried by small parts
  for (std::int64_t at = begin; at < end; at += n) {
    if (floats && at >= far) {
      n = std::min<std::int64_t>(kFloatPart, end - at);
      if (add_floats(at, n)) continue;
      far = at + n;
    }
    n = std::min<std::int64_t>(kPart, (floats ? far : end) - at);
    if (floats && add_floats(at, n)) continue;
    load(x, at, n, block.x);
    load(shadow, at, n, block.shadow);
    find_errors(block, n, limits);
    if (sums != nullptr) add_sums(block, n, noise, format(x.dtype).min_subnormal(), *sums);
    count_classes(block, n, limits, stats);
    if (block.close) {
      count_close(block, n, stats);
      continue;
    }
    sum_errors(block, n, stats);
    count_directions(block, n, stats);
    count_buckets(block, n, stats);
  }
  stats.count = end - begin;
  return stats;
}

}  // namespace

void ShadowStats::merge(const ShadowStats& other) {
  count += other.count;
  shadow_not_zero += other.shadow_not_zero;
  flushed += other.flushed;
  subnormal_loss += other.subnormal_loss;
  became_subnormal += other.became_subnormal;
  saturated += other.saturated;
  non_finite_made += other.non_finite_made;
  non_finite_killed += other.non_finite_killed;
  exact += other.exact;
  for (std::size_t k = 0; k < ulps.size(); ++k) ulps[k] += other.ulps[k];
  judged += other.judged;
  error_sum += other.error_sum;
  square_sum_low += other.square_sum_low;
  square_sum_high += other.square_sum_high + (square_sum_low < other.square_sum_low ? 1 : 0);
  beyond += other.beyond;
  toward_zero += other.toward_zero;
  away_from_zero += other.away_from_zero;
}

double ShadowStats::bias() const {
  const std::int64_t n = judged - beyond;
  return n == 0 ? 0.0 : static_cast<double>(error_sum) / kUnits / static_cast<double>(n);
}

double ShadowStats::bias_z() const {
  const auto n = static_cast<double>(judged - beyond);
  if (n == 0.0 || error_sum == 0) return 0.0;
  const double squares =
      (std::ldexp(static_cast<double>(square_sum_high), 64) + static_cast<double>(square_sum_low)) / (kUnits * kUnits);
  const double mean = bias(), variance = squares / n - mean * mean;
  return variance <= 0.0 ? std::copysign(std::numeric_limits<double>::infinity(), mean)
                         : mean / std::sqrt(variance / n);
}

namespace {

void require_pair(const TensorView& x, const TensorView& shadow) {
  if (!(x.shape == shadow.shape))
    throw Error("[shadow_stats] shadow, got shape " + shadow.shape.str() + ", want " + x.shape.str());
  if (!is_float(x.dtype) || x.dtype == Dtype::fp64)
    throw Error(std::string("[shadow_stats] tensor, got ") + name(x.dtype) + ", want a floating dtype below fp64");
  if (shadow.dtype != Dtype::fp64 && shadow.dtype != Dtype::fp32)
    throw Error(std::string("[shadow_stats] shadow, got ") + name(shadow.dtype) + ", want fp64 or fp32");
}

}  // namespace

ShadowStats shadow_stats(const TensorView& x, const TensorView& shadow, double noise, ShadowSums& sums) {
  require_pair(x, shadow);
  const std::int64_t parts = (x.count() + kGrain - 1) / kGrain;
  std::vector<std::pair<ShadowStats, ShadowSums>> of(static_cast<std::size_t>(parts));
  parallel_for(parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      auto& [stats, own] = of[static_cast<std::size_t>(p)];
      stats = part(x, shadow, p * kGrain, std::min(x.count(), (p + 1) * kGrain), noise, &own);
    }
  });
  ShadowStats all;
  for (const auto& [stats, own] : of) {
    all.merge(stats);
    sums.error2 += own.error2;
    sums.shadow2 += own.shadow2;
    sums.above += own.above;
    sums.flushed += own.flushed;
    sums.overflowed += own.overflowed;
  }
  return all;
}

ShadowStats shadow_stats(const TensorView& x, const TensorView& shadow) {
  require_pair(x, shadow);
  if (threads() == 1 || x.count() <= kGrain) return part(x, shadow, 0, x.count());
  ShadowStats all;
  std::mutex mutex;
  parallel_for(x.count(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    const ShadowStats mine = part(x, shadow, begin, end);
    const std::lock_guard lock(mutex);
    all.merge(mine);
  });
  return all;
}

}  // namespace ampcheck
