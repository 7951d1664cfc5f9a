// SPDX-License-Identifier: Apache-2.0
// The hot loops of the ball rules (R1-R8, R10), compiled once per SIMD target and chosen at run time: one short loop
// per primitive over blocks of unit stride, so that it vectorises. No contraction: the same bits at every width.
#include <array>
#include <cstring>
#include <type_traits>

#include "reference/ball/ball_rules.h"
#include "src/error.h"

#ifndef HWY_DISABLE_PCLMUL_AES
#define HWY_DISABLE_PCLMUL_AES  // unused here; with them x86-64-v3 would count as SSSE3 and be compiled again as AVX2
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/ball/ball_blocks.cpp"
#include <hwy/foreach_target.h>  // must precede highway.h
#include <hwy/highway.h>

#include "reference/ball/eyes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ampcheck::reference {
namespace HWY_NAMESPACE {
namespace {

using In = std::span<const BlockIn>;

// The rules select instead of branching (& and |, not && and ||), and their constants and pointers are known not to
// alias: otherwise the loops do not vectorise.

/// Applies a scalar rule (context, a, ra, v, r) to a block; each rule has its own loop, into which it is inlined.
template <auto rule>
void unary(const RuleContext& context, int n, In in, BlockOut out) {
  const RuleContext c = context;  // NOLINT(performance-unnecessary-copy-initialization): may not alias
  const double* __restrict__ a = in[0].v, * __restrict__ ra = in[0].r;
  double* __restrict__ v = out.v, * __restrict__ r = out.r;
  for (int i = 0; i < n; ++i) rule(c, a[i], ra[i], v[i], r[i]);
}

/// The same of (context, a, ra, b, rb, v, r).
template <auto rule>
void binary(const RuleContext& context, int n, In in, BlockOut out) {
  const RuleContext c = context;  // NOLINT(performance-unnecessary-copy-initialization): may not alias
  const double *__restrict__ a = in[0].v, *__restrict__ ra = in[0].r, *__restrict__ b = in[1].v, *__restrict__ rb = in[1].r;
  double* __restrict__ v = out.v, * __restrict__ r = out.r;
  for (int i = 0; i < n; ++i) rule(c, a[i], ra[i], b[i], rb[i], v[i], r[i]);
}

/// r of a sum of two: exact where TwoSum leaves no error and the result is representable; x + exact zero rounds
/// nothing.
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

inline void sub_rule(const RuleContext& c, double a, double ra, double b, double rb, double& v, double& r) {
  add_rule(c, a, ra, -b, rb, v, r);
}

inline void neg_rule(const RuleContext&, double a, double ra, double& v, double& r) {
  v = -a;
  r = ra;
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

inline void square_rule(const RuleContext& c, double a, double ra, double& v, double& r) {
  const double in = (2 * std::fabs(a) + ra) * ra;
  const double square = a * a, inexact = rounded(c, square, in);
  v = square;
  r = (in == 0) & representable(square) ? 0.0 : inexact;
}

inline void div_rule(const RuleContext& c, double a, double ra, double b, double rb, double& v, double& r) {
  const double quotient = a / b, low = std::fabs(b) - rb;
  const double inside = (ra + std::fabs(quotient) * rb) / low, in = low > 0 ? inside : kInfinity;
  const double size = std::fabs(quotient) + in;
  // Two roundings: multiplying by a computed reciprocal is usual.
  double radius = in + 2 * c.u * size + (size < 2 * kMinNormal ? 2 * c.eta : 0.0);
  radius = (rb == 0) & power_of_two(b) & (std::fabs(quotient) - in >= kMinNormal) ? in : radius;
  radius = (a == 0) & (ra == 0) & (low > 0) ? 0.0 : radius;  // 0/0 where the divisor's ball meets zero
  radius = (rb == 0) & (b == 0) ? 0.0 : radius;              // a pole met exactly: judged by class
  v = quotient;
  r = radius;
}

/// Own error of a function of `ulps`, at result v with incoming radius `in`.
inline double function_radius(const RuleContext& c, double ulps, double v, double in) {
  const double size = std::fabs(v) + in;
  return in + 2 * ulps * c.u * size + (size < 2 * kMinNormal ? 2 * ulps * c.eta : 0.0);
}

/// Supremum of |f(x) - f(a)| over the ball for a small radius is slope * ra with the slope's supremum; a wide ball
/// takes the two ends. `slope` may be loose by a second-order term only.
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
  const RuleContext c = context;  // NOLINT(performance-unnecessary-copy-initialization): may not alias
  const double* __restrict__ a = in[0].v, * __restrict__ ra = in[0].r, * __restrict__ v = out.v;
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

void expm1_rule(const RuleContext& c, int n, In in, BlockOut out) {
  vector_expm1(in[0].v, out.v, n);
  monotone(
      c, c.math.expm1, n, in, out, 0.0, [](double x) { return std::expm1(x); },
      [](double, double ra, double y) { return (y + 1) * (ra + ra * ra); });
}

void tanh_rule(const RuleContext& c, int n, In in, BlockOut out) {
  vector_tanh(in[0].v, out.v, n);
  monotone(
      c, c.math.tanh, n, in, out, 0.0, [](double x) { return std::tanh(x); },
      [](double, double ra, double y) { return ((1 - y) * (1 + y) + 2 * ra) * ra; });
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
  const RuleContext c = context;  // NOLINT(performance-unnecessary-copy-initialization): may not alias
  const double* __restrict__ a = in[0].v, * __restrict__ ra = in[0].r, * __restrict__ bell = slope.data(), * __restrict__ v = out.v;
  double* __restrict__ nearest = near.data(), * __restrict__ r = out.r;
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

/// sin and cos: |f(a + s) - f(a)| <= |s| (|f'(a)| + |s|), since |f''| <= 1. Over a wide ball f stays in [-1, 1], and
/// the ball is the part of it that lies there.
void wave_rule(const RuleContext& c, int n, In in, BlockOut out, void (*f)(const double*, double*, int),
               void (*slope)(const double*, double*, int)) {
  constexpr double kWide = 0x1p-4;
  std::array<double, kBlock> slopes{};
  f(in[0].v, out.v, n);
  slope(in[0].v, slopes.data(), n);
  for (int i = 0; i < n; ++i) {
    const double a = in[0].v[i], ra = in[0].r[i], steepest = std::fabs(slopes[static_cast<std::size_t>(i)]) + ra;
    double spread = ra == 0 ? 0.0 : ra * (steepest < 1 ? steepest : 1.0);
    if (ra > kWide) [[unlikely]] {
      const double low = std::fmax(-1.0, out.v[i] - spread), high = std::fmin(1.0, out.v[i] + spread);
      out.v[i] = 0.5 * (low + high);
      spread = 0.5 * (high - low);
    }
    const bool exact = ra == 0 && a == 0;  // 0 of sin, 1 of cos
    out.r[i] = exact ? 0.0 : function_radius(c, kTrigonometricUlp, out.v[i], spread);
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

/// Largest |(a + s)^(b + t) - v| for |s| <= ra and |t| <= rb, of v = a^b: x^p is monotone in each of both where x > 0,
/// and for whole p on each side of 0. Infinite where the ball holds a pole, or x < 0 with p that may be no whole
/// number.
double pow_spread(double a, double ra, double b, double rb, double v) {
  const double low = a - ra, high = a + ra;
  const bool whole = rb == 0 && b == std::floor(b), crosses = low <= 0 && high >= 0;
  const bool inside = low > 0 || (low == 0 && b - rb > 0);
  if (!inside && (!whole || (crosses && b < 0))) return kInfinity;
  double spread = crosses && b > 0 ? std::fabs(v) : 0.0;
  for (const double x : {low, high})
    for (const double p : {b - rb, b + rb}) spread = std::fmax(spread, std::fabs(std::pow(x, p) - v));
  return spread == spread ? spread + 0x1p-50 * std::fabs(v) : kInfinity;
}

/// One function, of the base and the exponent; nothing is taken for exact but what every one gives: 1^p, x^0 and 0^p.
void pow_rule(const RuleContext& c, double a, double ra, double b, double rb, double& v, double& r) {
  v = std::pow(a, b);
  const bool exact_operands = ra == 0 && rb == 0;
  const bool exact = (ra == 0 && a == 1) || (exact_operands && (b == 0 || a == 0));
  r = exact ? 0.0 : function_radius(c, c.math.pow, v, exact_operands ? 0.0 : pow_spread(a, ra, b, rb, v));
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

inline void abs_rule(const RuleContext&, double a, double ra, double& v, double& r) {
  v = std::fabs(a);
  r = ra;
}

inline void sign_rule(const RuleContext&, double a, double ra, double& v, double& r) {
  const bool crosses = ra > 0 && std::fabs(a) <= ra;
  v = crosses || a == 0 ? 0.0 : (a != a ? a : std::copysign(1.0, a));
  r = crosses ? 1.0 : 0.0;
}

inline void maximum_rule(const RuleContext&, double a, double ra, double b, double rb, double& v, double& r) {
  const double low = std::fmax(a - ra, b - rb), high = std::fmax(a + ra, b + rb);
  v = a > b || a != a ? a : b;
  r = std::fmax(high - v, v - low);
}

inline void straddle(bool yes, bool no, double& v, double& r) {
  v = yes ? 1.0 : (no ? 0.0 : 0.5);
  r = yes || no ? 0.0 : 0.5;
}

inline void less_rule(const RuleContext&, double a, double ra, double b, double rb, double& v, double& r) {
  straddle(a + ra < b - rb, !(a - ra < b + rb), v, r);
}
inline void less_equal_rule(const RuleContext&, double a, double ra, double b, double rb, double& v, double& r) {
  straddle(a + ra <= b - rb, !(a - ra <= b + rb), v, r);
}
inline void equal_rule(const RuleContext&, double a, double ra, double b, double rb, double& v, double& r) {
  straddle(a == b && ra + rb == 0, !(std::fabs(a - b) <= ra + rb), v, r);
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

/// Value and radius of one block of a function of one operand.
void Apply(const RuleContext& c, Primitive primitive, int n, In in, BlockOut out) {
  switch (primitive) {
    case Primitive::exp: return exp_rule(c, n, in, out);
    case Primitive::expm1: return expm1_rule(c, n, in, out);
    case Primitive::log: return log_rule(c, n, in, out);
    case Primitive::log1p: return log1p_rule(c, n, in, out);
    case Primitive::tanh: return tanh_rule(c, n, in, out);
    case Primitive::erf: return erf_rule(c, n, in, out, false);
    case Primitive::erfc: return erf_rule(c, n, in, out, true);
    case Primitive::sin: return wave_rule(c, n, in, out, vector_sin, vector_cos);
    case Primitive::cos: return wave_rule(c, n, in, out, vector_cos, vector_sin);
    case Primitive::sqrt: return unary<sqrt_rule>(c, n, in, out);
    case Primitive::rsqrt: return unary<rsqrt_rule>(c, n, in, out);
    case Primitive::sigmoid: return sigmoid_rule(c, n, in, out);
    default: throw Error(std::string("[ball] no elementwise rule for ") + name(primitive));
  }
}

/// Value and radius of one block.
void Evaluate(const RuleContext& c, Primitive primitive, int n, In in, BlockOut out) {
  switch (primitive) {
    case Primitive::add: return binary<add_rule>(c, n, in, out);
    case Primitive::sub: return binary<sub_rule>(c, n, in, out);
    case Primitive::neg: return unary<neg_rule>(c, n, in, out);
    case Primitive::mul: return binary<mul_rule>(c, n, in, out);
    case Primitive::square: return unary<square_rule>(c, n, in, out);
    case Primitive::div: return binary<div_rule>(c, n, in, out);
    case Primitive::pow: return binary<pow_rule>(c, n, in, out);
    case Primitive::abs: return unary<abs_rule>(c, n, in, out);
    case Primitive::sign: return unary<sign_rule>(c, n, in, out);
    case Primitive::less: return binary<less_rule>(c, n, in, out);
    case Primitive::less_equal: return binary<less_equal_rule>(c, n, in, out);
    case Primitive::equal: return binary<equal_rule>(c, n, in, out);
    case Primitive::where: return where_rule(n, in, out);
    case Primitive::maximum: return binary<maximum_rule>(c, n, in, out);
    default: return Apply(c, primitive, n, in, out);
  }
}

// Sums of blocks: loops of few streams each, whose pointers are parameters, so that the compiler believes them apart.

void add(const double* __restrict__ x, std::int64_t n, double* __restrict__ sum) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] += x[i];
}
void least(const double* __restrict__ x, std::int64_t n, double* __restrict__ grid) {
  for (std::int64_t i = 0; i < n; ++i) grid[i] = x[i] < grid[i] ? x[i] : grid[i];
}
void count_exact(const double* __restrict__ v, std::int64_t n, double* __restrict__ terms, double* __restrict__ mass) {
  for (std::int64_t i = 0; i < n; ++i) {
    terms[i] += v[i] != 0 ? 1.0 : 0.0;
    mass[i] += std::fabs(v[i]);
  }
}
void count(const double* __restrict__ v, const double* __restrict__ r, std::int64_t n, double* __restrict__ terms,
           double* __restrict__ mass, double* __restrict__ base) {
  for (std::int64_t i = 0; i < n; ++i) {
    terms[i] += (v[i] != 0) | (r[i] != 0) ? 1.0 : 0.0;
    mass[i] += std::fabs(v[i]) + r[i];
    base[i] += r[i];
  }
}
void least_bits(const double* __restrict__ v, std::int64_t n, double* __restrict__ grid) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double bit = lowest_bit(v[i]), held = grid[i];
    grid[i] = bit < held ? bit : held;
  }
}
void drop_inexact(const double* __restrict__ r, std::int64_t n, double* __restrict__ grid) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double held = grid[i];
    grid[i] = r[i] == 0 ? held : 0.0;
  }
}

/// Adds the terms of a block to running sums, element by element.
void add_state(const SumsIn& x, std::int64_t n, const SumsOut& s) {
  if (x.terms != nullptr) {
    add(x.terms, n, s.terms);
    add(x.mass, n, s.mass);
    add(x.base, n, s.base);
    least(x.grid, n, s.grid);
  } else if (x.r != nullptr) {
    count(x.v, x.r, n, s.terms, s.mass, s.base);
    least_bits(x.v, n, s.grid);
    drop_inexact(x.r, n, s.grid);
  } else {
    count_exact(x.v, n, s.terms, s.mass);
    least_bits(x.v, n, s.grid);
  }
}

void AddTerms(const SumsIn& x, std::int64_t n, const SumsOut& s) {
  if (s.value != nullptr) add(x.v, n, s.value);
  add_state(x, n, s);
}

/// Radii of sums from their states; where a sum has two terms or fewer, the radius stays.
void SettleChain(const RuleContext& context, int n, const double* v_in, const SumsOut& s, double* r_out) {
  const RuleContext c = context;  // NOLINT(performance-unnecessary-copy-initialization): may not alias
  const double* __restrict__ v = v_in, * __restrict__ terms = s.terms, * __restrict__ mass = s.mass, * __restrict__ base = s.base;
  const double* __restrict__ grid = s.grid;
  double* __restrict__ r = r_out;
  for (int i = 0; i < n; ++i) {
    const double chained = settle(v[i], summation_radius(c, terms[i], mass[i], base[i], grid[i]));
    r[i] = terms[i] > 2 ? chained : r[i];
  }
}

/// A compiler without leave to ignore NaN does not vectorise a maximum: lanes by hand.
constexpr int kLanes = HWY_TARGET == HWY_AVX2 ? 4 : 8;
using Doubles = double __attribute__((vector_size(kLanes * sizeof(double))));
using Masks = std::int64_t __attribute__((vector_size(kLanes * sizeof(double))));

/// One contiguous run of n plain terms, eight chains wide whatever the vectors, so that the sums are the same.
template <bool with_radii>
HWY_INLINE void sum_chains(const double* v, const double* r, std::int64_t n, SumState& out) {
  constexpr int kVectors = 8 / kLanes;
  Doubles a[kVectors] = {}, m[kVectors] = {}, b[kVectors] = {};
  Masks t[kVectors] = {};  // counted downwards: a mask is minus one
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < kVectors; ++k) {
      Doubles x, y{};
      std::memcpy(&x, v + i + k * kLanes, sizeof x);
      if (with_radii) std::memcpy(&y, r + i + k * kLanes, sizeof y);
      a[k] += x;
      m[k] += (Doubles)((Masks)x & 0x7fffffffffffffffll);
      if (with_radii) b[k] += y;
      t[k] += with_radii ? (x != 0) | (y != 0) : x != 0;
    }
  for (; i < n; ++i) {
    const double y = with_radii ? r[i] : 0.0;
    a[0][0] += v[i];
    m[0][0] += std::fabs(v[i]);
    b[0][0] += y;
    t[0][0] -= v[i] != 0 || y != 0;
  }
  for (int k = 0; k < 8; ++k) {
    const int j = k / kLanes, lane = k % kLanes;
    out.value += a[j][lane];
    out.mass += m[j][lane];
    out.base += b[j][lane];
    out.terms += static_cast<double>(-t[j][lane]);
  }
  out.mass += out.base;
}

void SumRun(const double* v, const double* r, std::int64_t n, SumState& out) {
  if (r != nullptr)
    sum_chains<true>(v, r, n, out);
  else
    sum_chains<false>(v, nullptr, n, out);
}

constexpr std::int64_t kInfinite = 0x7ff0000000000000;

/// Calls see(which of two, numbers) with some elements at a time; the last ones are filled up with one of them.
template <class See>
HWY_INLINE void for_lanes(const double* x, std::int64_t n, See see) {
  const D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    see(0, hn::LoadU(d, x + i));
    see(1, hn::LoadU(d, x + i + lanes));
  }
  if (i + lanes <= n) {
    see(0, hn::LoadU(d, x + i));
    i += lanes;
  }
  if (i == n) return;
  HWY_ALIGN double rest[HWY_MAX_BYTES / sizeof(double)];
  std::fill(std::copy(x + i, x + n, rest), rest + lanes, x[n - 1]);
  see(0, hn::Load(d, rest));
}

