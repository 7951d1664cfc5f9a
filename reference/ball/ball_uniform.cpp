// SPDX-License-Identifier: Apache-2.0
// Radii::uniform: the rules of ball_blocks.cpp with every operand at its worst, so that one radius bounds those of all
// elements of a part. Where a rule decides by element (which maximum, which side of a comparison) they give up.
#include <algorithm>
#include <cmath>

#include "reference/ball/row_group.h"
#include "src/error.h"

namespace ampcheck::reference {

namespace {

constexpr double kSlack = 1 + 0x1p-40;  ///< the rounding of the rules themselves

/// What a rule reads of an operand: magnitudes of its values (least: of those that are not zero) and their radii.
struct At {
  double least, most;
  bool zero;
  UniformRadius all;
  double relative = all.relative, absolute = all.absolute;
  double r() const { return relative * most + absolute; }  ///< the largest
  /// The largest r / |v|; infinity where a value is zero.
  double share() const { return relative + (absolute > 0 ? (zero ? kInfinity : absolute / least) : 0.0); }
  /// State as terms of a sum.
  double terms() const { return all.chained ? all.terms : 1.0; }
  double mass() const { return all.chained ? all.mass : most + r(); }
  double base() const { return all.chained ? all.base : r(); }
};
/// Two parts of a bound.
struct Bound {
  double relative, absolute;
};
constexpr Bound kNone = {kInfinity, kInfinity};  ///< no bound is known

/// Own error of `u` relative and `eta` absolute on top of what came in.
Bound with_own(double u, double eta, Bound in) { return {in.relative * (1 + u) + u, in.absolute * (1 + u) + eta}; }
Bound rounded_once(const RuleContext& c, Bound in) { return with_own(c.u, c.eta, in); }
Bound of_function(const RuleContext& c, double ulps, Bound in) {
  return with_own(2 * ulps * c.u, 2 * ulps * c.eta, in);
}

bool exact_power_of_two(const At& x) { return x.r() == 0 && !x.zero && x.least == x.most && power_of_two(x.most); }

/// After a product with a power of two, which rounds nothing where the result stays normal. The plain mode sees to
/// that, but for results that are small beside an absolute part.
Bound moved(const RuleContext& c, Bound in) { return in.absolute == 0 ? in : rounded_once(c, in); }

/// |ab| (ra + rb + ra rb) + |a| b's absolute part and the other way round.
Bound product(const RuleContext& c, const At& a, const At& b) {
  const double lone = a.most * b.absolute * (1 + a.relative) + b.most * a.absolute * (1 + b.relative);
  const Bound in = {a.relative + b.relative + a.relative * b.relative, lone + a.absolute * b.absolute};
  return exact_power_of_two(a) || exact_power_of_two(b) ? moved(c, in) : rounded_once(c, in);
}

Bound quotient(const RuleContext& c, const At& a, const At& b) {
  const double rest = 1 - b.share();  // |b| - r >= |b| rest
  if (b.zero || !(rest > 0)) return kNone;
  const Bound in = {(a.relative + b.share()) / rest, a.absolute / (b.least * rest)};
  return exact_power_of_two(b) ? moved(c, in) : with_own(2 * c.u, 2 * c.eta, in);
}

Bound log1p_bound(const RuleContext& c, double r, double most) {
  const double low = std::exp(-most) * (1 - 0x1p-40) - r;  // 1 + a = e^v
  return low > 0 ? of_function(c, c.math.log1p, {0, r / low}) : kNone;
}

Bound sigmoid_bound(const RuleContext& c, double r) {
  const double spread = r <= 1 ? 0.25 * (r + r * r) : std::min(0.25 * r, 1.0);
  return with_own(c.u * (2 * c.math.exp + 3), 4 / kMaxFinite + 2 * c.eta, {0, spread});
}

/// |(1 + s)^p - 1| <= (1 - s)^-|p| - 1 for |s| <= share. An exponent that is not exact may be no whole number: then
/// nothing is known of negative bases.
Bound power(const RuleContext& c, const At& x, const At& p) {
  const double share = x.share();
  if (!(share < 1) || p.r() != 0) return kNone;
  const double spread = share == 0 ? 0.0 : std::pow(1 - share, -p.most) - 1 + 0x1p-49;
  return of_function(c, c.math.pow, {spread, 0});
}

/// Of what changes or takes the sign alone.
Bound by_sign(Primitive primitive, const At& a) {
  switch (primitive) {
    case Primitive::abs:
    case Primitive::neg: return {a.relative, a.absolute};
    case Primitive::sign: return a.share() < 1 ? Bound{0, 0} : kNone;
    default: return kNone;
  }
}

/// Bound of a function of one operand at values of at most `most`.
Bound function(const RuleContext& c, Primitive primitive, const At& a, double most) {
  const double r = a.r(), share = a.share();
  switch (primitive) {
    case Primitive::exp: return r <= 1 ? of_function(c, c.math.exp, {r + r * r, 0}) : kNone;
    case Primitive::expm1: return r <= 0x1p-4 ? of_function(c, c.math.expm1, {0, (most + 1) * (r + r * r)}) : kNone;
    case Primitive::tanh: return r <= 0x1p-4 ? of_function(c, c.math.tanh, {0, (1 + 2 * r) * r}) : kNone;
    case Primitive::log: return a.least > r && !a.zero ? of_function(c, c.math.log, {0, r / (a.least - r)}) : kNone;
    case Primitive::log1p: return log1p_bound(c, r, most);
    case Primitive::erf: return of_function(c, c.math.erf, {0, std::min(2.0, 1.1283791670955126 * r)});
    case Primitive::erfc: return of_function(c, c.math.erfc, {0, std::min(2.0, 1.1283791670955126 * r)});
    case Primitive::sin:
    case Primitive::cos: return of_function(c, kTrigonometricUlp, {0, std::min(2.0, r)});
    case Primitive::sqrt:
      return share < 1 ? of_function(c, c.math.sqrt, {1 - std::sqrt(1 - share) + 0x1p-49, 0}) : kNone;
    case Primitive::rsqrt:
      return share < 1 && !a.zero ? of_function(c, c.math.rsqrt, {1 / std::sqrt(1 - share) - 1 + 0x1p-49, 0}) : kNone;
    case Primitive::sigmoid: return sigmoid_bound(c, r);
    case Primitive::square: return product(c, a, a);
    default: return by_sign(primitive, a);
  }
}

/// Bound of an elementwise result whose values are at most `most`.
Bound bound(const RuleContext& c, Primitive primitive, std::span<const At> in, double most, double gap) {
  switch (primitive) {
    case Primitive::add:
    case Primitive::sub:
      return with_own(c.u, c.flush, {0, in[0].r() + in[1].r()});  // a subnormal sum is exact unless flushed
    case Primitive::mul: return product(c, in[0], in[1]);
    case Primitive::div: return quotient(c, in[0], in[1]);
    case Primitive::pow: return power(c, in[0], in[1]);
    case Primitive::where:
      if (in[0].r() != 0) return kNone;
      return {std::max(in[1].relative, in[2].relative), std::max(in[1].absolute, in[2].absolute)};
    case Primitive::maximum: return {0, std::max(in[0].r(), in[1].r())};
    case Primitive::less:
    case Primitive::less_equal:
    case Primitive::equal: {
      const double reach = in[0].r() + in[1].r();  // all decided the same way over the whole ball
      return reach == 0 || gap > reach * kSlack ? Bound{0, 0} : kNone;
    }
    default: return function(c, primitive, in[0], most);
  }
}

/// The radius of an elementwise result whose values are at most `most`, and its state as terms of a sum where that is
/// wanted.
UniformRadius radius_of_result(const RuleContext& c, Primitive primitive, std::span<const At> in, double most,
                               double gap, bool wants) {
  if (primitive == Primitive::neg) return in[0].all;
  const Bound own = bound(c, primitive, in, most, gap);
  UniformRadius out;
  out.relative = own.relative * kSlack;
  out.absolute = own.absolute * kSlack;
  if (primitive != Primitive::add && primitive != Primitive::sub) return out;
  double terms = 0, mass = 0, base = 0;
  for (const At& x : in) {
    terms += x.terms();
    mass += x.mass();
    base += x.base();
  }
  if (terms > 2) out.absolute = std::max(out.absolute, summation_radius(c, terms, mass * kSlack, base, 0.0) * kSlack);
  if (wants) {
    out.chained = true;
    out.terms = terms;
    out.mass = mass * kSlack;
    out.base = base * kSlack;
  }
  return out;
}

At at_of(const Ball& x) { return {x.range.smallest, x.range.largest, x.range.zero, x.all}; }
double radius_of(const Ball& x) { return x.all.at(x.range.largest); }
double terms_of(const Ball& x) { return x.all.chained ? x.all.terms : 1.0; }

/// Calls row(offsets, repeats...) for each run of the iteration along its innermost axis.
template <class Row>
void for_rows(const Ball& out, std::span<const Ball* const> in, const Row& row) {
  const BroadcastPlan plan = broadcast_plan(out.shape, in);
  const std::int64_t inner = plan.rank ? plan.extent[plan.rank - 1] : 1, outer = inner ? out.count() / inner : 0;
  for (std::int64_t i = 0; i < outer; ++i) {
    ValuesIn from[3] = {};
    for (std::size_t k = 0; k < in.size(); ++k) {
      std::int64_t offset = 0, rest = i;
      for (int axis = plan.rank - 2; axis >= 0; --axis) {
        offset += rest % plan.extent[axis] * plan.stride[k][axis];
        rest /= plan.extent[axis];
      }
      from[k] = {in[k]->v.get() + offset, inner == 1 || plan.stride[k][plan.rank - 1] == 0};
    }
    row(static_cast<std::size_t>(inner), from, i * inner);
  }
}

bool bounded(double r) { return r < 0x1p100; }  // as measure() wants it of the plain mode
constexpr double kSharpSums = 8;  ///< sums of at least so many terms are so few that each can have its own radius

constexpr std::int64_t kFewValues = 256;  ///< looked at wholly

/// Of a product of many values the extremes of its factors bound the smallest; who wants more looks at the values.
bool is_product(Primitive p) { return p == Primitive::mul || p == Primitive::square || p == Primitive::div; }
bool wants_smallest(Primitive p, std::size_t operand) {
  return (p == Primitive::div && operand == 1) || (p == Primitive::pow && operand == 0) || p == Primitive::log ||
         p == Primitive::log1p || p == Primitive::sqrt || p == Primitive::rsqrt || p == Primitive::sign;
}

/// A bound of the smallest product that is not zero: rounding keeps the order of numbers.
void bound_smallest(Primitive primitive, const Extremes& a, const Extremes& b, Extremes& out) {
  out.smallest = primitive == Primitive::div ? a.smallest / b.largest : a.smallest * b.smallest;
  out.zero = a.zero || (primitive != Primitive::div && b.zero);
}

bool uniform_elementwise(const RuleContext& c, const Node& node, std::span<const Ball* const> in, bool wants,
                         bool sharp, Ball& out) {
  out.v = make_channel(out.count());
  double gap = kInfinity;
  const bool products = seen_as_products(node);
  for_rows(out, in, [&](std::size_t n, const ValuesIn* from, std::int64_t to) {
    if (products)
      evaluate_products(node.primitive, n, from, out.v.get() + to, out.range);
    else
      evaluate_values(node.primitive, n, from, out.v.get() + to, out.range, gap);
  });
  return bound_elementwise(c, node, in, wants, sharp, gap, out);
}

bool uniform_sum(const RuleContext& c, const Node& node, const Ball& x, bool wants, Ball& out) {
  const Axis a = split(x.shape, node.axis);
  UniformSums sums(out.count());
  for (std::int64_t o = 0; o < a.outer; ++o) {
    if (a.inner == 1) {
      SumState state;
      sum_run(x.v.get() + o * a.n, nullptr, a.n, state);
      sums.value[static_cast<std::size_t>(o)] = state.value;
      sums.mass[static_cast<std::size_t>(o)] = state.mass;
    } else {
      add_values(x.v.get() + o * a.n * a.inner, static_cast<std::size_t>(a.n), static_cast<std::size_t>(a.inner),
                 sums.value.data() + o * a.inner, sums.mass.data() + o * a.inner);
    }
  }
  see_terms(x, sums);
  return store_uniform(c, sums, static_cast<double>(a.n), wants, out);
}

/// The bound of the longest sum holds for all.
bool uniform_cumsum(const RuleContext& c, const Node& node, const Ball& x, bool wants, Ball& out) {
  const Axis a = split(x.shape, node.axis);
  UniformSums sums(out.count());
  std::vector<ExactSum> total(static_cast<std::size_t>(a.inner));
  std::vector<double> mass(total.size());
  for (std::int64_t o = 0; o < a.outer; ++o) {
    std::fill(total.begin(), total.end(), ExactSum{});
    std::fill(mass.begin(), mass.end(), 0.0);
    for (std::int64_t i = 0; i < a.n; ++i) {
      const std::int64_t first = (o * a.n + (node.reversed ? a.n - 1 - i : i)) * a.inner;
      for (std::int64_t k = 0; k < a.inner; ++k) {
        const auto j = static_cast<std::size_t>(k), at = static_cast<std::size_t>(first + k);
        total[j].add(x.v[first + k]);
        sums.value[at] = total[j].value();
        sums.mass[at] = mass[j] += std::fabs(x.v[first + k]);
      }
    }
  }
  see_terms(x, sums);
  return store_uniform(c, sums, static_cast<double>(a.n), wants, out);
}

/// Taken elements keep radius and state; nothing else is certain of them than their extremes.
bool uniform_take(MapPart map, const Ball& x, Ball& out) {
  out.v = make_channel(out.count());
  for (std::int64_t i = 0; i < out.count(); ++i) out.v[i] = map[i] < 0 ? 0.0 : x.v[map[i]];
  see_values(out.v.get(), static_cast<std::size_t>(out.count()), out.range);
  out.all = x.all;
  return true;
}

/// The most that meets in one element bounds the sums.
bool uniform_put_add(const RuleContext& c, MapPart map, const Ball& x, bool wants, Ball& out) {
  UniformSums sums(out.count());
  std::vector<std::int64_t> meet(sums.value.size(), 0);
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const std::int64_t to = map[i];
    if (to < 0) continue;
    const auto j = static_cast<std::size_t>(to);
    sums.value[j] += x.v[i];
    sums.mass[j] += std::fabs(x.v[i]);
    ++meet[j];
  }
  const double n = meet.empty() ? 0.0 : static_cast<double>(*std::max_element(meet.begin(), meet.end()));
  see_terms(x, sums);
  return store_uniform(c, sums, n, wants, out);
}

/// Exact operands decide exactly.
bool uniform_first_max(const Node& node, const Ball& x, Ball& out) {
  if (radius_of(x) != 0) return false;
  evaluate_first_max(node, x, false, out);
  out.r = nullptr;
  see_values(out.v.get(), static_cast<std::size_t>(out.count()), out.range);
  return true;
}

bool uniform_max(const Node& node, const Ball& x, Ball& out) {
  out.v = make_channel(out.count());
  const Axis a = split(x.shape, node.axis);
  for (std::int64_t o = 0; o < a.outer; ++o)
    for (std::int64_t k = 0; k < a.inner; ++k) {
      double most = -kInfinity, low, high;
      if (a.inner == 1)
        max_of_run(x.v.get() + o * a.n, nullptr, a.n, most, low, high);
      else
        for (std::int64_t i = 0; i < a.n; ++i) most = std::max(most, x.v[(o * a.n + i) * a.inner + k]);
      out.v[o * a.inner + k] = most;
    }
  see_values(out.v.get(), static_cast<std::size_t>(out.count()), out.range);
  out.all.absolute = radius_of(x);
  return true;
}

bool uniform_stored(const FloatFormat& format, double eta_on, Ball& out) {
  if (out.range.largest + radius_of(out) > format.max_finite()) return false;
  const Bound own =
      with_own(format.unit_roundoff(), eta_on * format.min_subnormal(), {out.all.relative, out.all.absolute});
  out.all = {};
  out.all.relative = own.relative * kSlack;
  out.all.absolute = own.absolute * kSlack;
  out.r = nullptr;
  return true;
}

}  // namespace

