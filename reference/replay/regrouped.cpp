// SPDX-License-Identifier: Apache-2.0
// Beside factors that stand before or behind sums, three more laws: exp(z) / c as exp(z - log c), which is how a
// softmax follows from its saved log-sum-exp; a mean as one that runs along, m + (x - m) / k; and what `where` masks by
// a zero may be left out of a product, whatever the other factor is.
#include "reference/replay/regrouped.h"

#include <algorithm>
#include <cmath>

#include "reference/ball/ball_rules.h"
#include "reference/replay/plain_evaluator.h"

namespace ampcheck::reference {

namespace {

constexpr double kUnit = kFp32.unit_roundoff() * (1 + 0x1p-20);

/// The most that a grouping may lose, and its largest intermediate, in multiples of the formula's own. To take a factor
/// into a sum at most doubles the roundings on a term's way, and so does to take another one out again. (Higham,
/// Accuracy and Stability of Numerical Algorithms, 2nd ed., section 1.5: an algorithm is stable if it errs by a small
/// multiple of what one rounding of each input does.)
constexpr double kMostOfOwn = 4;

/// What the numbers of one evaluation share; the plain evaluator's functions know no state.
struct Rules {
  Arithmetic arithmetic;
  double eta = kMinSubnormal / 2;
  double u_sum = kUnit;  ///< of one addition; on tensor cores what one costs at most
};

double u_sum_of(const Arithmetic& arithmetic) {
  constexpr double kInflation = 1 + 0x1p-20;
  if (arithmetic.accumulate_roundoff > 0) return arithmetic.accumulate_roundoff * kInflation;
  const TensorCoreBlock block = block_of(arithmetic.products);
  return block.exists() ? kUnit * block.roundings(2, 2) : kUnit;
}

thread_local const Rules* rules = nullptr;

double by_pass(const Rules& r) { return r.arithmetic.one_pass ? 4 : 1; }
/// Not a number: nothing is known.
double known(double r) { return r == r ? r : kInfinity; }
/// Of an intermediate. Infinite as it is, by an infinite input, is no overflow.
double size_of(double v) { return std::isfinite(v) ? std::fabs(v) : 0.0; }

/// A sum of terms that are products, and what any grouping of it may lose.
struct Number {
  double v = 0;
  double terms = 0;         ///< 0: exactly zero
  double steps = 0;         ///< roundings of products that a term passes
  double mass = 0;          ///< sum of the sizes of the terms
  double base = 0;          ///< radius without the roundings of this sum and its products
  double grid = kInfinity;  ///< lowest set bit of all terms; 0: none
  double up = 1, down = 1;  ///< largest intermediate of any grouping; product of the factors below 1
  double own = 0;           ///< radius of the formula as written, at inputs that are known to one rounding
  double chain = 1;         ///< largest product of the formula as written, of its factors in any order
  double peak = 1;          ///< largest intermediate of the formula as written
  double exponents = 0;     ///< of terms that are exponentials: their sizes, each times that of its exponent's terms
  double shift = 0;         ///< size of the logarithm of what the formula divides by
  double count = 0;         ///< of an exact 1/n: n
  double summed = 1;        ///< of a sum: its terms, zeros too
  double running = 0;       ///< of a mean: radius if it runs along
  double zeros = 0;         ///< of a mean that runs along: what its terms that are zero add to `own`
  bool literal = false;     ///< a constant
  bool left_out = false;    ///< a literal zero that `where` chose

  Number() = default;
  Number(double exact)
      : v(exact),
        terms(exact != 0),
        mass(size_of(exact)),
        grid(lowest_bit(exact)),
        up(std::max(1.0, size_of(exact))),
        down(exact == 0 ? 1.0 : std::min(1.0, std::fabs(exact))),
        own(kUnit * size_of(exact)),
        chain(up),
        peak(up) {}

