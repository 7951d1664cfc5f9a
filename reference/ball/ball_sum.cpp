// SPDX-License-Identifier: Apache-2.0
// Sums and maxima along an axis (rules R2, R3, R9, R10).
#include <algorithm>
#include <vector>

#include "reference/ball/ball_rules.h"

namespace ampcheck::reference {

void allocate(Ball& ball, bool full, bool wants_sum) {
  const std::int64_t n = ball.count();
  ball.v = make_channel(n);
  ball.r = make_channel(n);
  if (wants_sum) {
    ball.terms = make_channel(n);
    ball.mass = make_channel(n);
    ball.base = make_channel(n);
    ball.grid = make_channel(n);
  }
  if (full) {
    ball.replay = make_channel(n);
    ball.up = make_channel(n);
    ball.down = make_channel(n);
    ball.flags =
        std::shared_ptr<std::uint8_t[]>(new std::uint8_t[static_cast<std::size_t>(std::max<std::int64_t>(n, 1))]());
    std::fill_n(ball.up.get(), n, 0.0);
    std::fill_n(ball.down.get(), n, 0.0);
  }
}

Axis split(const Shape& shape, int axis) {
  Axis a;
  for (int i = 0; i < axis; ++i) a.outer *= shape[i];
  a.n = shape[axis];
  for (int i = axis + 1; i < shape.rank; ++i) a.inner *= shape[i];
  return a;
}

namespace {

/// The operands of a block of terms.
SumsIn terms_at(const Ball& x, std::int64_t at) {
  const auto from = [&](const Channel& channel) { return channel ? channel.get() + at : nullptr; };
  return {x.v.get() + at, from(x.r), from(x.terms), from(x.mass), from(x.base), from(x.grid)};
}

}  // namespace

void add_terms(const Ball& x, std::int64_t at, std::int64_t count, Sums& s, std::size_t to) {
  add_terms(terms_at(x, at), count,
            {s.value.data() + to, s.terms.data() + to, s.mass.data() + to, s.base.data() + to, s.grid.data() + to});
}

namespace {

void store(const RuleContext& c, double value, double terms, double mass, double base, double grid, std::int64_t at,
           bool wants_sum, Ball& out) {
  out.v[at] = value;
  out.r[at] = settle(value, summation_radius(c, terms, mass, base, grid));
  if (wants_sum) {
    out.terms[at] = terms;
    out.mass[at] = mass;
    out.base[at] = base;
    out.grid[at] = grid;
  }
}

}  // namespace

void store_sums(const RuleContext& c, const Sums& s, std::int64_t at, bool wants_sum, Ball& out) {
  for (std::size_t j = 0; j < s.value.size(); ++j)
    store(c, s.value[j], s.terms[j], s.mass[j], s.base[j], s.grid[j], at + static_cast<std::int64_t>(j), wants_sum,
          out);
}

namespace {

/// R9 for a sum while its terms come in: flags of the result and its fp32 replay.
struct RangeOfSum {
  std::uint8_t flags = 0;
  bool positive = false, negative = false, finite = true;
  float replay = 0;

