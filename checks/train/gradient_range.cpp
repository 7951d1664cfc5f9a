// SPDX-License-Identifier: Apache-2.0
#include "checks/train/gradient_range.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ampcheck::checks::train {

namespace {

constexpr int kMostScale = 24;

}  // namespace

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
    const auto bin = static_cast<std::size_t>(std::clamp(field - 1023, kLow, kHigh - 1) - kLow);
    ++counts_[bin];
    powers_[bin] += field > 0 ? (bits & 0xfffffffffffffu) == 0 : std::has_single_bit(bits);
    most = std::max(most, g);
    least = std::min(least, g);
    ++nonzero_;
  }
  amax_ = most;
  if (nonzero_ > 0) amin_ = least;
}

std::int64_t GradientRange::flushed(const FloatFormat& format, int k, int floor) const {
  // Half of the smallest subnormal is 2^edge.
  const int edge = std::ilogb(format.min_subnormal()) - 1;
  std::int64_t out = 0;
  for (int e = std::max(floor, kLow); e < kHigh; ++e) {
    const auto bin = static_cast<std::size_t>(e - kLow);
    if (e + k < edge) out += counts_[bin];
    else if (e + k == edge) out += powers_[bin];
  }
  return out;
}

bool GradientRange::overflows(const FloatFormat& format, int k) const {
  const double half_ulp = std::ldexp(1.0, format.max_exponent() - format.precision);
  return std::ldexp(amax_, k) >= format.max_finite() + half_ulp;
}

ScaleAdvice advise(const std::map<std::string, GradientRange>& ranges, const FloatFormat& format) {
  ScaleAdvice out;
  out.overflows_at = kMostScale + 1;
  std::int64_t all = 0;
  double largest = 0;
  for (const auto& [name, range] : ranges) all += range.nonzero(), largest = std::max(largest, range.amax());
  const int floor = largest > 0 ? std::ilogb(largest) - kFp64.precision + 1 : GradientRange::kLow;
  out.known = all > 0;
  if (!out.known) return out;
  std::int64_t least = -1;
  for (int k = 0; k <= kMostScale; ++k) {
    std::int64_t lost = 0, nearly = 0;
    bool over = false;
    for (const auto& [name, range] : ranges) {
      lost += range.flushed(format, k, floor);
      nearly += range.flushed(format, k - 1, floor);
      if (!range.overflows(format, k)) continue;
      over = true;
      if (k < out.overflows_at) out.overflows_at = k, out.overflows = name;
    }
    if (k == 0) out.unscaled_share = static_cast<double>(lost) / static_cast<double>(all);
    if (over) break;
    if (least < 0 || lost < least) least = lost, out.best = k;
    if (nearly == 0) {
      if (out.low > out.high) out.low = k;
      out.high = k;
    }
  }
  out.best_share = least < 0 ? 1 : static_cast<double>(least) / static_cast<double>(all);
  const int at = out.low <= out.high ? out.low - 2 : out.best;  // where something is surely flushed
  double worst = 0;
  for (const auto& [name, range] : ranges) {
    if (range.nonzero() == 0 || at < 0) continue;
    const double share = static_cast<double>(range.flushed(format, at, floor)) / static_cast<double>(range.nonzero());
    if (share > worst) worst = share, out.flushes = name;
  }
  return out;
}

}  // namespace ampcheck::checks::train