bool seen_as_products(const Node& node) { return is_product(node.primitive) && node.shape.count() > kFewValues; }

bool bound_elementwise(const RuleContext& c, const Node& node, std::span<const Ball* const> in, bool wants, bool sharp,
                       double gap, Ball& out) {
  if (seen_as_products(node)) {
    bound_smallest(node.primitive, in.front()->range, in.back()->range, out.range);
    if (!(out.range.smallest > 0x1p-100)) {  // near the end of the range it has to be known
      out.range = {kInfinity, 0, true, false};
      see_values(out.v.get(), static_cast<std::size_t>(out.count()), out.range);
    }
  }
  At at[3] = {};
  for (std::size_t k = 0; k < in.size(); ++k) {
    at[k] = at_of(*in[k]);
    if (!wants_smallest(node.primitive, k) || in[k]->count() <= kFewValues) continue;
    Extremes seen{kInfinity, 0, true, false};  // it may be a product, or look like one
    see_values(in[k]->v.get(), static_cast<std::size_t>(in[k]->count()), seen);
    at[k].least = seen.smallest == kInfinity ? 1.0 : seen.smallest;
    at[k].zero = seen.zero;
  }
  out.all = radius_of_result(c, node.primitive, {at, in.size()}, out.range.largest, gap, wants);
  if (sharp && bounded(out.all.absolute)) {  // the absolute part of product(), element by element
    out.r = make_channel(out.count());
    const double a = at[1].absolute * (1 + at[0].relative) * (1 + c.u) * kSlack,
                 b = at[0].absolute * (1 + at[1].relative) * (1 + c.u) * kSlack;
    const double rest = (at[0].absolute * at[1].absolute * (1 + c.u) + c.eta) * kSlack;
    for_rows(out, in, [&](std::size_t n, const ValuesIn* from, std::int64_t to) {
      weigh_magnitudes(n, from, a, b, rest, out.r.get() + to);
    });
  }
  return bounded(radius_of(out));
}