  void see(const Ball& x, std::int64_t k) {
    flags |= inherited(x.flags[k]);
    finite &= std::isfinite(x.v[k]) || out_of_range(x.flags[k]);
    positive |= x.v[k] > 0;
    negative |= x.v[k] < 0;
    replay += static_cast<float>(x.replay[k]);
  }
  void put(const Ball& x, double mass, std::int64_t at, Ball& out) const {
    std::uint8_t own = flags;
    out.replay[at] = replay;
    // Terms that are sums themselves may be of either sign within: then the sizes add up to more than the sum.
    const bool mixed = (positive && negative) || (x.mass && mass > (1 + 0x1p-20) * std::fabs(out.v[at]));
    if (finite && mixed && some_order_overflows(out.v[at], mass, flags)) {
      own |= kLeftRange;  // some order overflows
      out.replay[at] = std::numeric_limits<double>::quiet_NaN();
    }
    if (finite) own |= beyond(out.v[at], out.r[at]);
    if (std::isinf(out.v[at]) || (own & kOverflowed))
      own |= kMayBeNan;  // a compensated sum makes NaN of an infinite partial sum
    out.flags[at] = own;
  }
};

/// The same over the elements i, i + step, ...
void range_of_sum(const Ball& x, std::int64_t first, std::int64_t step, std::int64_t n, double mass, std::int64_t at,
                  Ball& out) {
  RangeOfSum range;
  for (std::int64_t i = 0; i < n; ++i) range.see(x, first + i * step);
  range.put(x, mass, at, out);
}

/// In four chains, so that no sum waits for the last one.
SumState sum_of_sums(const Ball& x, std::int64_t begin, std::int64_t end) {
  constexpr int kChains = 4;
  double value[kChains] = {}, terms[kChains] = {}, mass[kChains] = {}, base[kChains] = {};
  std::int64_t i = begin;
  for (; i + kChains <= end; i += kChains)
    for (int k = 0; k < kChains; ++k) {
      value[k] += x.v[i + k];
      terms[k] += x.terms[i + k];
      mass[k] += x.mass[i + k];
      base[k] += x.base[i + k];
    }
  for (; i < end; ++i) {
    value[0] += x.v[i];
    terms[0] += x.terms[i];
    mass[0] += x.mass[i];
    base[0] += x.base[i];
  }
  const auto all = [](const double* v) { return (v[0] + v[1]) + (v[2] + v[3]); };
  return {all(value), all(terms), all(mass), all(base)};
}

}  // namespace

void evaluate_sum(const RuleContext& c, const Node& node, const Ball& x, bool full, bool wants_sum, Ball& out) {
  allocate(out, full, wants_sum);
  const Axis a = split(x.shape, node.axis);
  for (std::int64_t o = 0; o < a.outer; ++o) {
    if (a.inner == 1 && !x.terms) {
      SumState sum;
      sum_run(x.v.get() + o * a.n, x.r ? x.r.get() + o * a.n : nullptr, a.n, sum);
      const auto [value, terms, mass, base] = sum;
      double grid = 0;
      if (base == 0 && c.grid) {
        grid = kInfinity;
        constexpr std::int64_t kBlock = 64;  // most grids are too fine from the start
        for (std::int64_t i = 0; i < a.n && mass <= 0x1p24 * grid; i += kBlock)
          grid = std::min(grid, lowest_bit(x.v.get() + o * a.n + i, std::min(kBlock, a.n - i)));
        if (!(mass <= 0x1p24 * grid)) grid = 0;
      }
      store(c, value, terms, mass, base, grid, o, wants_sum, out);
      if (full) range_of_sum(x, o * a.n, 1, a.n, mass, o, out);
      continue;
    }
    if (a.inner == 1) {  // a row of terms that are sums themselves, in registers
      const std::int64_t begin = o * a.n, end = begin + a.n;
      const auto [value, terms, mass, base] = sum_of_sums(x, begin, end);
      double grid = kInfinity;
      for (std::int64_t i = begin; i < end; ++i) grid = x.grid[i] < grid ? x.grid[i] : grid;
      store(c, value, terms, mass, base, grid, o, wants_sum, out);
      if (full) range_of_sum(x, begin, 1, a.n, mass, o, out);
      continue;
    }
    Sums s(a.inner);
    for (std::int64_t i = 0; i < a.n; ++i) add_terms(x, (o * a.n + i) * a.inner, a.inner, s, 0);
    store_sums(c, s, o * a.inner, wants_sum, out);
    for (std::int64_t k = 0; full && k < a.inner; ++k)
      range_of_sum(x, o * a.n * a.inner + k, a.inner, a.n, s.mass[static_cast<std::size_t>(k)], o * a.inner + k, out);
  }
}

void evaluate_put_add(const RuleContext& c, MapPart map, const Ball& x, bool full, bool wants_sum, Ball& out) {
  allocate(out, full, wants_sum);
  const std::int64_t n = out.count();
  Sums s(n);
  std::vector<std::uint8_t> flags(full ? static_cast<std::size_t>(n) : 0), sign(flags), finite(flags.size(), 1);
  std::vector<float> replay(flags.size());
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const std::int64_t to = map[i];
    if (to < 0) continue;
    const auto j = static_cast<std::size_t>(to);
    add_terms(x, i, 1, s, j);
    if (!full) continue;
    flags[j] = static_cast<std::uint8_t>(flags[j] | inherited(x.flags[i]));
    if (!std::isfinite(x.v[i]) && !out_of_range(x.flags[i])) finite[j] = 0;
    sign[j] = static_cast<std::uint8_t>(sign[j] | (x.v[i] > 0 ? 1 : 0) | (x.v[i] < 0 ? 2 : 0));
    replay[j] += static_cast<float>(x.replay[i]);
  }
  store_sums(c, s, 0, wants_sum, out);
  for (std::int64_t at = 0; full && at < n; ++at) {
    const auto j = static_cast<std::size_t>(at);
    out.replay[at] = replay[j];
    const bool mixed = sign[j] == 3 || (x.mass && s.mass[j] > (1 + 0x1p-20) * std::fabs(out.v[at]));  // as above
    if (finite[j] && mixed && some_order_overflows(out.v[at], s.mass[j], flags[j])) {
      flags[j] |= kLeftRange;  // some order overflows, whatever the replay's does
      out.replay[at] = std::numeric_limits<double>::quiet_NaN();
    }
    if (finite[j]) flags[j] = static_cast<std::uint8_t>(flags[j] | beyond(out.v[at], out.r[at]));
    if (std::isinf(out.v[at]) || (flags[j] & kOverflowed)) flags[j] |= kMayBeNan;
    out.flags[at] = flags[j];
  }
}

