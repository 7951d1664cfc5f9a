// SPDX-License-Identifier: Apache-2.0
#include "checks/interval.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// low and high from value and radius: RN to storage of the ends, the radius first widened by what this fp64
/// arithmetic itself may lose (rule R11).
void round_ends(Interval& out) {
  const std::size_t n = out.value.size();
  out.low.resize(n), out.high.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    const double v = out.value[i], r = out.radius[i];
    const double wide = r == 0 ? 0.0 : r + (r * 0x1p-40 + std::fabs(v) * 0x1p-51);
    out.low[i] = v - wide, out.high[i] = v + wide;
  }
  const FloatFormat& storage = format(out.dtype);
  round_values(storage, RoundingMode{}, out.low, out.low);
  round_values(storage, RoundingMode{}, out.high, out.high);
}

/// Elements of the full mode: by class, by flags, or by interval.
void judge_range(const reference::Ball& ball, bool leaves_finite, Interval& out) {
  out.how.assign(out.value.size(), Judgement::interval);
  for (std::size_t i = 0; i < out.value.size(); ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    const double v = out.value[i];
    const std::uint8_t flags = ball.flags ? ball.flags[at] : std::uint8_t{0};
    if (flags & reference::kLeftRange) {
      const double f = ball.replay[at];
      if (!std::isfinite(f) || !std::isfinite(v)) {
        out.how[i] = Judgement::open;
        continue;
      }
      double ends[2] = {std::min(f * (1 - 0x1p-6), f * (1 + 0x1p-6)), std::max(f * (1 - 0x1p-6), f * (1 + 0x1p-6))};
      round_values(format(out.dtype), RoundingMode{}, ends, ends);
      out.low[i] = std::min(out.low[i], ends[0]), out.high[i] = std::max(out.high[i], ends[1]);
    } else if (std::isnan(v)) {
      out.how[i] = leaves_finite ? Judgement::open : Judgement::non_finite;
    } else if (std::isinf(v)) {
      out.low[i] = out.high[i] = v;
      out.how[i] = flags & reference::kMayBeNan ? Judgement::maybe_nan : Judgement::infinite;
    } else if (std::isinf(out.radius[i])) {
      out.how[i] = Judgement::open;
    }
  }
}

Interval finish(const reference::Ball& ball, Interval out, bool leaves_finite) {
  round_ends(out);
  const bool special = ball.flags != nullptr || !ball.range.finite ||
                       std::any_of(out.radius.begin(), out.radius.end(), [](double r) { return !(r < kInfinity); });
  if (special) judge_range(ball, leaves_finite, out);
  return out;
}

}  // namespace

Interval interval_of(const reference::Ball& ball, Dtype dtype, const std::string& form, bool leaves_finite) {
  Interval out;
  out.form = form, out.dtype = dtype, out.shape = ball.shape;
  const auto n = static_cast<std::size_t>(ball.count());
  out.value.assign(ball.v.get(), ball.v.get() + n);
  if (ball.r) out.radius.assign(ball.r.get(), ball.r.get() + n);
  else out.radius.assign(n, 0.0);
  return finish(ball, std::move(out), leaves_finite);
}

Interval interval_of_sum(const reference::Ball& ball, const std::vector<double>& held, Dtype dtype, const std::string& form,
                         bool leaves_finite) {
  Interval out;
  out.form = form, out.dtype = dtype, out.shape = ball.shape;
  const auto n = static_cast<std::size_t>(ball.count());
  for (std::size_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    const double v = ball.v[at] + held[i], r = ball.r ? ball.r[at] : 0.0;
    const bool exact = r == 0 && static_cast<double>(static_cast<float>(v)) == v;
    out.value.push_back(v);
    out.radius.push_back(exact || ball.v[at] == 0 ? r : r + kFp32.unit_roundoff() * (1 + 0x1p-20) * (std::fabs(v) + r));
  }
  return finish(ball, std::move(out), leaves_finite);
}

bool admits(const Interval& interval, std::int64_t at, double got) {
  const auto i = static_cast<std::size_t>(at);
  switch (interval.how.empty() ? Judgement::interval : interval.how[i]) {
    case Judgement::interval: return got >= interval.low[i] && got <= interval.high[i];
    case Judgement::infinite: return got == interval.low[i];
    case Judgement::maybe_nan: return got == interval.low[i] || std::isnan(got);
    case Judgement::non_finite: return !std::isfinite(got);
    case Judgement::open: return true;
  }
  return false;
}

