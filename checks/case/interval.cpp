// SPDX-License-Identifier: Apache-2.0
#include "checks/case/interval.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "src/index.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr std::size_t kStep = 1024;  ///< elements that stay in the nearest cache between two passes

Numbers numbers(std::size_t n) { return {reference::make_channel(static_cast<std::int64_t>(n)), n}; }

/// The radius widened by what this fp64 arithmetic itself may lose (rule R11).
double widened(double v, double r) { return r == 0 ? 0.0 : r + (r * 0x1p-40 + std::fabs(v) * 0x1p-51); }

RoundingMode to_storage(const FloatFormat& storage) {
  return {.overflow = storage.has_infinity() ? Overflow::format_default : Overflow::saturate};
}

/// Whether these become NaN, since their format has no infinity; then its largest number is as right.
bool overflows_to_nan(const FloatFormat& storage, std::span<const double> values) {
  return !storage.has_infinity() && std::any_of(values.begin(), values.end(), [&](double v) {
    return !std::isnan(v) && std::isnan(decode_scalar(storage, encode_scalar(storage, v)));
  });
}

/// low and high from value and radius: RN to storage of the ends of the widened ball.
void set_ends(Interval& out) {
  const std::size_t n = out.value.size();
  out.low = numbers(n);
  out.high = numbers(n);
  for (std::size_t start = 0; start < n; start += kStep) {
    const std::size_t step = std::min(kStep, n - start);
    const double *value = out.value.data() + start, *radius = out.radius.data() + start;
    double *low = out.low.data() + start, *high = out.high.data() + start;
    for (std::size_t i = 0; i < step; ++i) {
      const double v = value[i], wide = widened(v, radius[i]);
      low[i] = v - wide;
      high[i] = v + wide;
    }
    round_ends(out.dtype, {low, step});
    round_ends(out.dtype, {high, step});
  }
}

/// Elements of a format without infinity that overflow, or may: a conversion makes NaN or the largest number of them,
/// both are right.
void judge_overflow(Interval& out) {
  const FloatFormat& storage = format(out.dtype);
  for (std::size_t i = 0; i < out.value.size(); ++i) {
    const double v = out.value[i], wide = std::isinf(v) ? 0 : widened(v, out.radius[i]);
    const Judgement how = out.how.empty() ? Judgement::interval : out.how[i];
    const double ends[2] = {v - wide, v + wide};
    if (unjudged(out, i) || how == Judgement::non_finite || !overflows_to_nan(storage, ends)) continue;
    if (out.how.empty()) out.how.assign(out.value.size(), Judgement::interval);
    if (std::isinf(v)) out.low[i] = out.high[i] = std::copysign(storage.max_finite(), v);
    out.how[i] = Judgement::interval_or_nan;
  }
}

/// Whether the ball holds every number of the compute type: then an intermediate on the way may be infinite, and NaN is
/// as right as any number.
bool holds_all(double v, double r) { return v - r < -kFp32.max_finite() && v + r > kFp32.max_finite(); }

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
      if (overflows_to_nan(format(out.dtype), ends)) out.how[i] = Judgement::interval_or_nan;
      round_ends(out.dtype, ends);
      out.low[i] = std::min(out.low[i], ends[0]);
      out.high[i] = std::max(out.high[i], ends[1]);
    } else if (std::isnan(v)) {
      out.how[i] = leaves_finite || (flags & reference::kUnbounded) ? Judgement::open : Judgement::non_finite;
    } else if (std::isinf(v) && (flags & reference::kUnbounded)) {
      out.how[i] = Judgement::open;
    } else if (std::isinf(v)) {
      out.low[i] = out.high[i] = v;
      out.how[i] = flags & reference::kMayBeNan ? Judgement::maybe_nan : Judgement::infinite;
    } else if ((flags & reference::kUnbounded) || std::isinf(out.radius[i]) || holds_all(v, out.radius[i])) {
      out.how[i] = Judgement::unbounded;
    } else if ((flags & reference::kMayBeNan) && (std::isinf(out.low[i]) || std::isinf(out.high[i]))) {
      out.how[i] = Judgement::interval_or_nan;
    }
  }
}