void evaluate_cumsum(const RuleContext& c, const Node& node, const Ball& x, bool full, bool wants_sum, Ball& out) {
  allocate(out, full, wants_sum);
  const Axis a = split(x.shape, node.axis);
  for (std::int64_t line = 0; line < a.outer * a.inner; ++line) {
    const std::int64_t first = line / a.inner * a.n * a.inner + line % a.inner;
    ExactSum value;
    Sums s(1);
    RangeOfSum range;
    for (std::int64_t i = 0; i < a.n; ++i) {
      const std::int64_t at = first + (node.reversed ? a.n - 1 - i : i) * a.inner;
      value.add(x.v[at]);
      add_terms(x, at, 1, s, 0);
      store(c, value.value(), s.terms[0], s.mass[0], s.base[0], s.grid[0], at, wants_sum, out);
      if (!full) continue;
      range.see(x, at);
      range.put(x, s.mass[0], at, out);
    }
  }
}

bool max_of_run(const double* v, const double* r, std::int64_t n, double& most, double& low, double& high) {
  constexpr int kLanes = 16;
  double value[kLanes], below[kLanes], above[kLanes];
  std::fill_n(value, kLanes, -kInfinity);
  std::fill_n(below, kLanes, -kInfinity);
  std::fill_n(above, kLanes, -kInfinity);
  double odd[kLanes] = {};  // 0, or not a number
  const auto see = [&](int l, double x, double y) {
    const double down = x - y, up = x + y;
    value[l] = x > value[l] ? x : value[l];
    below[l] = down > below[l] ? down : below[l];
    above[l] = up > above[l] ? up : above[l];
    odd[l] = down == down && up == up ? odd[l] : down - up;
  };
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) see(l, v[i + l], r != nullptr ? r[i + l] : 0.0);
  for (; i < n; ++i) see(0, v[i], r != nullptr ? r[i] : 0.0);
  most = *std::max_element(value, value + kLanes);
  low = *std::max_element(below, below + kLanes);
  high = *std::max_element(above, above + kLanes);
  return std::all_of(odd, odd + kLanes, [](double x) { return x == x; });
}