  double radius() const {
    if (terms == 0) return base;
    if (base == 0 && grid > 0 && mass <= 0x1p24 * grid) return 0;
    const double roundings = (terms - 1) * rules->u_sum * by_pass(*rules) + steps * kUnit;
    return roundings < 1 ? base + roundings * mass / (1 - roundings) + (terms + steps) * rules->eta : kInfinity;
  }
  /// The same number as one term.
  Number alone() const {
    Number out = *this;
    out.base = radius();
    out.mass = std::fabs(v) + out.base;
    out.terms = out.mass > 0;
    out.steps = 0;
    out.grid = out.base == 0 ? lowest_bit(v) : 0;
    return out;
  }
  bool power_of_two() const { return base == 0 && terms <= 1 && reference::power_of_two(v); }
};

Number operator-(Number x) {
  x.v = -x.v;
  return x;
}
Number operator+(const Number& a, const Number& b) {
  Number out;
  out.v = a.v + b.v;
  out.terms = a.terms + b.terms;
  out.steps = std::max(a.steps, b.steps);
  out.mass = a.mass + b.mass;
  out.base = a.base + b.base;
  out.grid = std::min(a.grid, b.grid);
  out.up = a.up + b.up;
  out.down = out.v == 0 ? 1.0 : std::min(1.0, std::fabs(out.v));
  const double size = size_of(a.v) + size_of(b.v);
  out.own = a.own + b.own;
  if (a.terms > 0 && b.terms > 0) out.own += (out.terms - 1) * rules->u_sum * by_pass(*rules) * size;
  out.chain = std::max(1.0, size_of(out.v));
  out.peak = std::max({a.peak, b.peak, size});
  out.summed = a.summed + b.summed;
  out.exponents = a.exponents + b.exponents;
  out.shift = std::max(a.shift, b.shift);
  return out;
}
Number operator-(const Number& a, const Number& b) { return a + -b; }

/// A sum over its count n as the mean that runs along, m + (x - m) / k (West 1979). Step k rounds a difference, its
/// quotient and the sum; its errors count k/n in the end, and m is at most the mean size of the terms so far. Added up:
/// (n + 2 + 2 (1 + 1/2 + ... + 1/n)) u of the mean size of all terms. A term that is zero is a step, too. It
/// is the mean's own: what follows from it, as a variance, sees its error in second order, and gets no more room by it.
void take_running_mean(const Number& sum, double n, Number& mean) {
  if (n < 2 || n != sum.summed) return;
  const double roundings = (n + 4 + 2 * std::log(n)) * rules->u_sum;
  mean.running = roundings < 1 ? mean.base + roundings / (1 - roundings) * mean.mass : kInfinity;
  mean.zeros = std::max(0.0, n - sum.terms) * rules->u_sum * mean.mass;
}

/// exp(z) / c as exp(z - log c): the logarithm joins the exponent's terms, of which each may be rounded once more, and
/// so may their sum.
double moved_into_exponents(const Number& of, const Number& by) {
  if (!(of.exponents > 0) || !(by.shift > 0)) return 0;
  return kUnit * (of.exponents * by.mass + of.mass * by.mass * by.shift * (2 + 2 * rules->arithmetic.math.log));
}

Number operator*(const Number& a, const Number& b) {
  if (a.left_out || b.left_out) {  // nothing is multiplied, whatever the other factor is
    Number zero;
    zero.left_out = true;
    return zero;
  }
  if (a.terms > 1 && b.terms > 1) return a.alone() * b.alone();
  // Terms of a sum have one common factor: its error moves the sum, not each term by itself.
  const double moved_a = std::fabs(a.v) + a.base, moved_b = std::fabs(b.v) + b.base;
  Number out;
  out.v = a.v * b.v;
  out.terms = a.terms * b.terms;
  out.mass = a.mass * b.mass;
  out.base = a.base * moved_b + moved_a * b.base;
  out.steps = a.steps + b.steps + (a.power_of_two() || b.power_of_two() ? 0 : 1);
  out.grid = a.grid * b.grid;
  out.up = a.up * b.up;
  out.down = a.down * b.down;
  out.own = a.own * std::fabs(b.v) + (std::fabs(a.v) + a.own) * b.own + kUnit * std::fabs(out.v) + rules->eta;
  if (out.terms == 0) {
    out.grid = kInfinity;
  } else if (out.down < kMinNormal) {
    out.base += 2 * rules->eta * out.up;
    out.own += 2 * rules->eta * out.up;
  }
  out.chain = a.chain * b.chain;
  out.peak = std::max({a.peak, b.peak, out.chain});
  out.exponents = a.exponents * b.mass + a.mass * b.exponents;
  out.shift = a.shift + b.shift;
  if (const double moved = moved_into_exponents(a, b) + moved_into_exponents(b, a); moved > 0) {
    out.base += moved;
    out.grid = out.shift = 0;
  }
  take_running_mean(b, a.count, out);
  take_running_mean(a, b.count, out);
  return out;
}
bool operator<(const Number& a, const Number& b) { return a.v < b.v; }
bool operator>(const Number& a, const Number& b) { return a.v > b.v; }
bool operator<=(const Number& a, const Number& b) { return a.v <= b.v; }
bool operator==(const Number& a, const Number& b) { return a.v == b.v; }
bool operator!=(const Number& a, const Number& b) { return a.v != b.v; }

/// The result of a function that ends the sum, from its value and radius, and the formula's own.
Number fresh(const Number& of, double v, double r, double own) {
  Number out(v);
  out.own = known(own);
  out.peak = std::max(of.peak, out.peak);
  if (std::isinf(v) && std::isfinite(of.v)) out.up = out.chain = out.peak = kInfinity;
  out.base = known(r);
  out.grid = out.base == 0 ? out.grid : 0;
  out.mass = std::fabs(v) + out.base;
  out.terms = out.mass > 0;
  if (of.up > kMaxFinite) out.up = kInfinity;
  return out;
}
template <class F>
Number function(const Number& x, F f, double ulps, bool exact) {
  const double r = x.radius(), v = f(x.v);
  const auto of = [&](double radius) {
    const double off = std::max(std::fabs(f(x.v + radius) - v), std::fabs(v - f(x.v - radius)));
    return off + 2 * ulps * (kUnit * (std::fabs(v) + off) + rules->eta);
  };
  return fresh(x, v, r == 0 && exact ? 0 : of(r), of(x.own));
}

/// n of 1/n, the factor of a mean; 0 of any other constant.
double count_of(const std::string& name) {
  if (!name.starts_with("1/") || name.size() > 18) return 0;
  double out = 0;
  for (const char c : name.substr(2)) {
    if (c < '0' || c > '9') return 0;
    out = 10 * out + (c - '0');
  }
  return out;
}

struct RegroupedPolicy {
  using Real = Number;
  static Number named_constant(const std::string& name, double v) {
    Number out = constant(v);
    out.count = count_of(name);
    return out;
  }
  /// A kernel leaves out what a formula masks by zeros.
  static Number chosen(const Number& condition, const Number& yes, const Number& no) {
    Number out = condition != 0 ? yes : no;
    out.left_out |= out.literal && out.v == 0;
    return out;
  }
  static Number constant(double v) {
    Number out(v);
    out.literal = true;
    if (!representable(v)) {
      out.base = kUnit * std::fabs(v);
      out.mass += out.base;
      out.grid = 0;
    }
    return out;
  }
  /// By a reciprocal: its factors count reciprocally.
  static Number divide(const Number& a, const Number& b) {
    const double r = b.radius(), size = std::fabs(b.v);
    const auto off = [&](double radius) { return size > radius ? 1 / (size - radius) - 1 / size : kInfinity; };
    Number by = fresh(b, 1 / b.v, off(r), off(b.own));
    by.chain = std::max(1.0, size_of(1 / b.v));
    by.steps = b.power_of_two() ? 0 : 1;
    by.up = b.up > kMaxFinite ? kInfinity : std::max(by.up, 1 / b.down);
    by.down = std::min(by.down, 1 / b.up);
    if (by.steps > 0) by.grid = 0;
    if (std::isfinite(by.v)) by.shift = std::fabs(std::log(size));
    if (b.base == 0) by.count = b.v;
    if (!a.left_out || std::isfinite(by.v)) return a * by;
    Number zero = a;  // 0 / 0 is nobody's mask
    zero.left_out = false;
    return zero * by;
  }
  static Number exp(const Number& x) {
    Number out = function(
        x, [](double t) { return std::exp(t); }, rules->arithmetic.math.exp, x.v == 0);
    out.exponents = known(out.mass * (x.mass + std::fabs(x.v)));
    return out;
  }
  static Number expm1(const Number& x) {
    return function(
        x, [](double t) { return std::expm1(t); }, rules->arithmetic.math.expm1, x.v == 0);
  }
  static Number log(const Number& x) {
    return function(
        x, [](double t) { return std::log(t); }, rules->arithmetic.math.log, x.v == 1);
  }
  static Number log1p(const Number& x) {
    return function(
        x, [](double t) { return std::log1p(t); }, rules->arithmetic.math.log1p, x.v == 0);
  }
  static Number tanh(const Number& x) {
    return function(
        x, [](double t) { return std::tanh(t); }, rules->arithmetic.math.tanh, x.v == 0);
  }
  static Number erf(const Number& x) {
    return function(
        x, [](double t) { return std::erf(t); }, rules->arithmetic.math.erf, x.v == 0);
  }
  static Number erfc(const Number& x) {
    return function(
        x, [](double t) { return std::erfc(t); }, rules->arithmetic.math.erfc, x.v == 0);
  }
  static Number sin(const Number& x) { return wave(x, std::sin(x.v), std::cos(x.v)); }
  static Number cos(const Number& x) { return wave(x, std::cos(x.v), std::sin(x.v)); }
  /// As the ball's rule has it (ball_blocks.cpp).
  static Number wave(const Number& x, double v, double slope) {
    const auto of = [&](double radius) {
      const double off = std::min(2.0, radius * std::min(1.0, std::fabs(slope) + radius));
      return off + 2 * kTrigonometricUlp * (kUnit * (std::fabs(v) + off) + rules->eta);
    };
    const double r = x.radius();
    return fresh(x, v, r == 0 && x.v == 0 ? 0 : of(r), of(x.own));
  }
  static Number sqrt(const Number& x) {
    const auto root = [](double t) { return t < 0 ? 0.0 : std::sqrt(t); };
    return function(x, root, rules->arithmetic.math.sqrt, representable(root(x.v)) && root(x.v) * root(x.v) == x.v);
  }
  /// As the ball's rule has it (ball_blocks.cpp), of an exact exponent alone.
  static Number pow(const Number& x, const Number& p) {
    const auto power = [&](double t) { return std::pow(t, p.v); };
    Number out = function(x, power, rules->arithmetic.math.pow, x.v == 1 || x.v == 0 || p.v == 0);
    const double r = x.radius();
    if (p.radius() != 0 || (r > 0 && x.v - r <= 0)) out.base = out.mass = kInfinity;
    return out;
  }
  static Number round(const Number& x) { return x; }
  static Number sum(const std::vector<Number>& terms) {
    Number out;
    double size = 0, own = 0, peak = 1;
    for (const Number& t : terms) {
      out = out + t;
      size += size_of(t.v);
      own += t.own;
      peak = std::max(peak, t.peak);
    }
    out.summed = static_cast<double>(terms.size());
    out.own = own + std::max(0.0, out.terms - 1) * rules->u_sum * by_pass(*rules) * size;
    out.peak = std::max(peak, size);
    return out;
  }
  /// Rounded to the saved type, where that is declared shorter.
  static std::vector<Number> stored(const std::string& name, const std::vector<Number>& values) {
    const auto saved = rules->arithmetic.saved.find(name);
    if (saved == rules->arithmetic.saved.end() || saved->second->precision >= kFp32.precision) return values;
    std::vector<Number> out;
    for (const Number& x : values) {
      const Number one = x.alone();
      out.push_back(
          fresh(x, x.v, one.base + saved->second->unit_roundoff() * one.mass + saved->second->min_subnormal(),
                x.own + saved->second->unit_roundoff() * (std::fabs(x.v) + x.own) + saved->second->min_subnormal()));
    }
    return out;
  }
};

struct Using {
  explicit Using(const Rules& r) { rules = &r; }
  ~Using() { rules = nullptr; }
  Using(const Using&) = delete;
  Using& operator=(const Using&) = delete;
};

}  // namespace

Regrouped regrouped(const Graph& graph, const std::vector<std::pair<Expr, std::vector<double>>>& leaves, Expr target,
                    const Arithmetic& arithmetic, std::span<const double> held) {
  const Rules shared{arithmetic, arithmetic.flushes_subnormals ? kMinNormal : kMinSubnormal / 2, u_sum_of(arithmetic)};
  const Using in_force(shared);
  PlainEvaluator<RegroupedPolicy> evaluator(graph);
  for (const auto& [node, values] : leaves) evaluator.set(node, {values.begin(), values.end()});
  const std::vector<Number>& all = evaluator.value(target);
  Regrouped out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Number x = held.empty() ? all[i] : all[i] + Number(held[i]);
    out.value.push_back(x.v);
    const double radius = std::max(known(x.radius()), known(x.running));
    out.radius.push_back(std::min(radius, kMostOfOwn * known(x.own + x.zeros)));
    out.overflows.push_back(!(x.up <= kMaxFinite) && !(kMostOfOwn * x.peak <= kMaxFinite));
  }
  return out;
}