Interval finish(const reference::Ball& ball, Interval out, bool leaves_finite) {
  out.leaves_finite = leaves_finite;
  set_ends(out);
  bool special = ball.flags != nullptr || !ball.range.finite;
  for (std::size_t i = 0; i < out.radius.size() && !ball.narrow; ++i) special |= !(out.radius[i] <= kFp32.max_finite());
  if (special) judge_range(ball, leaves_finite, out);
  if (!format(out.dtype).has_infinity()) judge_overflow(out);
  return out;
}

}  // namespace

Numbers Numbers::separate() const {
  Numbers out = numbers(count);
  std::copy(begin(), end(), out.begin());
  return out;
}

void round_ends(Dtype dtype, std::span<double> ends) {
  round_values(format(dtype), to_storage(format(dtype)), ends, ends);
}

Interval interval_of(const reference::Ball& ball, Dtype dtype, const std::string& form, bool leaves_finite) {
  Interval out;
  out.form = form;
  out.dtype = dtype;
  out.shape = ball.shape;
  const auto n = static_cast<std::size_t>(ball.count());
  out.value = {ball.v, n};
  out.radius = ball.r ? Numbers{ball.r, n} : numbers(n);
  if (!ball.r) std::fill(out.radius.begin(), out.radius.end(), 0.0);
  return finish(ball, std::move(out), leaves_finite);
}

double radius_in_fp64(double radius_in_fp32, double sizes) { return radius_in_fp32 * 0x1p-29 + sizes * 0x1p-53; }

Interval interval_in_fp64(const reference::Ball& ball, const std::vector<double>& values, std::span<const double> held,
                          const std::string& form, bool leaves_finite) {
  const Interval in_fp32 = interval_of(ball, Dtype::fp64, form, leaves_finite);
  Interval out;
  out.form = form;
  out.dtype = Dtype::fp64;
  out.shape = ball.shape;
  out.leaves_finite = leaves_finite;
  const std::size_t n = values.size();
  out.value = numbers(n);
  out.radius = numbers(n);
  out.how.assign(n, Judgement::interval);
  for (std::size_t i = 0; i < n; ++i) {
    const double v = held.empty() ? values[i] : values[i] + held[i], size = std::fabs(v), r = in_fp32.radius[i];
    const double sizes = held.empty() ? size : size + std::fabs(values[i]);
    const Judgement how = in_fp32.how.empty() ? Judgement::interval : in_fp32.how[i];
    const bool same_kind = std::isnan(v) ? std::isnan(in_fp32.value[i]) : std::isinf(v) && v == in_fp32.value[i];
    const bool flagged = ball.flags != nullptr && ball.flags[static_cast<std::ptrdiff_t>(i)] != 0;
    // The rules know fp32's range alone. Beyond it they say nothing of fp64; NaN and infinity of the inputs stay.
    const bool in_range = how == Judgement::interval && !flagged && size <= kFp32.max_finite();
    out.value[i] = v;
    out.radius[i] = in_range ? radius_in_fp64(r, sizes) : 0;
    if (!in_range) out.how[i] = same_kind && !flagged ? how : Judgement::open;
  }
  set_ends(out);
  for (std::size_t i = 0; i < n; ++i)
    if (out.how[i] == Judgement::infinite || out.how[i] == Judgement::maybe_nan)
      out.low[i] = out.high[i] = out.value[i];
  return out;
}

bool unjudged(const Interval& interval, std::size_t i) {
  return !interval.how.empty() && (interval.how[i] == Judgement::open || interval.how[i] == Judgement::unbounded);
}

bool admits(const Interval& interval, std::int64_t at, double got) {
  const auto i = static_cast<std::size_t>(at);
  switch (interval.how.empty() ? Judgement::interval : interval.how[i]) {
    case Judgement::interval: return got >= interval.low[i] && got <= interval.high[i];
    case Judgement::interval_or_nan: return std::isnan(got) || (got >= interval.low[i] && got <= interval.high[i]);
    case Judgement::infinite: return got == interval.low[i];
    case Judgement::maybe_nan: return got == interval.low[i] || std::isnan(got);
    case Judgement::non_finite: return !std::isfinite(got);
    case Judgement::open:
    case Judgement::unbounded: return true;
  }
  return false;
}

