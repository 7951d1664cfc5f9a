// SPDX-License-Identifier: Apache-2.0
// Values alone, without radii: the loops of Radii::uniform, compiled once per SIMD target. Each gives the bits of the
// value in the rules of ball_blocks.cpp and sees the extremes of what it writes while it is in registers.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "reference/ball/ball_rules.h"
#include "src/error.h"

#ifndef HWY_DISABLE_PCLMUL_AES
#define HWY_DISABLE_PCLMUL_AES  // as in ball_blocks.cpp
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/ball/uniform_blocks.cpp"
#include <hwy/foreach_target.h>  // must precede highway.h
#include <hwy/highway.h>

#include "reference/ball/eyes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ampcheck::reference {
namespace HWY_NAMESPACE {
namespace {

/// Lanes of an operand; the last ones are filled up with its last number.
template <bool repeats>
struct Operand {
  const double* p;
  HWY_INLINE Lanes at(std::size_t k) const {
    const D d;
    return repeats ? hn::Set(d, *p) : hn::LoadU(d, p + k);
  }
  HWY_INLINE Lanes last(std::size_t k, std::size_t n) const {
    const D d;
    if (repeats) return hn::Set(d, *p);
    HWY_ALIGN double rest[HWY_MAX_BYTES / sizeof(double)];
    std::fill(std::copy(p + k, p + n, rest), rest + hn::Lanes(d), p[n - 1]);
    return hn::Load(d, rest);
  }
};

HWY_INLINE void put_last(Lanes v, double* out, std::size_t n) {
  const D d;
  HWY_ALIGN double rest[HWY_MAX_BYTES / sizeof(double)];
  hn::Store(v, d, rest);
  std::copy(rest, rest + n, out);
}

template <class See, class F, class... Operands>
void loop(std::size_t n, double* out, Extremes& seen, F f, Operands... in) {
  const D d;
  See eyes, second, third, fourth;  // each waits for what it saw last
  const auto step = [&](std::size_t k, See& by) HWY_ATTR {
    const Lanes v = f(in.at(k)...);
    hn::StoreU(v, d, out + k);
    by.see(v);
  };
  const std::size_t lanes = hn::Lanes(d);
  std::size_t k = 0;
  for (; k + 4 * lanes <= n; k += 4 * lanes) {
    step(k, eyes);
    step(k + lanes, second);
    step(k + 2 * lanes, third);
    step(k + 3 * lanes, fourth);
  }
  for (; k + lanes <= n; k += lanes) step(k, eyes);
  if (k < n) {
    const Lanes v = f(in.last(k, n)...);
    put_last(v, out + k, n - k);
    eyes.see(v);
  }
  second.join(third);
  eyes.join(fourth);
  eyes.join(second);
  eyes.report(seen);
}

template <class See = Eyes, class F>
void unary(std::size_t n, const ValuesIn* in, double* out, Extremes& seen, F f) {
  loop<See>(n, out, seen, f, Operand<false>{in[0].p});
}

template <class See = Eyes, class F>
void binary(std::size_t n, const ValuesIn* in, double* out, Extremes& seen, F f) {
  if (in[0].repeats && in[1].repeats) return loop<See>(n, out, seen, f, Operand<true>{in[0].p}, Operand<true>{in[1].p});
  if (in[0].repeats) return loop<See>(n, out, seen, f, Operand<true>{in[0].p}, Operand<false>{in[1].p});
  if (in[1].repeats) return loop<See>(n, out, seen, f, Operand<false>{in[0].p}, Operand<true>{in[1].p});
  loop<See>(n, out, seen, f, Operand<false>{in[0].p}, Operand<false>{in[1].p});
}

void See(const double* v, std::size_t n, Extremes& seen) {
  const D d;
  Eyes eyes;
  std::size_t k = 0;
  for (; k + hn::Lanes(d) <= n; k += hn::Lanes(d)) eyes.see(hn::LoadU(d, v + k));
  if (k < n) eyes.see(Operand<false>{v}.last(k, n));
  eyes.report(seen);
}

/// A comparison of two, as 0 or 1, and the smallest |a - b|.
template <class F>
void compare(std::size_t n, const ValuesIn* in, double* out, Extremes& seen, double& gap, F f) {
  for (std::size_t k = 0; k < n; ++k) {
    const double a = in[0].p[in[0].repeats ? 0 : k], b = in[1].p[in[1].repeats ? 0 : k];
    gap = std::min(gap, std::fabs(a - b));
    out[k] = f(a, b) ? 1.0 : 0.0;
  }
  See(out, n, seen);
}

/// f of all numbers, block by block: they are seen while in the nearest cache.
void apply(void (*f)(const double*, double*, int), std::size_t n, const ValuesIn* in, double* out, Extremes& seen) {
  for (std::size_t k = 0; k < n; k += kBlock) {
    const std::size_t step = std::min<std::size_t>(kBlock, n - k);
    f(in[0].p + k, out + k, static_cast<int>(step));
    See(out + k, step, seen);
  }
}

void vector_sigmoid(const double* x, double* y, int n) {
  for (int k = 0; k < n; ++k) y[k] = -x[k];
  vector_exp(y, y, n);
  for (int k = 0; k < n; ++k) y[k] = 1 / (1 + y[k]);
}

void powers(std::size_t n, const ValuesIn* in, double* out, Extremes& seen) {
  for (std::size_t k = 0; k < n; ++k) out[k] = std::pow(in[0].p[in[0].repeats ? 0 : k], in[1].p[in[1].repeats ? 0 : k]);
  See(out, n, seen);
}

void choose(std::size_t n, const ValuesIn* in, double* out, Extremes& seen) {
  for (std::size_t k = 0; k < n; ++k) {
    const auto at = [&](int which) { return in[which].p[in[which].repeats ? 0 : k]; };
    out[k] = at(0) != 0 ? at(1) : at(2);
  }
  See(out, n, seen);
}

/// Functions of finite operands.
void Functions(Primitive primitive, std::size_t n, const ValuesIn* in, double* out, Extremes& seen) {
  switch (primitive) {
    case Primitive::exp: return apply(vector_exp, n, in, out, seen);
    case Primitive::expm1: return apply(vector_expm1, n, in, out, seen);
    case Primitive::log: return apply(vector_log, n, in, out, seen);
    case Primitive::log1p: return apply(vector_log1p, n, in, out, seen);
    case Primitive::tanh: return apply(vector_tanh, n, in, out, seen);
    case Primitive::erf: return apply(vector_erf, n, in, out, seen);
    case Primitive::erfc: return apply(vector_erfc, n, in, out, seen);
    case Primitive::sin: return apply(vector_sin, n, in, out, seen);
    case Primitive::cos: return apply(vector_cos, n, in, out, seen);
    case Primitive::sigmoid: return apply(vector_sigmoid, n, in, out, seen);
    default: throw Error(std::string("[ball] no elementwise value for ") + name(primitive));
  }
}

/// Of finite operands, or whoever called gives up: they have been seen before. A sum or product of such is no NaN.
void Values(Primitive primitive, std::size_t n, const ValuesIn* in, double* out, Extremes& seen, double& gap) {
  const D d;
  switch (primitive) {
    case Primitive::add:
      return binary<NumbersEyes>(n, in, out, seen, [](Lanes a, Lanes b) HWY_ATTR { return hn::Add(a, b); });
    case Primitive::sub:
      return binary<NumbersEyes>(n, in, out, seen, [](Lanes a, Lanes b) HWY_ATTR { return hn::Sub(a, b); });
    case Primitive::mul:
      return binary<NumbersEyes>(n, in, out, seen, [](Lanes a, Lanes b) HWY_ATTR { return hn::Mul(a, b); });
    case Primitive::div: return binary(n, in, out, seen, [](Lanes a, Lanes b) HWY_ATTR { return hn::Div(a, b); });
    case Primitive::neg: return unary(n, in, out, seen, [](Lanes a) HWY_ATTR { return hn::Neg(a); });
    case Primitive::square: return unary(n, in, out, seen, [](Lanes a) HWY_ATTR { return hn::Mul(a, a); });
    case Primitive::sqrt: return unary(n, in, out, seen, [](Lanes a) HWY_ATTR { return hn::Sqrt(a); });
    case Primitive::rsqrt:
      return unary(n, in, out, seen, [d](Lanes a) HWY_ATTR { return hn::Div(hn::Set(d, 1.0), hn::Sqrt(a)); });
    case Primitive::abs: return unary(n, in, out, seen, [](Lanes a) HWY_ATTR { return hn::Abs(a); });
    case Primitive::sign:
      return unary(n, in, out, seen, [d](Lanes a) HWY_ATTR {
        return hn::IfThenElse(hn::Eq(a, hn::Zero(d)), hn::Zero(d), hn::CopySign(hn::Set(d, 1.0), a));
      });
    case Primitive::maximum:
      return binary(n, in, out, seen, [](Lanes a, Lanes b) HWY_ATTR { return hn::IfThenElse(hn::Gt(a, b), a, b); });
    case Primitive::where: return choose(n, in, out, seen);
    case Primitive::pow: return powers(n, in, out, seen);
    case Primitive::less: return compare(n, in, out, seen, gap, [](double a, double b) { return a < b; });
    case Primitive::less_equal: return compare(n, in, out, seen, gap, [](double a, double b) { return a <= b; });
    case Primitive::equal: return compare(n, in, out, seen, gap, [](double a, double b) { return a == b; });
    default: return Functions(primitive, n, in, out, seen);
  }
}

/// As above: only a quotient can be NaN.
void Products(Primitive primitive, std::size_t n, const ValuesIn* in, double* out, Extremes& seen) {
  if (primitive == Primitive::mul)
    binary<NumbersEye>(n, in, out, seen, [](Lanes a, Lanes b) HWY_ATTR { return hn::Mul(a, b); });
  else if (primitive == Primitive::div)
    binary<OneEye>(n, in, out, seen, [](Lanes a, Lanes b) HWY_ATTR { return hn::Div(a, b); });
  else
    unary<NumbersEye>(n, in, out, seen, [](Lanes a) HWY_ATTR { return hn::Mul(a, a); });
}

struct Blind {
  HWY_INLINE void see(Lanes) {}
  HWY_INLINE void join(const Blind&) {}
  HWY_INLINE void report(Extremes&) const {}
};

void Weigh(std::size_t n, const ValuesIn* in, double a, double b, double c, double* out) {
  const D d;
  const auto va = hn::Set(d, a), vb = hn::Set(d, b), vc = hn::Set(d, c);
  Extremes unused;
  binary<Blind>(n, in, out, unused, [=](Lanes x, Lanes y) HWY_ATTR {
    return hn::Add(hn::Add(hn::Mul(va, hn::Abs(x)), hn::Mul(vb, hn::Abs(y))), vc);
  });
}

/// sums[k] += v[k], mass[k] += |v[k]| for each of some rows in turn, their sums in registers.
template <int kRows>
void add_rows_of(const double* v, std::size_t n, double* sums, double* mass) {
  const D d;
  std::size_t k = 0;
  for (; k + hn::Lanes(d) <= n; k += hn::Lanes(d)) {
    Lanes sum = hn::LoadU(d, sums + k), size = hn::LoadU(d, mass + k);
    for (std::size_t row = 0; row < kRows; ++row) {
      const Lanes x = hn::LoadU(d, v + row * n + k);
      sum = hn::Add(sum, x);
      size = hn::Add(size, hn::Abs(x));
    }
    hn::StoreU(sum, d, sums + k);
    hn::StoreU(size, d, mass + k);
  }
  for (; k < n; ++k)
    for (std::size_t row = 0; row < kRows; ++row) {
      sums[k] += v[row * n + k];
      mass[k] += std::fabs(v[row * n + k]);
    }
}

void AddValues(const double* v, std::size_t rows, std::size_t n, double* sums, double* mass) {
  for (; rows >= 4; rows -= 4, v += 4 * n) add_rows_of<4>(v, n, sums, mass);
  for (; rows > 0; --rows, v += n) add_rows_of<1>(v, n, sums, mass);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ampcheck::reference
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ampcheck::reference {

HWY_EXPORT(Values);
HWY_EXPORT(Products);
HWY_EXPORT(See);
HWY_EXPORT(AddValues);
HWY_EXPORT(Weigh);

void evaluate_values(Primitive primitive, std::size_t n, const ValuesIn* in, double* out, Extremes& seen, double& gap) {
  HWY_DYNAMIC_DISPATCH(Values)(primitive, n, in, out, seen, gap);
}
void evaluate_products(Primitive primitive, std::size_t n, const ValuesIn* in, double* out, Extremes& seen) {
  HWY_DYNAMIC_DISPATCH(Products)(primitive, n, in, out, seen);
}
void see_values(const double* v, std::size_t n, Extremes& seen) { HWY_DYNAMIC_DISPATCH(See)(v, n, seen); }
void add_values(const double* v, std::size_t rows, std::size_t n, double* sums, double* mass) {
  HWY_DYNAMIC_DISPATCH(AddValues)(v, rows, n, sums, mass);
}
void weigh_magnitudes(std::size_t n, const ValuesIn* in, double a, double b, double c, double* out) {
  HWY_DYNAMIC_DISPATCH(Weigh)(n, in, a, b, c, out);
}

}  // namespace ampcheck::reference
#endif  // HWY_ONCE