/// The extremes of what an eye sees of all numbers.
template <class Eye>
HWY_INLINE Extremes seen_by(const double* x, std::int64_t n) {
  Eye eyes[2];
  for_lanes(x, n, [&](int k, Lanes v) HWY_ATTR { eyes[k].see(v); });
  eyes[0].join(eyes[1]);
  Extremes out{kInfinity, 0, true, false};
  eyes[0].report(out);
  return out;
}

bool Measure(const double* v, const double* r, std::int64_t n, Extremes& out) {
  const Extremes seen = seen_by<Eyes>(v, n);
  out.finite = seen.finite;
  out.largest = seen.largest;
  out.smallest = seen.smallest;
  out.zero = seen.zero;                               // the grid stays
  if (out.smallest == kInfinity) out.smallest = 1.0;  // none is neither zero nor infinite
  if (!out.finite)                                    // the largest may be infinite, and NaN is none
    for (std::int64_t k = 0; k < n; ++k) out.largest = std::max(out.largest, std::fabs(v[k]));
  const Extremes radii = seen_by<OneEye>(r, r != nullptr ? n : 0);
  return radii.finite && radii.largest < 0x1p100;
}

/// The least lowest_bit() of a run: that of a number without mantissa bits is the number itself, that of zero infinite.
double LowestBit(const double* v, std::int64_t n) {
  const D d;
  const I i;
  const auto one = hn::Set(i, 1), infinite = hn::Set(i, kInfinite), mantissa = hn::Set(i, 0xfffffffffffff);
  hn::Vec<I> least[2] = {infinite, infinite};
  for_lanes(v, n, [&](int k, Lanes number) HWY_ATTR {
    const auto size = hn::BitCast(i, hn::Abs(number));
    const auto bare = hn::Eq(hn::And(size, mantissa), hn::Zero(i));
    const auto rest = hn::IfThenElse(bare, hn::Zero(i), hn::And(size, hn::Sub(size, one)));
    auto bit = hn::BitCast(i, hn::Sub(hn::BitCast(d, size), hn::BitCast(d, rest)));
    bit = hn::IfThenElse(hn::Lt(size, infinite), bit, hn::Zero(i));
    bit = hn::IfThenElse(hn::Eq(size, hn::Zero(i)), infinite, bit);
    least[k] = hn::Min(least[k], bit);  // they are not negative: as whole numbers they order alike
  });
  return __builtin_bit_cast(double, hn::GetLane(hn::MinOfLanes(i, hn::Min(least[0], least[1]))));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ampcheck::reference
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ampcheck::reference {

HWY_EXPORT(Evaluate);
HWY_EXPORT(AddTerms);
HWY_EXPORT(SettleChain);
HWY_EXPORT(SumRun);
HWY_EXPORT(Measure);
HWY_EXPORT(LowestBit);

void evaluate_block(const RuleContext& context, Primitive primitive, int n, std::span<const BlockIn> in, BlockOut out) {
  HWY_DYNAMIC_DISPATCH(Evaluate)(context, primitive, n, in, out);
}
void add_terms(const SumsIn& x, std::int64_t n, const SumsOut& sums) { HWY_DYNAMIC_DISPATCH(AddTerms)(x, n, sums); }
void settle_chain(const RuleContext& context, int n, const double* v, const SumsOut& sums, double* r) {
  HWY_DYNAMIC_DISPATCH(SettleChain)(context, n, v, sums, r);
}
void sum_run(const double* v, const double* r, std::int64_t n, SumState& out) {
  HWY_DYNAMIC_DISPATCH(SumRun)(v, r, n, out);
}
double lowest_bit(const double* v, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(LowestBit)(v, n); }
Extremes extremes_of(std::span<const double> values) {
  Extremes out;
  HWY_DYNAMIC_DISPATCH(Measure)(values.data(), nullptr, static_cast<std::int64_t>(values.size()), out);
  return out;
}
bool measure(Ball& ball) {
  return ball.narrow = HWY_DYNAMIC_DISPATCH(Measure)(ball.v.get(), ball.r.get(), ball.count(), ball.range);
}

}  // namespace ampcheck::reference
#endif  // HWY_ONCE