namespace {

/// Half the spacing of `storage` at x on the side of v (below a power of two it is half of that above); at least that
/// at min_normal: the exponent bits are the power of two.
inline double half_ulp_at(double x, double v, double min_normal, double scale) {
  const double size = std::fabs(x);
  const std::uint64_t below = std::fabs(v) < size ? 1 : 0;  // the next double towards v has the exponent of that side
  const double side = std::bit_cast<double>(std::bit_cast<std::uint64_t>(size) - below),
               clamped = side < min_normal ? min_normal : side;
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(clamped) & 0x7ff0000000000000ull) * scale;
}
double half_ulp_scale(const FloatFormat& storage) { return std::ldexp(1.0, -storage.precision); }

}  // namespace

double excess_ratio(const Interval& interval, std::int64_t at, double got) {
  const auto i = static_cast<std::size_t>(at);
  const FloatFormat& storage = format(interval.dtype);
  const double v = interval.value[i], r = interval.radius[i];
  if (!std::isfinite(got) || !std::isfinite(v)) return admits(interval, at, got) ? 0.0 : kInfinity;
  const double beyond = std::fabs(got - v) - half_ulp_at(got, v, storage.min_normal(), half_ulp_scale(storage));
  return beyond <= 0 ? 0.0 : (r > 0 ? beyond / widened(v, r) : kInfinity);
}

namespace {

/// One element of the full mode, which has classes besides intervals.
void compare_element(const Interval& interval, std::int64_t at, double got, std::int64_t first, Comparison& out,
                     std::vector<std::size_t>& near_zero) {
  const auto i = static_cast<std::size_t>(at);
  const Judgement how = interval.how.empty() ? Judgement::interval : interval.how[i];
  if (unjudged(interval, i)) {
    ++out.range;
    out.open = how == Judgement::unbounded     ? Comparison::Open::no_bound
               : std::isnan(interval.value[i]) ? Comparison::Open::no_value
                                               : Comparison::Open::left_range;
    return;
  }
  if (!admits(interval, at, got)) {
    out.outside.push_back(first + at);
    return;
  }
  if (how != Judgement::interval) return;
  const double v = interval.value[i], r = interval.radius[i], low = interval.low[i], high = interval.high[i];
  if (low <= 0 && high >= 0 && (v != 0 || r > 0)) near_zero.push_back(i);
  if (low != high && std::fabs(got - v) > out.max_ratio * r)  // an admitted element uses at most all of it
    out.max_ratio = std::max(out.max_ratio, std::min(1.0, excess_ratio(interval, at, got)));
}

/// Blind: both 0 and 2v would be accepted.
std::int64_t count_blind(const Interval& interval, const std::vector<std::size_t>& near_zero) {
  std::vector<double> twice;
  for (const std::size_t i : near_zero) twice.push_back(2 * interval.value[i]);
  round_values(format(interval.dtype), RoundingMode{}, twice, twice);
  std::int64_t blind = 0;
  for (std::size_t k = 0; k < twice.size(); ++k)
    blind += twice[k] >= interval.low[near_zero[k]] && twice[k] <= interval.high[near_zero[k]];
  return blind;
}

}  // namespace

void compare_part(std::span<const double> got, const Interval& interval, std::int64_t first, Comparison& out) {
  const std::size_t n = got.size();
  out.compared += static_cast<std::int64_t>(n);
  const FloatFormat& storage = format(interval.dtype);
  const double least = storage.min_normal(), scale = half_ulp_scale(storage);
  std::vector<std::size_t> near_zero;
  std::uint64_t look[kStep / 8];  // one byte an element
  auto* const looks = reinterpret_cast<unsigned char*>(look);
  for (std::size_t start = 0; start < n; start += kStep) {
    // One vectorised pass finds the few elements that need a look; most equal the one number of their interval.
    const std::size_t step = std::min(kStep, n - start);
    const double *g = got.data() + start, *low = interval.low.data() + start, *high = interval.high.data() + start;
    const double *value = interval.value.data() + start, *radius = interval.radius.data() + start;
    const bool all = !interval.how.empty();
    const double share = out.max_ratio;
    std::fill(std::begin(look), std::end(look), 0);
    std::int64_t blind = 0;
    for (std::size_t i = 0; i < step; ++i) {
      const bool inside = (g[i] >= low[i]) & (g[i] <= high[i]), zero = (low[i] <= 0) & (high[i] >= 0);
      const bool uses_more = std::fabs(g[i] - value[i]) - half_ulp_at(g[i], value[i], least, scale) > share * radius[i];
      // 0 and 2v lie in the ball, so their roundings lie between those of its ends. (!(r > 0) leaves NaN to the look.)
      const bool surely_blind = zero & (radius[i] > 0) & (radius[i] >= std::fabs(value[i]));
      const bool looked_at = all | !inside | (zero & !surely_blind) | ((low[i] != high[i]) & uses_more);
      looks[i] = static_cast<unsigned char>(looked_at);
      blind += surely_blind & !looked_at ? 1 : 0;
    }
    out.blind += blind;
    for (std::size_t word = 0; 8 * word < step; ++word) {
      if (look[word] == 0) continue;
      for (std::size_t i = 8 * word; i < std::min(8 * word + 8, step); ++i)
        if (looks[i]) compare_element(interval, static_cast<std::int64_t>(start + i), g[i], first, out, near_zero);
    }
  }
  out.blind += count_blind(interval, near_zero);
}