namespace {

/// Of one element the value that evaluate_values() has.
double value_of(Primitive primitive, std::span<const ElementBound> in, double& gap) {
  const double a = in[0].v, b = in.back().v;
  switch (primitive) {
    case Primitive::add: return a + b;
    case Primitive::sub: return a - b;
    case Primitive::mul: return a * b;
    case Primitive::div: return a / b;
    case Primitive::square: return a * a;
    default: break;
  }
  ValuesIn from[3] = {};
  for (std::size_t k = 0; k < in.size(); ++k) from[k] = {&in[k].v, true};
  Extremes seen;
  double out = 0;
  evaluate_values(primitive, 1, from, &out, seen, gap);
  return out;
}

}  // namespace

ElementBound element_result(const RuleContext& c, Primitive primitive, std::span<const ElementBound> in, bool wants) {
  ElementBound out;
  At at[3] = {};
  for (std::size_t k = 0; k < in.size(); ++k) {
    const double size = std::fabs(in[k].v);
    at[k] = {size, size, size == 0, in[k].radius};
  }
  double gap = kInfinity;
  out.v = value_of(primitive, in, gap);
  out.radius = radius_of_result(c, primitive, {at, in.size()}, std::fabs(out.v), gap, wants);
  return out;
}

void see_terms(const Ball& x, UniformSums& s) {
  s.terms = std::max(s.terms, terms_of(x));
  s.mass_each = std::max(s.mass_each, x.all.chained ? x.all.mass : x.all.absolute);
  s.base_each = std::max(s.base_each, x.all.chained ? x.all.base : x.all.absolute);
  s.relative = std::max(s.relative, x.all.chained ? 0.0 : x.all.relative);
  const bool exact = !x.r && x.all.relative == 0 && x.all.absolute == 0 && !x.all.chained;
  s.grid = std::min(s.grid, exact ? x.range.grid : 0.0);
}

