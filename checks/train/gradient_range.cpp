// SPDX-License-Identifier: Apache-2.0
#include "checks/train/gradient_range.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ampcheck::checks::train {

double noise_of(std::span<const double> values) {
  double most = 0;
  for (const double v : values)
    if (std::isfinite(v)) most = std::max(most, std::fabs(v));
  return kNoiseShare * most;
}

void GradientRange::add_part(std::span<const double> values, double scale, double noise) {
  const double inverse = 1 / scale;
  double most = amax_, least = nonzero_ == 0 ? INFINITY : amin_;
  for (const double v : values) {
    if (std::fabs(v) <= noise) continue;
    const double g = std::fabs(v) * inverse;
    if (!std::isfinite(g)) {
      ++not_finite_;
      continue;
    }
    if (g == 0) continue;
    const auto bits = std::bit_cast<std::uint64_t>(g);
    const int field = static_cast<int>(bits >> 52);  // 0: a subnormal number, far below kLow
    const auto bin = static_cast<std::size_t>(exponent_of(g) - kLow);
    ++counts_[bin];
    powers_[bin] += field > 0 ? (bits & 0xfffffffffffffu) == 0 : std::has_single_bit(bits);
    most = std::max(most, g);
    least = std::min(least, g);
    ++nonzero_;
  }
  amax_ = most;
  if (nonzero_ > 0) amin_ = least;
}

int GradientRange::exponent_of(double magnitude) {
  return std::clamp(static_cast<int>(std::bit_cast<std::uint64_t>(magnitude) >> 52) - 1023, kLow, kHigh - 1);
}

void GradientRange::merge(const GradientRange& other) {
  not_finite_ += other.not_finite_;
  if (other.nonzero_ == 0) return;
  const auto first = static_cast<std::size_t>(other.first_exponent() - kLow),
             count = static_cast<std::size_t>(other.last_exponent() - kLow) + 1 - first;
  add_counts(other.amin_, other.amax_, other.first_exponent(), std::span(other.counts_).subspan(first, count),
             std::span(other.powers_).subspan(first, count));
}

void GradientRange::add_counts(double amin, double amax, int first, std::span<const std::int64_t> counts,
                               std::span<const std::int64_t> powers) {
  amin_ = nonzero_ == 0 ? amin : std::min(amin_, amin);
  amax_ = std::max(amax_, amax);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto bin = static_cast<std::size_t>(first - kLow) + i;
    if (bin >= counts_.size()) break;
    counts_[bin] += counts[i];
    nonzero_ += counts[i];
    if (i < powers.size()) powers_[bin] += powers[i];
  }
}

std::int64_t GradientRange::flushed(int k) const {
  const int edge = std::ilogb(half_subnormal());
  std::int64_t out = 0;
  for (int e = kLow; e < kHigh; ++e) {
    const auto bin = static_cast<std::size_t>(e - kLow);
    if (e + k < edge)
      out += counts_[bin];
    else if (e + k == edge)
      out += powers_[bin];
  }
  return out;
}

double GradientRange::infinite_from() const {
  const FloatFormat& f = format(dtype_);
  return f.max_finite() + std::ldexp(1.0, f.max_exponent() - f.precision);  // half an ulp
}

bool GradientRange::overflows(int k) const { return std::ldexp(amax_, k) >= infinite_from(); }

void LosslessScales::narrow(const LosslessScales& other) {
  if (other.low) low = low ? std::max(*low, *other.low) : *other.low;
  if (other.high) high = high ? std::min(*high, *other.high) : *other.high;
}

LosslessScales lossless_scales(const GradientRange& range) {
  LosslessScales out;
  if (range.nonzero() == 0) return out;
  const int least = range.first_exponent();
  // Half of the scale takes the least element to 2^edge, half of the smallest subnormal, or above: an exact power must
  // be above.
  const int edge = std::ilogb(range.half_subnormal());
  out.low = edge - least + 1 + (range.powers_with_exponent(least) > 0 ? 1 : 0);
  const int top = std::ilogb(range.infinite_from()) - range.last_exponent();
  out.high = range.overflows(top) ? top - 1 : top;
  return out;
}

void KnownOverflow::add(int step, double scale, double loss, bool found_inf, bool stepped) {
  if (stepped || !found_inf || !std::isfinite(loss) || !std::isfinite(scale) || !(scale > 0)) return;
  int k = std::ilogb(scale);
  if (std::ldexp(1.0, k) < scale) ++k;  // what a smaller power of two does is not known
  if (k >= exponent) return;
  exponent = k;
  where = "step " + std::to_string(step + 1);
}

ScaleAdvice advise(const std::map<std::string, GradientRange>& ranges, const KnownOverflow& known) {
  ScaleAdvice out;
  out.overflows_at = kMostScale + 1;
  std::int64_t all = 0;
  for (const auto& [name, range] : ranges) all += range.nonzero();
  out.known = all > 0;
  if (!out.known) return out;
  LosslessScales any, lossless{0, std::min(kMostScale, known.exponent - 1)};
  for (const auto& [name, range] : ranges) any.narrow(lossless_scales(range));
  lossless.narrow(any);
  if (!lossless.none()) {
    out.low = *lossless.low;
    out.high = *lossless.high;
  } else if (any.low && any.high) {
    if (known.exponent <= kMostScale) any.high = std::min(*any.high, known.exponent - 1);
    if (!any.none()) out.elsewhere = any;
  }
  std::int64_t least = -1;
  for (int k = 0; k <= kMostScale; ++k) {
    std::int64_t lost = 0;
    bool over = false;
    for (const auto& [name, range] : ranges) {
      lost += range.flushed(k);
      if (!range.overflows(k)) continue;
      over = true;
      if (k < out.overflows_at) {
        out.overflows_at = k;
        out.overflows = name;
      }
    }
    if (!over && k >= known.exponent) {
      over = true;
      out.overflows_at = k;
      out.overflows = known.where;
    }
    if (k == 0) out.unscaled_share = static_cast<double>(lost) / static_cast<double>(all);
    if (over) break;
    if (least < 0 || lost < least) {
      least = lost;
      out.best = k;
    }
  }
  out.best_share = least < 0 ? 1 : static_cast<double>(least) / static_cast<double>(all);
  const int at = out.low <= out.high ? out.low - 2 : out.best;  // where something is surely flushed
  double worst = 0;
  for (const auto& [name, range] : ranges) {
    if (range.nonzero() == 0 || at < 0) continue;
    const double share = static_cast<double>(range.flushed(at)) / static_cast<double>(range.nonzero());
    if (share > worst) {
      worst = share;
      out.flushes = name;
    }
  }
  return out;
}

}  // namespace ampcheck::checks::train
