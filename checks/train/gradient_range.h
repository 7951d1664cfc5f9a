// SPDX-License-Identifier: Apache-2.0
// Which powers of two a gradient may be multiplied by so that a format holds it: from the histogram of the exponents of
// its exact values.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/dtype.h"

namespace ampcheck::checks::train {

/// Below this share of a tensor's largest element a value of the fp64 formula is taken for the formula's own rounding,
/// 2^-53 with room for sums of 2^9 terms that cancel: what is zero by a symmetry, as dq of the first row of causal
/// attention, is such a value.
inline constexpr double kNoiseShare = 0x1p-44;
/// kNoiseShare times the largest finite magnitude.
double noise_of(std::span<const double> values);

/// Counts the magnitudes of one tensor's gradients, over any number of steps.
class GradientRange {
 public:
  /// `dtype`: what holds them.
  explicit GradientRange(Dtype dtype = Dtype::fp16) : dtype_(dtype) {}
  /// Exact values that hold the gradient times `scale`; those below noise_of() count as zero.
  void add(std::span<const double> values, double scale) { add_part(values, scale, noise_of(values)); }
  /// A part of a tensor with that noise.
  void add_part(std::span<const double> values, double scale, double noise);
  /// Another part, or another tensor.
  void merge(const GradientRange& other);
  /// What another range counted: `counts` and of these `powers` (as many, or none) from exponent `first` on.
  void add_counts(double amin, double amax, int first, std::span<const std::int64_t> counts,
                  std::span<const std::int64_t> powers);
  /// Elements, and of these exact powers of two, with 2^exponent <= |x| < 2^(exponent + 1).
  std::int64_t with_exponent(int exponent) const { return counts_[static_cast<std::size_t>(exponent - kLow)]; }
  std::int64_t powers_with_exponent(int exponent) const { return powers_[static_cast<std::size_t>(exponent - kLow)]; }
  /// Exponents of the smallest and the largest element, where there is one.
  int first_exponent() const { return exponent_of(amin_); }
  int last_exponent() const { return exponent_of(amax_); }

  std::int64_t nonzero() const { return nonzero_; }
  std::int64_t not_finite() const { return not_finite_; }
  double amax() const { return amax_; }
  double amin() const { return amin_; }  ///< of what is not zero
  /// How many of the non-zero elements round to zero, to nearest, when multiplied by 2^k: magnitudes up to half the
  /// smallest subnormal, a tie included, since zero is even.
  std::int64_t flushed(int k) const;
  /// Whether the largest becomes infinite: from max_finite plus half its ulp on.
  bool overflows(int k) const;
  /// There was a magnitude as large as that, whatever was counted.
  void reach(double magnitude) {
    if (nonzero_ > 0 && magnitude > amax_) amax_ = magnitude;
  }
  /// The largest that rounds to zero in their format, and the smallest that becomes infinite.
  double half_subnormal() const { return format(dtype_).min_subnormal() / 2; }
  double infinite_from() const;

  static constexpr int kLow = -400, kHigh = 400;

 private:
  static int exponent_of(double magnitude);

  Dtype dtype_;
  std::array<std::int64_t, kHigh - kLow> counts_{};  ///< by exponent
  std::array<std::int64_t, kHigh - kLow> powers_{};  ///< of these, exact powers of two
  std::int64_t nonzero_ = 0, not_finite_ = 0;
  double amax_ = 0, amin_ = 0;
};

/// Powers of two as loss scales that lose nothing: by ScaleAdvice's rule, of all integers. None where nothing bounds
/// them.
struct LosslessScales {
  std::optional<int> low, high;
  bool none() const { return low && high && *low > *high; }
  /// Those that lose nothing of either.
  void narrow(const LosslessScales& other);
};
LosslessScales lossless_scales(const GradientRange& range);

/// What the loss scales 2^0 ... 2^24 would have done to a run. A scale loses nothing if half of it would flush nothing:
/// near the edge the values that go into an op are rounded coarsely themselves.
struct ScaleAdvice {
  bool known = false;         ///< some gradient was looked at
  int low = 0, high = -1;     ///< 2^low .. 2^high lose nothing; low > high: each loses something
  LosslessScales elsewhere;   ///< where none of these keeps everything: those below 1 or above 2^24 that do, if any
  int best = 0;               ///< of those without overflow the one that loses least, the smallest of equals
  double best_share = 0;      ///< of the non-zero elements that it flushes to zero
  double unscaled_share = 0;  ///< that scale 1 flushes
  std::string flushes;        ///< the tensor of which scale 2^(low-2), or else `best`, loses the largest share
  std::string overflows;      ///< the tensor that overflows at the smallest scale, or "step N", and
  int overflows_at = 0;       ///< that scale's exponent; more than 24 if none does
};
inline constexpr int kMostScale = 24;
/// A scale that overflowed whatever was looked at: its exponent and the step's words.
struct KnownOverflow {
  int exponent = kMostScale + 1;
  std::string where = {};
  /// Takes a step's if it was skipped at a smaller scale; a loss that was not finite itself says nothing about scales.
  void add(int step, double scale, double loss, bool found_inf, bool stepped);
};
ScaleAdvice advise(const std::map<std::string, GradientRange>& ranges, const KnownOverflow& known = {});

}  // namespace ampcheck::checks::train