bool store_uniform(const RuleContext& c, const UniformSums& s, double n, bool wants_sum, Ball& out) {
  out.v = make_channel(out.count());
  std::copy(s.value.begin(), s.value.end(), out.v.get());
  see_values(out.v.get(), s.value.size(), out.range);
  const double sizes = s.mass.empty() ? 0.0 : *std::max_element(s.mass.begin(), s.mass.end());
  const auto mass_at = [&](double size) { return (size * (1 + s.relative) + n * s.mass_each) * kSlack; };
  const auto base_at = [&](double size) { return (size * s.relative + n * s.base_each) * kSlack; };
  const double mass = mass_at(sizes), base = base_at(sizes);
  out.all.absolute = summation_radius(c, n * s.terms, mass, base, s.grid) * kSlack;
  if (n >= kSharpSums && bounded(out.all.absolute)) {
    out.r = make_channel(out.count());
    for (std::size_t k = 0; k < s.mass.size(); ++k)
      out.r[static_cast<std::ptrdiff_t>(k)] =
          summation_radius(c, n * s.terms, mass_at(s.mass[k]), base_at(s.mass[k]), s.grid) * kSlack;
  }
  if (wants_sum) {
    out.all.chained = true;
    out.all.terms = n * s.terms;
    out.all.mass = mass;
    out.all.base = base;
  }
  return bounded(out.all.absolute);
}