namespace {

/// The element of an operand of shape `from` that element i of a result of shape `to` takes, by broadcasting.
std::size_t operand_of(const Shape& from, const Shape& to, std::size_t i) {
  const Shape strides = row_major_strides(from);
  auto rest = static_cast<std::int64_t>(i);
  std::int64_t out = 0;
  for (int axis = to.rank - 1; axis >= 0; rest /= to[axis--]) {
    const int own = axis - (to.rank - from.rank);
    if (own >= 0 && from[own] != 1) out += rest % to[axis] * strides[own];
  }
  return static_cast<std::size_t>(out);
}

/// Marks the elements of a node that follow from marked ones of its operands.
std::vector<char> marked(const Graph& graph, const Node& node, const std::vector<std::vector<char>>& marks) {
  std::vector<char> out(static_cast<std::size_t>(node.shape.count()), 0);
  const auto of = [&](std::size_t k) -> const std::vector<char>& {
    return marks[static_cast<std::size_t>(node.args[k])];
  };
  const auto shape = [&](std::size_t k) -> const Shape& { return graph.node(node.args[k]).shape; };
  switch (node.primitive) {
    case Primitive::take:
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = (*node.map)[i] >= 0 ? of(0)[static_cast<std::size_t>((*node.map)[i])] : char{0};
      return out;
    case Primitive::put_add:
      for (std::size_t i = 0; i < of(0).size(); ++i)
        if ((*node.map)[i] >= 0) out[static_cast<std::size_t>((*node.map)[i])] |= of(0)[i];
      return out;
    case Primitive::reshape: return of(0);
    case Primitive::sum:
    case Primitive::max:
    case Primitive::first_max: {
      Shape kept = shape(0);
      kept[node.axis] = 1;
      std::vector<char> rows(static_cast<std::size_t>(kept.count()), 0);
      for (std::size_t i = 0; i < of(0).size(); ++i) rows[operand_of(kept, shape(0), i)] |= of(0)[i];
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = rows[operand_of(kept, node.shape, i)];
      return out;
    }
    case Primitive::cumsum: {
      const Axis a = split(node.shape, node.axis);
      out = of(0);
      for (std::int64_t i = 1; i < a.n; ++i)
        for (std::int64_t line = 0; line < a.outer * a.inner; ++line) {
          const std::int64_t begin = line / a.inner * a.n * a.inner + line % a.inner;
          const auto place = [&](std::int64_t k) {
            return static_cast<std::size_t>(begin + (node.reversed ? a.n - 1 - k : k) * a.inner);
          };
          out[place(i)] |= out[place(i - 1)];
        }
      return out;
    }
    case Primitive::matmul: {
      const std::int64_t n = node.shape.last(1), m = node.shape.last(0), k = shape(0).last(node.transpose_a ? 1 : 0);
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::int64_t at = static_cast<std::int64_t>(i), batch = at / (n * m), row = at / m % n, column = at % m;
        for (std::int64_t p = 0; p < k; ++p) {
          out[i] |= of(0)[static_cast<std::size_t>(batch * n * k + (node.transpose_a ? p * n + row : row * k + p))];
          out[i] |=
              of(1)[static_cast<std::size_t>(batch * k * m + (node.transpose_b ? column * k + p : p * m + column))];
        }
      }
      return out;
    }
    default:
      for (std::size_t k = 0; k < node.args.size(); ++k)
        for (std::size_t i = 0; i < out.size(); ++i) out[i] |= of(k)[operand_of(shape(k), node.shape, i)];
      return out;
  }
}

