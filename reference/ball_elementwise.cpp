// SPDX-License-Identifier: Apache-2.0
// The elementwise rules (R1, R4-R8, R10): one short loop per primitive over blocks of unit stride, so that it vectorises.
#include <array>
#include <cstring>
#include <type_traits>

#include "reference/ball_rules.h"
#include "src/error.h"

namespace ampcheck::reference {

namespace {

using In = std::span<const BlockIn>;

// The rules select instead of branching (& and |, not && and ||), and their constants and pointers are known not to alias:
// otherwise the loops do not vectorise.

/// Applies a scalar rule (context, a, ra, b, rb, v, r) to a block.
template <class Rule>
void unary(const RuleContext& context, int n, In in, BlockOut out, Rule rule) {
  const RuleContext c = context;
  const double *__restrict__ a = in[0].v, *__restrict__ ra = in[0].r;
  double *__restrict__ v = out.v, *__restrict__ r = out.r;
  for (int i = 0; i < n; ++i) rule(c, a[i], ra[i], v[i], r[i]);
}

template <class Rule>
void binary(const RuleContext& context, int n, In in, BlockOut out, Rule rule) {
  const RuleContext c = context;
  const double *__restrict__ a = in[0].v, *__restrict__ ra = in[0].r, *__restrict__ b = in[1].v, *__restrict__ rb = in[1].r;
  double *__restrict__ v = out.v, *__restrict__ r = out.r;
  for (int i = 0; i < n; ++i) rule(c, a[i], ra[i], b[i], rb[i], v[i], r[i]);
}

/// r of a sum of two: exact where TwoSum leaves no error and the result is representable; x + exact zero rounds nothing.
inline void add_rule(const RuleContext& c, double a, double ra, double b, double rb, double& v, double& r) {
  const double sum = a + b, part = sum - a;
  const double error = (a - (sum - part)) + (b - part), in = ra + rb;
  const bool exact = (in == 0) & (error == 0) & representable(sum);
  const double inexact = in + c.u * (std::fabs(sum) + in);  // a subnormal sum is always representable
  double radius = exact ? 0.0 : inexact;
  radius = (b == 0) & (rb == 0) ? ra : radius;
  radius = (a == 0) & (ra == 0) ? rb : radius;
  v = sum;
  r = radius;
}

inline void mul_rule(const RuleContext& c, double a, double ra, double b, double rb, double& v, double& r) {
  const double x = std::fabs(a), y = std::fabs(b), product = a * b;
  const double in = x * rb + y * ra + ra * rb, inexact = rounded(c, product, in);
  double radius = (in == 0) & representable(product) ? 0.0 : inexact;
  const bool pow2 = ((ra == 0) & power_of_two(a)) | ((rb == 0) & power_of_two(b));
  radius = pow2 & (std::fabs(product) - in >= kMinNormal) ? in : radius;
  radius = ((a == 0) & (ra == 0)) | ((b == 0) & (rb == 0)) ? 0.0 : radius;
  v = product;
  r = radius;
}

inline void div_rule(const RuleContext& c, double a, double ra, double b, double rb, double& v, double& r) {
  const double quotient = a / b, low = std::fabs(b) - rb;
  const double inside = (ra + std::fabs(quotient) * rb) / low, in = low > 0 ? inside : kInfinity;
  const double size = std::fabs(quotient) + in;
  // Two roundings: multiplying by a computed reciprocal is usual.
  double radius = in + 2 * c.u * size + (size < 2 * kMinNormal ? 2 * c.eta : 0.0);
  radius = (rb == 0) & power_of_two(b) & (std::fabs(quotient) - in >= kMinNormal) ? in : radius;
  radius = (a == 0) & (ra == 0) & (b != 0) ? 0.0 : radius;
  radius = (rb == 0) & (b == 0) ? 0.0 : radius;  // a pole met exactly: judged by class
  v = quotient;
  r = radius;
}

/// Own error of a function of `ulps`, at result v with incoming radius `in`.
inline double function_radius(const RuleContext& c, double ulps, double v, double in) {
  const double size = std::fabs(v) + in;
  return in + 2 * ulps * c.u * size + (size < 2 * kMinNormal ? 2 * ulps * c.eta : 0.0);
}

/// Supremum of |f(x) - f(a)| over the ball for a small radius is slope * ra with the slope's supremum; a wide ball takes
/// the two ends. `slope` may be loose by a second-order term only.
template <class Function, class Slope>
void monotone(const RuleContext& c, double ulps, int n, In in, BlockOut out, double exact_at, Function f, Slope slope) {
  const double *a = in[0].v, *ra = in[0].r;
  for (int i = 0; i < n; ++i) {
    double spread = ra[i] == 0 ? 0.0 : slope(a[i], ra[i], out.v[i]);
    if (ra[i] > 0x1p-4) [[unlikely]] {
      const double up = std::fabs(f(a[i] + ra[i]) - out.v[i]), down = std::fabs(out.v[i] - f(a[i] - ra[i]));
      spread = std::fmax(up, down);
      if (!(spread == spread) || !(down == down)) spread = kInfinity;  // the ball meets a pole
    }
    out.r[i] = ra[i] == 0 && a[i] == exact_at ? 0.0 : function_radius(c, ulps, out.v[i], spread);
  }
}

void exp_rule(const RuleContext& context, int n, In in, BlockOut out) {
  vector_exp(in[0].v, out.v, n);
  const RuleContext c = context;
  const double *__restrict__ a = in[0].v, *__restrict__ ra = in[0].r, *__restrict__ v = out.v;
  double* __restrict__ r = out.r;
  int wide = 0;
  for (int i = 0; i < n; ++i) {  // |e^(a+r) - e^a| = e^a expm1(r) <= e^a (r + r^2) for r <= 1
    wide |= !(ra[i] <= 1);
    const double radius = function_radius(c, c.math.exp, v[i], v[i] * (ra[i] + ra[i] * ra[i]));
    r[i] = (ra[i] == 0) & (a[i] == 0) ? 0.0 : radius;
  }
  for (int i = 0; wide && i < n; ++i)
    if (!(ra[i] <= 1)) r[i] = function_radius(c, c.math.exp, v[i], std::exp(a[i] + ra[i]) - v[i]);
}

void log_rule(const RuleContext& c, int n, In in, BlockOut out) {
  vector_log(in[0].v, out.v, n);
  for (int i = 0; i < n; ++i) {
    const double a = in[0].v[i], ra = in[0].r[i];
    const double spread = ra == 0 ? 0.0 : (a - ra > 0 ? ra / (a - ra) : kInfinity);
    out.r[i] = ra == 0 && a == 1 ? 0.0 : function_radius(c, c.math.log, out.v[i], spread);
  }
}

void log1p_rule(const RuleContext& c, int n, In in, BlockOut out) {
  vector_log1p(in[0].v, out.v, n);
  for (int i = 0; i < n; ++i) {
    const double a = in[0].v[i], ra = in[0].r[i], low = 1 + a - ra;
    const double spread = ra == 0 ? 0.0 : (low > 0 ? ra / low : kInfinity);
    out.r[i] = ra == 0 && a == 0 ? 0.0 : function_radius(c, c.math.log1p, out.v[i], spread);
  }
}

void erf_rule(const RuleContext& context, int n, In in, BlockOut out, bool complement) {
  std::array<double, kBlock> near{}, slope{};
  const RuleContext c = context;
  const double *__restrict__ a = in[0].v, *__restrict__ ra = in[0].r, *__restrict__ bell = slope.data(), *__restrict__ v = out.v;
  double *__restrict__ nearest = near.data(), *__restrict__ r = out.r;
  for (int i = 0; i < n; ++i) {
    const double gap = std::fabs(a[i]) - ra[i], least = gap > 0 ? gap : 0.0;
    nearest[i] = -least * least;
  }
  vector_exp(near.data(), slope.data(), n);
  (complement ? vector_erfc : vector_erf)(in[0].v, out.v, n);
  const double ulps = complement ? c.math.erfc : c.math.erf;
  for (int i = 0; i < n; ++i) {  // mean value theorem with the largest slope in the ball
    const double steepest = 1.1283791670955126 * bell[i] * ra[i], limited = 2.0 < steepest ? 2.0 : steepest;
    const double spread = ra[i] == 0 ? 0.0 : (limited == limited ? limited : 2.0);
    const double radius = function_radius(c, ulps, v[i], spread);
    r[i] = !complement & (a[i] == 0) & (ra[i] == 0) ? 0.0 : radius;
  }
}

void sqrt_rule(const RuleContext& c, double a, double ra, double& v, double& r) {
  const double root = std::sqrt(a), low = a - ra;
  const double spread = ra == 0 ? 0.0 : (low > 0 ? std::fmin(0.5 * ra / std::sqrt(low), std::sqrt(ra)) : std::sqrt(ra));
  v = root;
  const bool exact = ra == 0 && representable(root) && root * root == a;
  r = exact ? 0.0 : function_radius(c, c.math.sqrt, root, spread);
}

void rsqrt_rule(const RuleContext& c, double a, double ra, double& v, double& r) {
  const double y = 1 / std::sqrt(a), low = a - ra;
  const double spread = ra == 0 ? 0.0 : (low > 0 ? 1 / std::sqrt(low) - y + 0x1p-50 * y : kInfinity);
  v = y;
  const bool exact = ra == 0 && power_of_two(y) && a * y * y == 1;
  r = exact ? 0.0 : function_radius(c, c.math.rsqrt, y, spread);
}

/// R7: s = 1 / (1 + exp(-x)); exp's error counts with (1 - s), and 1/inf = 0 is right in the far tail.
void sigmoid_rule(const RuleContext& c, int n, In in, BlockOut out) {
  for (int i = 0; i < n; ++i) out.v[i] = -in[0].v[i];
  std::array<double, kBlock> e{};
  vector_exp(out.v, e.data(), n);
  for (int i = 0; i < n; ++i) {
    const double s = 1 / (1 + e[static_cast<std::size_t>(i)]), ra = in[0].r[i];
    const double one_minus = e[static_cast<std::size_t>(i)] < kInfinity ? e[static_cast<std::size_t>(i)] * s : 1.0;
    const double spread = ra == 0 ? 0.0 : (ra <= 1 ? s * one_minus * (ra + ra * ra) : std::fmin(ra * 0.25, 1.0));
    double radius = c.u * (2 * c.math.exp * one_minus + 3) * (s + spread) + spread;
    radius += s < 4 / kMaxFinite ? s : 0.0;
    radius += s < 2 * kMinNormal ? 2 * c.eta : 0.0;
    out.v[i] = s;
    out.r[i] = radius;
  }
}

inline void straddle(bool yes, bool no, double& v, double& r) {
  v = yes ? 1.0 : (no ? 0.0 : 0.5);
  r = yes || no ? 0.0 : 0.5;
}

void where_rule(int n, In in, BlockOut out) {
  const double *c = in[0].v, *rc = in[0].r, *a = in[1].v, *ra = in[1].r, *b = in[2].v, *rb = in[2].r;
  for (int i = 0; i < n; ++i) {
    const double low = std::fmin(a[i] - ra[i], b[i] - rb[i]), high = std::fmax(a[i] + ra[i], b[i] + rb[i]);
    const bool decided = rc[i] == 0, yes = c[i] != 0;
    out.v[i] = decided ? (yes ? a[i] : b[i]) : 0.5 * (low + high);
    out.r[i] = decided ? (yes ? ra[i] : rb[i]) : 0.5 * (high - low);
  }
}

/// Value and radius of one block.
void evaluate_block(const RuleContext& c, Primitive primitive, int n, In in, BlockOut out) {
  switch (primitive) {
    case Primitive::add: return binary(c, n, in, out, add_rule);
    case Primitive::sub:
      return binary(c, n, in, out, [](const RuleContext& k, double a, double ra, double b, double rb, double& v, double& r) {
        add_rule(k, a, ra, -b, rb, v, r);
      });
    case Primitive::neg:
      return unary(c, n, in, out, [](const RuleContext&, double a, double ra, double& v, double& r) { v = -a, r = ra; });
    case Primitive::mul: return binary(c, n, in, out, mul_rule);
    case Primitive::square:
      return unary(c, n, in, out, [](const RuleContext& k, double a, double ra, double& v, double& r) {
        const double in_r = (2 * std::fabs(a) + ra) * ra;
        const double square = a * a, inexact = rounded(k, square, in_r);
        v = square;
        r = (in_r == 0) & representable(square) ? 0.0 : inexact;
      });
    case Primitive::div: return binary(c, n, in, out, div_rule);
    case Primitive::exp: return exp_rule(c, n, in, out);
    case Primitive::expm1:
      vector_expm1(in[0].v, out.v, n);
      return monotone(c, c.math.expm1, n, in, out, 0.0, [](double x) { return std::expm1(x); },
                      [](double, double ra, double y) { return (y + 1) * (ra + ra * ra); });
    case Primitive::log: return log_rule(c, n, in, out);
    case Primitive::log1p: return log1p_rule(c, n, in, out);
    case Primitive::tanh:
      vector_tanh(in[0].v, out.v, n);
      return monotone(c, c.math.tanh, n, in, out, 0.0, [](double x) { return std::tanh(x); },
                      [](double, double ra, double y) { return ((1 - y) * (1 + y) + 2 * ra) * ra; });
    case Primitive::erf: return erf_rule(c, n, in, out, false);
    case Primitive::erfc: return erf_rule(c, n, in, out, true);
    case Primitive::sqrt: return unary(c, n, in, out, sqrt_rule);
    case Primitive::rsqrt: return unary(c, n, in, out, rsqrt_rule);
    case Primitive::sigmoid: return sigmoid_rule(c, n, in, out);
    case Primitive::abs:
      return unary(c, n, in, out, [](const RuleContext&, double a, double ra, double& v, double& r) { v = std::fabs(a), r = ra; });
    case Primitive::sign:
      return unary(c, n, in, out, [](const RuleContext&, double a, double ra, double& v, double& r) {
        const bool crosses = ra > 0 && std::fabs(a) <= ra;
        v = crosses || a == 0 ? 0.0 : (a != a ? a : std::copysign(1.0, a));
        r = crosses ? 1.0 : 0.0;
      });
    case Primitive::less:
      return binary(c, n, in, out, [](const RuleContext&, double a, double ra, double b, double rb, double& v, double& r) {
        straddle(a + ra < b - rb, !(a - ra < b + rb), v, r);
      });
    case Primitive::less_equal:
      return binary(c, n, in, out, [](const RuleContext&, double a, double ra, double b, double rb, double& v, double& r) {
        straddle(a + ra <= b - rb, !(a - ra <= b + rb), v, r);
      });
    case Primitive::equal:
      return binary(c, n, in, out, [](const RuleContext&, double a, double ra, double b, double rb, double& v, double& r) {
        straddle(a == b && ra + rb == 0, !(std::fabs(a - b) <= ra + rb), v, r);
      });
    case Primitive::where: return where_rule(n, in, out);
    case Primitive::maximum:
      return binary(c, n, in, out, [](const RuleContext&, double a, double ra, double b, double rb, double& v, double& r) {
        const double low = std::fmax(a - ra, b - rb), high = std::fmax(a + ra, b + rb);
        v = a > b || a != a ? a : b;
        r = std::fmax(high - v, v - low);
      });
    default: throw Error(std::string("[ball] no elementwise rule for ") + name(primitive));
  }
}

/// The fp32 replay of one element (rule R9).
double replay(Primitive primitive, const float* x) {
  switch (primitive) {
    case Primitive::add: return x[0] + x[1];
    case Primitive::sub: return x[0] - x[1];
    case Primitive::neg: return -x[0];
    case Primitive::mul: return x[0] * x[1];
    case Primitive::square: return x[0] * x[0];
    case Primitive::div: return x[0] / x[1];
    case Primitive::exp: return std::exp(x[0]);
    case Primitive::expm1: return std::expm1(x[0]);
    case Primitive::log: return std::log(x[0]);
    case Primitive::log1p: return std::log1p(x[0]);
    case Primitive::tanh: return std::tanh(x[0]);
    case Primitive::erf: return std::erf(x[0]);
    case Primitive::erfc: return std::erfc(x[0]);
    case Primitive::sqrt: return std::sqrt(x[0]);
    case Primitive::rsqrt: return 1 / std::sqrt(x[0]);
    case Primitive::sigmoid: return 1 / (1 + std::exp(-x[0]));
    case Primitive::abs: return std::fabs(x[0]);
    case Primitive::sign: return x[0] == 0 || x[0] != x[0] ? x[0] : std::copysign(1.0f, x[0]);
    case Primitive::less: return x[0] < x[1];
    case Primitive::less_equal: return x[0] <= x[1];
    case Primitive::equal: return x[0] == x[1];
    case Primitive::where: return x[0] != 0 ? x[1] : x[2];
    case Primitive::maximum: return x[0] > x[1] || x[0] != x[0] ? x[0] : x[1];
    default: return std::numeric_limits<double>::quiet_NaN();
  }
}

/// Product of the factors above 1 and of those below 1; an operand that is no product is one factor.
struct Factors {
  double above, below;
};
Factors factors(const BlockIn& in, int i) {
  const double size = std::fabs(in.v[i]);
  return in.up[i] > 0 ? Factors{in.up[i], in.down[i]} : Factors{std::fmax(1.0, size), std::fmin(1.0, size)};
}

/// Product chains (R4) and range flags (R9) of one block; runs after the value and radius are there.
void range_block(const RuleContext& c, Primitive primitive, int n, In in, BlockOut out) {
  const bool product = primitive == Primitive::mul || primitive == Primitive::square || primitive == Primitive::div;
  for (int i = 0; i < n; ++i) {
    std::uint8_t flags = 0;
    bool finite_operands = true, unknown = false;
    float x[3] = {0, 0, 0};
    for (std::size_t k = 0; k < in.size(); ++k) {
      const bool unused = primitive == Primitive::where && k > 0 && in[0].r[i] == 0 && (in[0].v[i] != 0) != (k == 1);
      if (!unused) {
        const std::uint8_t f = in[k].flags[i];
        if (f & (kOverflowed | kLeftRange)) flags |= kLeftRange;
        flags |= f & kMayBeNan;
        finite_operands &= std::isfinite(in[k].v[i]) || (f & (kOverflowed | kLeftRange));
      }
      x[k] = static_cast<float>(in[k].f[i]);
    }
    out.up[i] = 0;  // zero: not a product chain
    out.down[i] = 0;
    if (product) {
      const Factors a = factors(in[0], i), b = primitive == Primitive::square ? a : factors(in[1], i);
      const bool divides = primitive == Primitive::div;  // a divisor's factors count reciprocally
      const double up = a.above * (divides ? 1 / b.below : b.above), down = a.below * (divides ? 1 / b.above : b.below);
      out.up[i] = up;
      out.down[i] = down;
      const bool zero = out.v[i] == 0 && out.r[i] == 0;
      if (down < kMinNormal && !zero) out.r[i] += 2 * c.eta * up;
      if (up > kMaxFinite) flags |= kLeftRange, unknown = true;  // some order of the factors overflows
    }
    if (finite_operands && !(std::fabs(out.v[i]) + out.r[i] <= kMaxFinite)) flags |= kOverflowed;
    out.r[i] = settle(out.v[i], out.r[i]);
    out.f[i] = unknown ? std::numeric_limits<double>::quiet_NaN() : replay(primitive, x);
    out.flags[i] = flags;
  }
}

/// Extents and operand strides of an elementwise iteration, adjacent axes merged.
struct Plan {
  int rank = 0;
  std::int64_t extent[kMaxRank] = {};
  std::int64_t stride[3][kMaxRank] = {};
};

Plan plan_of(const Shape& shape, std::span<const Ball* const> args) {
  Plan plan;
  for (int axis = 0; axis < shape.rank; ++axis) {
    if (shape[axis] == 1) continue;
    std::int64_t stride[3] = {};
    for (std::size_t k = 0; k < args.size(); ++k) {
      const Shape& s = args[k]->shape;
      const int own = axis - (shape.rank - s.rank);
      stride[k] = own >= 0 && s[own] != 1 ? row_major_strides(s)[own] : 0;
    }
    bool merge = plan.rank > 0;
    for (std::size_t k = 0; merge && k < args.size(); ++k)
      merge = plan.stride[k][plan.rank - 1] == stride[k] * shape[axis];
    if (!merge) plan.extent[plan.rank++] = 1;
    plan.extent[plan.rank - 1] *= shape[axis];
    for (std::size_t k = 0; k < args.size(); ++k) plan.stride[k][plan.rank - 1] = stride[k];
  }
  return plan;
}

/// A unit-stride view of `n` numbers from a channel: the channel itself, or a filled copy where the operand repeats.
struct Stage {
  std::array<double, kBlock> room[5];
  std::array<std::uint8_t, kBlock> flags;
};
alignas(64) const std::array<double, kBlock> kZeros{};

const double* stage(const Channel& channel, std::int64_t at, std::int64_t stride, int n, std::array<double, kBlock>& room) {
  if (!channel) return kZeros.data();
  if (stride == 1 || n == 1) return channel.get() + at;
  if (stride == 0) std::fill_n(room.begin(), n, channel[at]);
  else for (int i = 0; i < n; ++i) room[static_cast<std::size_t>(i)] = channel[at + i * stride];
  return room.data();
}

BlockIn stage_all(const Ball& ball, std::int64_t at, std::int64_t stride, int n, bool full, Stage& room) {
  BlockIn in{};
  in.v = stage(ball.v, at, stride, n, room.room[0]);
  in.r = stage(ball.r, at, stride, n, room.room[1]);
  if (!full) return in;
  in.f = stage(ball.replay, at, stride, n, room.room[2]);
  in.up = stage(ball.up, at, stride, n, room.room[3]);
  in.down = stage(ball.down, at, stride, n, room.room[4]);
  in.flags = ball.flags.get() + at;
  if (stride != 1 && n > 1) {
    for (int i = 0; i < n; ++i) room.flags[static_cast<std::size_t>(i)] = ball.flags[at + i * stride];
    in.flags = room.flags.data();
  }
  return in;
}

/// Rule R3 for chained + and -: the state of the flattened sum, and the radius from it.
void chain_sums(const RuleContext& context, Primitive primitive, std::int64_t at, int n, const std::int64_t* offset,
                const std::int64_t* stride, std::span<const Ball* const> args, In in, bool keep, Ball& out) {
  struct {
    std::array<double, kBlock> terms{}, mass{}, base{}, grid{}, room{};
  } own;
  double *__restrict__ terms = own.terms.data(), *__restrict__ mass = own.mass.data(), *__restrict__ base = own.base.data();
  double* __restrict__ grid = own.grid.data();
  std::fill_n(grid, n, kInfinity);
  for (std::size_t k = 0; k < args.size(); ++k) {
    const Ball& x = *args[k];
    if (x.terms) {
      const auto channel = [&](const Channel& from) { return stage(from, offset[k], stride[k], n, own.room); };
      const double* __restrict__ from = channel(x.terms);
      for (int i = 0; i < n; ++i) terms[i] += from[i];
      from = channel(x.mass);
      for (int i = 0; i < n; ++i) mass[i] += from[i];
      from = channel(x.base);
      for (int i = 0; i < n; ++i) base[i] += from[i];
      from = channel(x.grid);
      for (int i = 0; i < n; ++i) grid[i] = from[i] < grid[i] ? from[i] : grid[i];
    } else {
      const double *__restrict__ v = in[k].v, *__restrict__ r = in[k].r;
      for (int i = 0; i < n; ++i) {
        const double bit = lowest_bit(v[i]), lower = bit < grid[i] ? bit : grid[i];
        terms[i] += (v[i] != 0) | (r[i] != 0) ? 1.0 : 0.0, mass[i] += std::fabs(v[i]) + r[i], base[i] += r[i];
        grid[i] = r[i] == 0 ? lower : 0.0;
      }
    }
  }
  const RuleContext c = context;
  if (primitive != Primitive::neg) {
    const double* __restrict__ v = out.v.get() + at;
    double* __restrict__ r = out.r.get() + at;
    for (int i = 0; i < n; ++i) {  // a plain a + b of two single terms keeps u|v|
      const double chained = settle(v[i], summation_radius(c, terms[i], mass[i], base[i], grid[i]));
      r[i] = terms[i] > 2 ? chained : r[i];
    }
  }
  if (!keep) return;
  std::copy_n(terms, n, out.terms.get() + at), std::copy_n(mass, n, out.mass.get() + at);
  std::copy_n(base, n, out.base.get() + at), std::copy_n(grid, n, out.grid.get() + at);
}

}  // namespace

void evaluate_elementwise(const RuleContext& context, const Node& node, std::span<const Ball* const> args, bool full,
                          bool wants_sum, Ball& out) {
  const bool sums = node.primitive == Primitive::add || node.primitive == Primitive::sub || node.primitive == Primitive::neg;
  const bool chained = sums && (wants_sum || std::any_of(args.begin(), args.end(), [](const Ball* b) { return b->terms != nullptr; }));
  allocate(out, full, chained && wants_sum);
  const Plan plan = plan_of(out.shape, args);
  const std::int64_t inner = plan.rank ? plan.extent[plan.rank - 1] : 1;
  const std::int64_t outer = inner ? out.count() / inner : 0;
  Stage rooms[3];
  for (std::int64_t row = 0; row < outer; ++row) {
    std::int64_t offset[3] = {}, stride[3] = {}, rest = row;
    for (int axis = plan.rank - 2; axis >= 0; --axis) {
      const std::int64_t i = rest % plan.extent[axis];
      rest /= plan.extent[axis];
      for (std::size_t k = 0; k < args.size(); ++k) offset[k] += i * plan.stride[k][axis];
    }
    for (std::size_t k = 0; k < args.size(); ++k) stride[k] = plan.rank ? plan.stride[k][plan.rank - 1] : 0;
    for (std::int64_t start = 0; start < inner; start += kBlock) {
      const int n = static_cast<int>(std::min<std::int64_t>(kBlock, inner - start));
      const std::int64_t at = row * inner + start;
      BlockIn in[3];
      std::int64_t from[3] = {};
      for (std::size_t k = 0; k < args.size(); ++k) {
        from[k] = offset[k] + start * stride[k];
        in[k] = stage_all(*args[k], from[k], stride[k], n, full, rooms[k]);
      }
      BlockOut block{out.v.get() + at, out.r.get() + at, nullptr, nullptr, nullptr, nullptr};
      evaluate_block(context, node.primitive, n, In(in, args.size()), block);
      if (full) {
        block.f = out.replay.get() + at, block.up = out.up.get() + at, block.down = out.down.get() + at;
        block.flags = out.flags.get() + at;
        range_block(context, node.primitive, n, In(in, args.size()), block);
      }
      if (chained) chain_sums(context, node.primitive, at, n, from, stride, args, In(in, args.size()), wants_sum, out);
    }
  }
}

}  // namespace ampcheck::reference