bool BallEvaluator::compute_uniform(std::size_t id, const Node& node, MapPart map, bool wants, bool sharp,
                                    std::span<const Ball* const> in, Ball& out) const {
  const RuleContext c = context_of(id);
  out.shape = node.shape;
  out.range = {kInfinity, 0, true, false};
  if (!std::ranges::all_of(in, [](const Ball* x) { return x->range.finite; })) return false;
  bool found = false;
  switch (node.primitive) {
    case Primitive::input: throw Error("[ball] leaf '" + node.name + "' has no values");
    case Primitive::constant:
      out.v = make_channel(1);
      out.v[0] = node.value;
      out.all.relative = representable(node.value) ? 0.0 : c.u;
      see_values(out.v.get(), 1, out.range);
      found = true;
      break;
    case Primitive::indicator:
      out.v = make_channel(out.count());
      for (std::int64_t i = 0; i < out.count(); ++i)
        out.v[i] = static_cast<double>((*node.map)[static_cast<std::size_t>(i)]);
      see_values(out.v.get(), static_cast<std::size_t>(out.count()), out.range);
      found = true;
      break;
    case Primitive::sum: found = uniform_sum(c, node, *in[0], wants, out); break;
    case Primitive::cumsum: found = uniform_cumsum(c, node, *in[0], wants, out); break;
    case Primitive::max: found = uniform_max(node, *in[0], out); break;
    case Primitive::first_max: found = uniform_first_max(node, *in[0], out); break;
    case Primitive::put_add: found = uniform_put_add(c, map, *in[0], wants, out); break;
    case Primitive::matmul: found = uniform_matmul(product_context(id, node), node, *in[0], *in[1], wants, out); break;
    case Primitive::take: found = uniform_take(map, *in[0], out); break;
    case Primitive::reshape:
    case Primitive::own_adjoint:
    case Primitive::no_gradient:
    case Primitive::stored:
    case Primitive::stop_gradient:
      out = *in[0];
      out.shape = node.shape;
      if (node.primitive == Primitive::stop_gradient) {
        out.all = {};
        out.r = nullptr;
      }
      found = true;
      if (const auto saved = arithmetic_.saved.find(node.name); node.primitive == Primitive::stored &&
                                                                saved != arithmetic_.saved.end() &&
                                                                saved->second->precision < kFp32.precision)
        found = uniform_stored(*saved->second, c.u == 0 ? 0.0 : 1.0, out);
      break;
    default: found = uniform_elementwise(c, node, in, wants, sharp, out);
  }
  return found && finish_uniform(node, in, out);
}

bool BallEvaluator::finish_uniform(const Node& node, std::span<const Ball* const> in, Ball& out) const {
  if (out.range.smallest == kInfinity) out.range.smallest = 1.0;  // nothing but zeros was seen
  if (!in.empty()) bound_chain(node, in, out);
  return far_from_the_ends(out);
}

}  // namespace ampcheck::reference