void evaluate_max(const Node& node, const Ball& x, bool full, Ball& out) {
  allocate(out, full, false);
  const Axis a = split(x.shape, node.axis);
  if (!full && a.inner == 1) {
    bool sure = true;
    for (std::int64_t o = 0; sure && o < a.outer; ++o) {
      double low, high;
      sure = max_of_run(x.v.get() + o * a.n, x.r ? x.r.get() + o * a.n : nullptr, a.n, out.v[o], low, high);
      out.r[o] = settle(out.v[o], std::fmax(high - out.v[o], out.v[o] - low));
    }
    if (sure) return;
  }
  for (std::int64_t o = 0; o < a.outer; ++o)
    for (std::int64_t k = 0; k < a.inner; ++k) {
      double v = -kInfinity, low = -kInfinity, high = -kInfinity;
      float replay = -std::numeric_limits<float>::infinity();
      std::uint8_t flags = 0;
      for (std::int64_t i = 0; i < a.n; ++i) {
        const std::int64_t at = (o * a.n + i) * a.inner + k;
        const double value = x.v[at], r = x.r ? x.r[at] : 0.0;
        v = value > v || value != value ? value : v;
        low = std::fmax(low, value - r);
        high = std::fmax(high, value + r);
        if (!full) continue;
        flags |= static_cast<std::uint8_t>(inherited(x.flags[at]) & (kLeftRange | kUnbounded));
        const auto f = static_cast<float>(x.replay[at]);
        replay = f > replay || f != f ? f : replay;
      }
      const std::int64_t to = o * a.inner + k;
      out.v[to] = v;
      out.r[to] = settle(v, std::fmax(high - v, v - low));
      if (full) {
        out.replay[to] = replay;
        out.flags[to] = flags;
      }
    }
}

void evaluate_first_max(const Node& node, const Ball& x, bool full, Ball& out) {
  allocate(out, full, false);
  const Axis a = split(x.shape, node.axis);
  for (std::int64_t o = 0; o < a.outer; ++o)
    for (std::int64_t k = 0; k < a.inner; ++k) {
      const auto at = [&](std::int64_t i) { return (o * a.n + i) * a.inner + k; };
      const auto radius = [&](std::int64_t i) { return x.r ? x.r[at(i)] : 0.0; };
      std::int64_t best = 0, candidates = 0;
      double low = -kInfinity;
      for (std::int64_t i = 0; i < a.n; ++i) {
        const double value = x.v[at(i)], top = x.v[at(best)];
        if (top == top && (value > top || value != value)) best = i;
        low = std::fmax(low, value - radius(i));
      }
      // Exact inputs decide exactly, ties to the first; otherwise everyone who may be the maximum may be chosen.
      const auto may_be = [&](std::int64_t i) { return radius(i) + radius(best) > 0 && x.v[at(i)] + radius(i) >= low; };
      for (std::int64_t i = 0; i < a.n; ++i) candidates += may_be(i);
      for (std::int64_t i = 0; i < a.n; ++i) {
        const bool open = candidates > 1 && may_be(i);
        out.v[at(i)] = open ? 0.5 : (i == best ? 1.0 : 0.0);
        out.r[at(i)] = open ? 0.5 : 0.0;
        if (full) {
          out.replay[at(i)] = out.v[at(i)];
          out.flags[at(i)] = x.flags[at(i)] & (kLeftRange | kUnbounded);
        }
      }
    }
}

void evaluate_take(MapPart map, const Ball& x, bool full, Ball& out) {
  allocate(out, full, x.terms != nullptr);
  if (!x.r) out.r = nullptr;
  for (std::int64_t i = 0; i < out.count(); ++i) {
    const std::int64_t from = map[i];
    const bool none = from < 0;
    out.v[i] = none ? 0.0 : x.v[from];
    if (out.r) out.r[i] = none ? 0.0 : x.r[from];
    if (x.terms) {
      out.terms[i] = none ? 0.0 : x.terms[from];
      out.mass[i] = none ? 0.0 : x.mass[from];
      out.base[i] = none ? 0.0 : x.base[from];
      out.grid[i] = none ? kInfinity : x.grid[from];
    }
    if (full) {
      out.replay[i] = none ? 0.0 : x.replay[from];
      out.up[i] = none ? 0.0 : x.up[from];
      out.down[i] = none ? 0.0 : x.down[from];
      out.flags[i] = none ? std::uint8_t{0} : x.flags[from];
    }
  }
}

}  // namespace ampcheck::reference