bool chooses(Primitive p) {
  return p == Primitive::less || p == Primitive::less_equal || p == Primitive::equal || p == Primitive::where ||
         p == Primitive::maximum || p == Primitive::max || p == Primitive::first_max || p == Primitive::abs ||
         p == Primitive::sign;
}

}  // namespace

std::vector<char> behind_choices(const Graph& graph, const std::vector<std::pair<Expr, std::vector<double>>>& leaves,
                                 Expr target) {
  const auto last = static_cast<std::size_t>(target.id);
  std::vector<char> needed(last + 1, 0), given(last + 1, 0);
  std::vector<std::vector<char>> marks(last + 1);
  for (const auto& [node, values] : leaves) {
    if (node.id > target.id) continue;
    given[static_cast<std::size_t>(node.id)] = 1;
    for (const double v : values)
      marks[static_cast<std::size_t>(node.id)].push_back(static_cast<char>(std::isnan(v) ? 2 : std::isinf(v) ? 1 : 0));
  }
  needed[last] = 1;
  bool some = false;
  for (std::size_t id = last + 1; id-- > 0;) {
    if (!needed[id] || given[id]) continue;
    some |= chooses(graph.node(static_cast<int>(id)).primitive);
    for (const int arg : graph.node(static_cast<int>(id)).args) needed[static_cast<std::size_t>(arg)] = 1;
  }
  if (!some) return {};
  for (std::size_t id = 0; id <= last; ++id)
    if (needed[id] && !given[id]) marks[id] = marked(graph, graph.node(static_cast<int>(id)), marks);
  return marks[last];
}