double excess_ratio(const Interval& interval, std::int64_t at, double got) {
  const auto i = static_cast<std::size_t>(at);
  const FloatFormat& storage = format(interval.dtype);
  const double v = interval.value[i], r = interval.radius[i];
  if (!std::isfinite(got) || !std::isfinite(v)) return admits(interval, at, got) ? 0.0 : kInfinity;
  const double size = std::max(std::fabs(got), storage.min_normal());
  const double half_ulp = std::ldexp(1.0, std::ilogb(size) - storage.precision);
  const double beyond = std::fabs(got - v) - half_ulp;
  return beyond <= 0 ? 0.0 : (r > 0 ? beyond / r : kInfinity);
}

Comparison compare(const std::vector<double>& got, const Interval& interval) {
  Comparison out;
  const std::size_t n = got.size();
  out.compared = static_cast<std::int64_t>(n);
  const double *g = got.data(), *low = interval.low.data(), *high = interval.high.data(), *v = interval.value.data();
  const double* r = interval.radius.data();
  constexpr std::size_t kStep = 1024;
  for (std::size_t start = 0; start < n; start += kStep) {
    const std::size_t end = std::min(n, start + kStep);
    // One vectorised look decides for most blocks: all inside, none near zero, all equal to RN(v).
    unsigned outside = 0, near_zero = 0, moved = 0;
    for (std::size_t i = start; i < end; ++i) {
      outside |= static_cast<unsigned>(!(g[i] >= low[i] && g[i] <= high[i]));
      near_zero |= static_cast<unsigned>(low[i] <= 0 && high[i] >= 0);
      moved |= static_cast<unsigned>(low[i] != high[i]);
    }
    if (!interval.how.empty()) outside = near_zero = moved = 1;
    for (std::size_t i = start; i < end && (outside | near_zero | moved); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const Judgement how = interval.how.empty() ? Judgement::interval : interval.how[i];
      if (how == Judgement::open) {
        ++out.range;
        continue;
      }
      if (!admits(interval, at, g[i])) {
        out.outside.push_back(at);
        continue;
      }
      if (how != Judgement::interval) continue;
      if (low[i] <= 0 && high[i] >= 0 && (v[i] != 0 || r[i] > 0)) {
        double twice = 2 * v[i];
        round_values(format(interval.dtype), RoundingMode{}, {&twice, 1}, {&twice, 1});
        out.blind += twice >= low[i] && twice <= high[i];
      }
      if (low[i] != high[i] && std::fabs(g[i] - v[i]) > out.max_ratio * r[i])  // an admitted element uses at most all of it
        out.max_ratio = std::max(out.max_ratio, std::min(1.0, excess_ratio(interval, at, g[i])));
    }
  }
  return out;
}

void accept_form(const std::vector<double>& got, const Interval& interval, Comparison& comparison) {
  std::erase_if(comparison.outside, [&](std::int64_t i) {
    if (!admits(interval, i, got[static_cast<std::size_t>(i)])) return false;
    const bool open = !interval.how.empty() && interval.how[static_cast<std::size_t>(i)] == Judgement::open;
    comparison.range += open;
    if (!open) comparison.max_ratio = std::max(comparison.max_ratio, std::min(1.0, excess_ratio(interval, i, got[static_cast<std::size_t>(i)])));
    return true;
  });
}

double ulp_distance(const FloatFormat& storage, double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b)) return a == b || (std::isnan(a) && std::isnan(b)) ? 0.0 : kInfinity;
  const double size = std::max({std::fabs(a), std::fabs(b), storage.min_normal()});
  return std::fabs(a - b) / std::ldexp(1.0, std::ilogb(size) - storage.precision + 1);
}

Element element_of(const Interval& interval, std::int64_t at, double got, std::uint64_t got_bits) {
  const auto i = static_cast<std::size_t>(at);
  const FloatFormat& storage = format(interval.dtype);
  Element out;
  for (std::int64_t rest = at, axis = interval.shape.rank - 1; axis >= 0; --axis) {
    out.index.insert(out.index.begin(), rest % interval.shape[static_cast<int>(axis)]);
    rest /= interval.shape[static_cast<int>(axis)];
  }
  out.got = got, out.got_bits = got_bits;
  out.want_bits = encode_scalar(storage, interval.value[i]);
  out.want = decode_scalar(storage, out.want_bits);
  out.ulp = ulp_distance(storage, got, out.want);
  out.low = interval.low[i], out.high = interval.high[i];
  out.interval_from = interval.form;
  return out;
}

}  // namespace ampcheck::checks
