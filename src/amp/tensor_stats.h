// SPDX-License-Identifier: Apache-2.0
// What low precision did to a tensor: statistics on its bits, in one pass, exact, the same for any order and number of
// threads.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "src/tensor.h"

namespace ampcheck {

/// Powers of two s for which a tensor times 2^s fits a format; empty if first > last.
struct ScaleWindow {
  int first = 0;  ///< smallest s at which no non-zero element becomes zero (or, if asked for, subnormal)
  int last = 0;   ///< largest s at which no element overflows
  bool empty() const { return first > last; }
};

/// One tensor alone. fp64, fp32, fp16, bf16, e4m3fn, e5m2.
struct TensorStats {
  explicit TensorStats(Dtype stored = Dtype::fp32);

  Dtype dtype;
  std::int64_t count = 0, zeros = 0, subnormals = 0, normals = 0;
  std::int64_t positive_infinities = 0, negative_infinities = 0, nans = 0;
  std::int64_t negatives = 0;  ///< sign bit set, -0 and NaN too
  std::int64_t at_max = 0;     ///< |x| == max_finite: where a saturating conversion clamps
  /// Codes without sign. The largest of all is NaN's if there is one, else infinity's: one maximum says both.
  std::uint64_t largest_code = 0, largest_finite_code = 0;
  std::uint64_t smallest_code =
      std::numeric_limits<std::uint64_t>::max();  ///< of the non-zero finite ones; all ones: none
  std::vector<std::int64_t> exponents;            ///< elements by exponent field, both signs: 2^exponent_bits of them

  bool operator==(const TensorStats&) const = default;

  /// Adds another part of the same tensor, or another tensor of the same dtype (Error otherwise).
  void merge(const TensorStats& other);

  std::int64_t infinities() const { return positive_infinities + negative_infinities; }
  std::int64_t not_finite() const { return infinities() + nans; }
  /// max |x|: NaN if any is NaN, infinity if any is infinite; 0 for an empty tensor.
  double amax() const;
  double amax_finite() const;
  /// min |x| over the non-zero finite elements; 0 if there are none.
  double amin() const;
  /// Elements with 2^exponent <= |x| < 2^(exponent+1); zeros and non-finite ones nowhere, subnormals by their field
  /// (all in the lowest).
  std::int64_t with_exponent(int exponent) const;
  /// Binades from the largest finite element up to the format's largest, and from the smallest non-zero one down to
  /// min_normal (negative: that many binades into the subnormals). None without such an element.
  std::optional<int> headroom() const;
  std::optional<int> footroom() const;

  /// Scales at which the finite elements would lose nothing in `format`. Exact, from amax and amin. None without
  /// non-zero elements.
  std::optional<ScaleWindow> scale_window(const FloatFormat& format, bool normal_only = false) const;
  /// Elements that would become zero, or overflow, in `format` at scale 2^s: by binade, so that an element exactly at
  /// the edge of rounding to zero counts as kept. fp32 and fp64 tensors' own subnormals count by their lowest binade.
  std::int64_t flushed_at(const FloatFormat& format, int s) const;
  std::int64_t overflowed_at(const FloatFormat& format, int s) const;
};

/// Statistics of a view of any strides.
TensorStats tensor_stats(const TensorView& view);

/// Those of a 16-bit tensor once it is cast to fp32, which changes no number, from those known of it: half the bytes to
/// read. None where it is dearer than a look at the cast, at many subnormal numbers in fp16, or where there is a NaN,
/// of which a cast may make another.
std::optional<TensorStats> widened_stats(const TensorStats& stats, const TensorView& source);

/// Sums of the finite elements: exact, then rounded once to fp64; so the order and the number of threads do not matter.
struct TensorSums {
  double sum = 0.0, abs_sum = 0.0;
  /// log2(sum |x| / |sum x|): bits lost by cancellation when the elements are summed. Infinite if they cancel fully; 0
  /// if all are zero.
  double cancellation_bits() const;
};
TensorSums tensor_sums(const TensorView& view);

inline constexpr int kUlpBuckets = 20;

/// A tensor against its shadow: the same values in higher precision. ulp: spacing of the tensor's format at the shadow
/// (min_subnormal below min_normal, the top binade's beyond max_finite). Elements whose shadow is not finite, or that
/// are not finite themselves, take no part in ulps; they are counted.
struct ShadowStats {
  std::int64_t count = 0;
  std::int64_t shadow_not_zero = 0;
  std::int64_t flushed = 0;            ///< x == 0, shadow != 0
  std::int64_t subnormal_loss = 0;     ///< x subnormal, |shadow| >= min_normal
  std::int64_t became_subnormal = 0;   ///< shadow itself non-zero below min_normal
  std::int64_t saturated = 0;          ///< |shadow| > max_finite and x is +-max_finite or infinite
  std::int64_t non_finite_made = 0;    ///< x not finite, shadow finite and within max_finite
  std::int64_t non_finite_killed = 0;  ///< x finite, shadow not
  std::int64_t exact = 0;              ///< x == shadow
  /// |x - shadow| in ulps: [0] 0 < e <= 1/2, [1] (1/2, 1], [2] (1, 2], [3] (2, 4], ... the last one: all beyond.
  std::array<std::int64_t, kUlpBuckets> ulps{};
  std::int64_t judged = 0;  ///< elements in exact and ulps
  /// Sums of e = (x - shadow) / ulp and of e^2 in units of 2^-16 ulp, over the elements with |e| <= 2^15; the others
  /// are `beyond`.
  std::int64_t error_sum = 0;
  std::uint64_t square_sum_low = 0, square_sum_high = 0;  ///< of e^2, units of 2^-32, 128 bits
  std::int64_t beyond = 0;
  std::int64_t toward_zero = 0, away_from_zero = 0;  ///< errors that shrink and that grow the magnitude

  void merge(const ShadowStats& other);
  double flushed_share() const { return share(flushed, shadow_not_zero); }
  double saturated_share() const { return share(saturated, count); }
  /// Mean error in ulps.
  double bias() const;
  /// bias / its standard error: beyond about 5, rounding is not unbiased. 0 without errors; infinite if every error is
  /// the same.
  double bias_z() const;

 private:
  static double share(std::int64_t part, std::int64_t whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  }
};

/// Sums beside the statistics, over the elements where tensor and shadow are finite.
struct ShadowSums {
  double error2 = 0,
         shadow2 = 0;  ///< of squares: of the error, of the shadow; by parts, so that they do not depend on the threads
  std::int64_t above = 0;       ///< finite shadows larger than the noise
  std::int64_t flushed = 0;     ///< of these, zeros for what is smaller than the smallest subnormal
  std::int64_t overflowed = 0;  ///< not finite where the shadow is
};

/// x in fp32, fp16, bf16, e4m3fn or e5m2; the shadow in fp64 or fp32, of the same shape (Error otherwise).
ShadowStats shadow_stats(const TensorView& x, const TensorView& shadow);
/// The same with sums; `noise`: a magnitude.
ShadowStats shadow_stats(const TensorView& x, const TensorView& shadow, double noise, ShadowSums& sums);

}  // namespace ampcheck