bool adds_up(const Graph& graph, Expr target) {
  std::vector<char> needed(static_cast<std::size_t>(target.id) + 1, 0);
  needed[static_cast<std::size_t>(target.id)] = 1;
  for (int id = target.id; id >= 0; --id) {
    if (!needed[static_cast<std::size_t>(id)]) continue;
    const Node& node = graph.node(id);
    switch (node.primitive) {
      case Primitive::add:
      case Primitive::sub:
      case Primitive::sum:
      case Primitive::cumsum:
      case Primitive::matmul:
      case Primitive::put_add: return true;
      default: break;
    }
    for (const int arg : node.args) needed[static_cast<std::size_t>(arg)] = 1;
  }
  return false;
}

double operations_of(const Graph& graph, Expr target) {
  std::vector<char> needed(static_cast<std::size_t>(target.id) + 1, 0);
  needed[static_cast<std::size_t>(target.id)] = 1;
  double out = 0;
  for (int id = target.id; id >= 0; --id) {
    if (!needed[static_cast<std::size_t>(id)]) continue;
    const Node& node = graph.node(id);
    double of = static_cast<double>(node.shape.count());
    if (node.primitive == Primitive::matmul)
      of *= static_cast<double>(graph.node(node.args[0]).shape.last(node.transpose_a ? 1 : 0));
    else
      for (const int arg : node.args) of = std::max(of, static_cast<double>(graph.node(arg).shape.count()));
    out += of;
    for (const int arg : node.args) needed[static_cast<std::size_t>(arg)] = 1;
  }
  return out;
}

}  // namespace ampcheck::reference