Comparison compare(const std::vector<double>& got, const Interval& interval) {
  Comparison out;
  compare_part(got, interval, 0, out);
  return out;
}

namespace {

/// Whether a number is one of those that roundings of a form give, and not one that it leaves open.
bool by_rounding(Judgement how, double got) {
  return how == Judgement::interval || (how == Judgement::interval_or_nan && !std::isnan(got)) ||
         (how == Judgement::unbounded && std::isfinite(got));
}

}  // namespace

void accept_form(std::span<const double> got, const Interval& interval, std::int64_t first, Comparison& comparison) {
  auto& outside = comparison.outside;
  const auto begin = std::lower_bound(outside.begin(), outside.end(), first);
  const auto end = std::lower_bound(begin, outside.end(), first + static_cast<std::int64_t>(got.size()));
  outside.erase(std::remove_if(begin, end,
                               [&](std::int64_t at) {
                                 const std::int64_t i = at - first;
                                 const double value = got[static_cast<std::size_t>(i)];
                                 if (!admits(interval, i, value)) return false;
                                 const Judgement how = interval.how.empty() ? Judgement::interval
                                                                            : interval.how[static_cast<std::size_t>(i)];
                                 const bool open = unjudged(interval, static_cast<std::size_t>(i));
                                 if (interval.leaves_finite && !by_rounding(how, value)) return false;
                                 comparison.range += open;
                                 comparison.by_forms += !open;
                                 if (!open)
                                   comparison.max_ratio =
                                       std::max(comparison.max_ratio, std::min(1.0, excess_ratio(interval, i, value)));
                                 return true;
                               }),
                end);
}

double spacing_at(const FloatFormat& format, double value) {
  if (!std::isfinite(value)) return kInfinity;
  return std::ldexp(1.0, std::ilogb(std::max(std::fabs(value), format.min_normal())) - format.precision + 1);
}

double ulp_distance(const FloatFormat& storage, double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b)) return a == b || (std::isnan(a) && std::isnan(b)) ? 0.0 : kInfinity;
  return std::fabs(a - b) / spacing_at(storage, std::max(std::fabs(a), std::fabs(b)));
}

Element element_of(const Interval& interval, std::int64_t at, double got, std::uint64_t got_bits) {
  const auto i = static_cast<std::size_t>(at);
  const FloatFormat& storage = format(interval.dtype);
  Element out;
  out.index = index_of(interval.shape, at);
  out.got = got;
  out.got_bits = got_bits;
  out.want_bits = encode_scalar(storage, interval.value[i], to_storage(storage));
  out.want = decode_scalar(storage, out.want_bits);
  out.ulp = ulp_distance(storage, got, out.want);
  out.low = interval.low[i];
  out.high = interval.high[i];
  out.interval_from = interval.form;
  return out;
}

Element broken(Dtype dtype, const Shape& shape, std::int64_t i, std::uint64_t got_bits, std::uint64_t want_bits) {
  const auto value = [&](std::uint64_t bits) {
    return is_float(dtype) ? decode_scalar(format(dtype), bits) : static_cast<double>(static_cast<std::int64_t>(bits));
  };
  Element out;
  out.index = index_of(shape, i);
  out.got = value(got_bits);
  out.got_bits = got_bits;
  out.want = value(want_bits);
  out.want_bits = want_bits;
  out.ulp = is_float(dtype) ? ulp_distance(format(dtype), out.got, out.want) : INFINITY;
  out.low = out.high = out.want;
  out.interval_from = "bit for bit";
  return out;
}

}  // namespace ampcheck::checks
