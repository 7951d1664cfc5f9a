// SPDX-License-Identifier: Apache-2.0
//
// Elementary fp32 functions shared by the CPU and the CUDA kernels: one source, the same bits on
// both sides (a NaN is a NaN, its payload is the machine's).
//
// pow alone works in fp64, since its exponent multiplies the error of a logarithm.
//
// Every function is branch-free: integer exponent arithmetic, polynomials by Horner's rule with
// explicit fma, and selects, so that `for (i) y[i] = f(x[i])` vectorises. Built with contraction off
// (-ffp-contract=off, --fmad=false), round to nearest, subnormals kept.
//
// Coefficients: weighted minimax fits of the relative error of the result (Lawson iteration on
// Chebyshev nodes, 40 digits); from the lowest power up each coefficient is rounded to fp32 and the
// rest are fitted anew. The fit error is stated at each polynomial; tests/kernels/kernel_math_test.cpp and
// tests/exhaustive/kernel_math_exhaustive_test.cpp measure the whole error.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define AMPCHECK_HD __host__ __device__ __forceinline__
#else
#define AMPCHECK_HD inline __attribute__((always_inline))
#endif

namespace ampcheck::kernels::math {

// Bounds: |got - exact| <= bound * ulp(exact), ulp(v) = 2^max(floor(log2|v|) - 23, -149), for every
// float; infinity stands for 2^128, and zeros have the exact value's sign. Proven over all 2^32 floats.
inline constexpr int kExpUlp = 1;      // measured maximum 0.9814
inline constexpr int kExpm1Ulp = 2;    // measured maximum 1.4391
inline constexpr int kLogUlp = 1;      // measured maximum 0.8854
inline constexpr int kLog1pUlp = 2;    // measured maximum 1.4779
inline constexpr int kTanhUlp = 2;     // measured maximum 1.3049
inline constexpr int kErfUlp = 1;      // measured maximum 0.9630
inline constexpr int kErfcUlp = 3;     // measured maximum 2.5619
inline constexpr int kSigmoidUlp = 3;  // measured maximum 2.4019
inline constexpr int kRsqrtUlp = 2;    // measured maximum 1.4903
inline constexpr int kPowUlp = 1;      // of two arguments: sampled maximum 0.5000

// ---- bits -------------------------------------------------------------------------------------

AMPCHECK_HD std::uint32_t to_bits(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  return __builtin_bit_cast(std::uint32_t, x);
#endif
}

AMPCHECK_HD float from_bits(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}

/// `take ? yes : no` on both already computed values. On the host by masks: a compiler that honours
/// traps would move the arithmetic of one side into a branch, and the loop would not vectorise.
AMPCHECK_HD std::uint32_t select(bool take, std::uint32_t yes, std::uint32_t no) {
#if defined(__CUDA_ARCH__)
  return take ? yes : no;
#else
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(take);
  return (yes & mask) | (no & ~mask);
#endif
}

AMPCHECK_HD std::uint64_t to_bits(double x) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint64_t>(__double_as_longlong(x));
#else
  return __builtin_bit_cast(std::uint64_t, x);
#endif
}

AMPCHECK_HD double from_bits(std::uint64_t bits) {
#if defined(__CUDA_ARCH__)
  return __longlong_as_double(static_cast<long long>(bits));
#else
  return __builtin_bit_cast(double, bits);
#endif
}

AMPCHECK_HD double select(bool take, double yes, double no) {
#if defined(__CUDA_ARCH__)
  return take ? yes : no;
#else
  const std::uint64_t mask = std::uint64_t{0} - static_cast<std::uint64_t>(take);
  return from_bits((to_bits(yes) & mask) | (to_bits(no) & ~mask));
#endif
}

AMPCHECK_HD float select(bool take, float yes, float no) { return from_bits(select(take, to_bits(yes), to_bits(no))); }

AMPCHECK_HD float abs(float x) { return from_bits(to_bits(x) & 0x7fffffffu); }

AMPCHECK_HD float copysign(float magnitude, float sign) {
  return from_bits((to_bits(magnitude) & 0x7fffffffu) | (to_bits(sign) & 0x80000000u));
}

/// Clamps below (above) and keeps NaN.
AMPCHECK_HD float at_least(float x, float low) { return select(x < low, low, x); }
AMPCHECK_HD float at_most(float x, float high) { return select(x > high, high, x); }

inline constexpr std::uint32_t kInfinityBits = 0x7f800000u;
inline constexpr std::uint32_t kNanBits = 0x7fc00000u;

// ---- correctly rounded primitives ---------------------------------------------------------------

/// x * y + z rounded once.
AMPCHECK_HD float fma(float x, float y, float z) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(x, y, z);
#else
  return __builtin_fmaf(x, y, z);
#endif
}

AMPCHECK_HD double fma(double x, double y, double z) {
#if defined(__CUDA_ARCH__)
  return __fma_rn(x, y, z);
#else
  return __builtin_fma(x, y, z);
#endif
}

AMPCHECK_HD double divide(double x, double y) {
#if defined(__CUDA_ARCH__)
  return __ddiv_rn(x, y);
#else
  return x / y;
#endif
}

AMPCHECK_HD float divide(float x, float y) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(x, y);
#else
  return x / y;
#endif
}

AMPCHECK_HD float sqrt(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

/// 1 / sqrt(x), both steps rounded: +-0 gives +-inf, x < 0 NaN.
AMPCHECK_HD float rsqrt(float x) { return divide(1.0f, sqrt(x)); }

// ---- shared parts -------------------------------------------------------------------------------

namespace detail {

// ln 2 = high + low; high has 15 bits, so that n * high is exact for |n| < 512.
inline constexpr float kLn2High = 0x1.62e4p-1f;
inline constexpr float kLn2Low = 0x1.7f7d1cp-20f;
inline constexpr float kLog2E = 0x1.715476p+0f;

/// 2^n for n in [-126, 127]; n is a two's complement number.
AMPCHECK_HD float pow2(std::uint32_t n) { return from_bits((n + 127u) << 23); }

/// value * 2^n for n in [-252, 254]; with value near 1 only the second product rounds.
AMPCHECK_HD float scale(float value, std::uint32_t n) {
  const std::uint32_t half = static_cast<std::uint32_t>(static_cast<std::int32_t>(n) >> 1);
  return value * pow2(half) * pow2(n - half);
}

/// exp(x) = 2^n (1 + q), n a two's complement integer, |q| < 0.42.
struct ExpParts {
  std::uint32_t n;
  float q;
};

/// exp(x + tail) for |x| < 2^20 and |tail| <= ulp(x). q = expm1(r) on |r| <= 0.3467, fit error
/// 2^-31 relative to expm1(r).
AMPCHECK_HD ExpParts exp_parts(float x, float tail) {
  constexpr float kMagic = 0x1.8p+23f;  // adding it rounds to an integer, left in the low bits
  const float shifted = fma(x, kLog2E, kMagic);
  const float n = shifted - kMagic;
  const float r = fma(n, -kLn2Low, fma(n, -kLn2High, x)) + tail;
  float p = 0x1.9e6f00p-13f;
  p = fma(p, r, 0x1.6d3a3ep-10f);
  p = fma(p, r, 0x1.1112dap-7f);
  p = fma(p, r, 0x1.5554f8p-5f);
  p = fma(p, r, 0x1.555554p-3f);
  p = fma(p, r, 0.5f);
  return {to_bits(shifted) - to_bits(kMagic), fma(p, r * r, r)};
}

AMPCHECK_HD ExpParts exp_parts(float x) { return exp_parts(x, -0.0f); }

/// e * ln 2 + log(1 + f) for an integer e and f in [sqrt(1/2) - 1, sqrt(2) - 1]. log1p is
/// f - f^2/2 + f^3 p(f), fit error 2^-30.3 relative to log1p(f).
AMPCHECK_HD float log_sum(float e, float f) {
  float p = 0x1.13c042p-4f;
  p = fma(p, f, -0x1.dda0b0p-4f);
  p = fma(p, f, 0x1.e6dff8p-4f);
  p = fma(p, f, -0x1.fc3d40p-4f);
  p = fma(p, f, 0x1.233abep-3f);
  p = fma(p, f, -0x1.555b90p-3f);
  p = fma(p, f, 0x1.99a47ap-3f);
  p = fma(p, f, -0x1.000008p-2f);
  p = fma(p, f, 0x1.555548p-2f);
  const float curve = fma(p, f, -0.5f) * (f * f);
  // Two-sum: |e ln 2| >= |f| or e = 0, so the error of the large sum is known exactly.
  const float high = e * kLn2High;
  const float sum = high + f;
  const float error = (high - sum) + f;
  return sum + (error + fma(e, kLn2Low, curve));
}

/// Splits a positive normal float: bits of 2^e (as an offset, e << 23) with mantissa in
/// [sqrt(1/2), sqrt(2)).
AMPCHECK_HD std::uint32_t exponent_offset(std::uint32_t bits) {
  constexpr std::uint32_t kSqrtHalf = 0x3f3504f3u;
  return (bits - kSqrtHalf) & 0xff800000u;
}

AMPCHECK_HD float exponent_value(std::uint32_t offset) {
  return static_cast<float>(static_cast<std::int32_t>(offset) >> 23);
}

/// The values of log at the edge of its domain: x = 0, x < 0, infinite or NaN; else `inside`.
AMPCHECK_HD float log_edges(float x, float inside) {
  const float upper = select(to_bits(x) >= kInfinityBits, x, inside);  // +inf, NaN, all negatives
  const float zero = select(x == 0.0f, from_bits(0x80000000u | kInfinityBits), upper);
  return select(x < 0.0f, from_bits(kNanBits), zero);
}

// Adding it rounds to an integer, which is left in the low bits.
inline constexpr double kWholeMagic = 0x1.8p+52;

/// log2(a) of a positive float in fp64: a = 2^e m with m in [sqrt(1/2), sqrt(2)), and log m = 2 atanh(s) by its series
/// s + s^3/3 + ... + s^19/19, which leaves 2^-55 of it for |s| = |m - 1| / (m + 1) <= 0.1716.
AMPCHECK_HD double log2_of(float a) {
  constexpr std::uint64_t kSqrtHalf = 0x3fe6a09e667f3bcdu;
  const std::uint64_t bits = to_bits(static_cast<double>(a));  // of a subnormal float too a normal number
  const std::uint64_t offset = (bits - kSqrtHalf) & 0xfff0000000000000u;
  const double e = static_cast<double>(static_cast<std::int64_t>(offset) >> 52);
  const double m = from_bits(bits - offset);
  const double s = divide(m - 1.0, m + 1.0);
  const double q = s * s;
  double p = 1.0 / 19;
  p = fma(p, q, 1.0 / 17);
  p = fma(p, q, 1.0 / 15);
  p = fma(p, q, 1.0 / 13);
  p = fma(p, q, 1.0 / 11);
  p = fma(p, q, 1.0 / 9);
  p = fma(p, q, 1.0 / 7);
  p = fma(p, q, 1.0 / 5);
  p = fma(p, q, 1.0 / 3);
  p = fma(p, q, 1.0);
  constexpr double kTwoLog2E = 0x1.71547652b82fep+1;
  return fma(s * p, kTwoLog2E, e);
}

/// 2^t for |t| <= 1000 in fp64: exp(z) by its series to z^12/12!, which leaves 2^-52 for |z| <= ln 2 / 2.
AMPCHECK_HD double exp2_of(double t) {
  constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  const double shifted = t + kWholeMagic;
  const double z = (t - (shifted - kWholeMagic)) * kLn2;
  double p = 1.0 / 479001600;
  p = fma(p, z, 1.0 / 39916800);
  p = fma(p, z, 1.0 / 3628800);
  p = fma(p, z, 1.0 / 362880);
  p = fma(p, z, 1.0 / 40320);
  p = fma(p, z, 1.0 / 5040);
  p = fma(p, z, 1.0 / 720);
  p = fma(p, z, 1.0 / 120);
  p = fma(p, z, 1.0 / 24);
  p = fma(p, z, 1.0 / 6);
  p = fma(p, z, 0.5);
  p = fma(p, z, 1.0);
  p = fma(p, z, 1.0);
  return p * from_bits((to_bits(shifted) - to_bits(kWholeMagic) + 1023u) << 52);
}

AMPCHECK_HD bool is_whole(double x) { return (x + kWholeMagic) - kWholeMagic == x; }

}  // namespace detail

// ---- functions ----------------------------------------------------------------------------------

/// e^x. exp(0) = 1, exp(-inf) = 0; subnormal results are rounded once more, from 2^n (1 + q).
AMPCHECK_HD float exp(float x) {
  const float clamped = at_most(at_least(x, -104.0f), 89.0f);
  const detail::ExpParts parts = detail::exp_parts(clamped);
  return detail::scale(1.0f + parts.q, parts.n);
}

/// e^x - 1, with the sign of x, exact at +-0.
AMPCHECK_HD float expm1(float x) {
  const float clamped = at_most(at_least(x, -18.0f), 89.0f);
  const detail::ExpParts parts = detail::exp_parts(clamped);
  const float half = detail::pow2(parts.n - 1u);  // half the scale: 2^128 is not a float
  const float scaled = 2.0f * fma(half, parts.q, half - 0.5f);
  return copysign(select(parts.n == 0u, parts.q, scaled), x);
}

/// Natural logarithm: log(+-0) = -inf, log(x < 0) = NaN.
AMPCHECK_HD float log(float x) {
  const bool subnormal = x < 0x1p-126f;
  const std::uint32_t bits = to_bits(select(subnormal, x * 0x1p23f, x));
  const std::uint32_t offset = detail::exponent_offset(bits);
  const float e = detail::exponent_value(offset) - select(subnormal, 23.0f, 0.0f);
  return detail::log_edges(x, detail::log_sum(e, from_bits(bits - offset) - 1.0f));
}

/// log(1 + x), with the sign of x: log1p(-1) = -inf, log1p(x < -1) = NaN.
AMPCHECK_HD float log1p(float x) {
  const float sum = 1.0f + x;
  const std::uint32_t offset = detail::exponent_offset(to_bits(sum));
  // (1 + x) 2^-e - 1 = x 2^-e + (2^-e - 1): one rounding, none of the bits that 1 + x lost.
  const float inverse = from_bits(0x40800000u - offset);  // 4 * 2^-e, normal for every e <= 128
  const float f = fma(0.25f * x, inverse, fma(0.25f, inverse, -1.0f));
  const float inside = detail::log_sum(detail::exponent_value(offset), f);
  const float value = detail::log_edges(sum, inside);
  return select(abs(x) < 0x1p-24f, x, value);
}

/// Hyperbolic tangent, exactly odd.
AMPCHECK_HD float tanh(float x) {
  const float a = abs(x);
  // x + x^3 p(x^2) on [0, 0.5625], fit error 2^-29.4.
  const float square = a * a;
  float p = -0x1.94be4ep-8f;
  p = fma(p, square, 0x1.582240p-6f);
  p = fma(p, square, -0x1.b90758p-5f);
  p = fma(p, square, 0x1.110c64p-3f);
  p = fma(p, square, -0x1.555548p-2f);
  const float small = fma(p * square, a, a);
  // 1 - 2 / (exp(2a) + 1); from 10 on the result is 1.
  const detail::ExpParts parts = detail::exp_parts(2.0f * at_most(a, 10.0f));
  const float power = detail::pow2(parts.n);
  const float large = 1.0f - divide(2.0f, fma(power, parts.q, power + 1.0f));
  return copysign(select(a < 0.5625f, small, large), x);
}

/// Error function, exactly odd.
AMPCHECK_HD float erf(float x) {
  const float a = abs(x);
  // x + x p(x^2) on [0, 0.9375], fit error 2^-30.
  const float square = a * a;
  float p = 0x1.4f991ep-14f;
  p = fma(p, square, -0x1.a614eap-11f);
  p = fma(p, square, 0x1.544ad6p-8f);
  p = fma(p, square, -0x1.b80122p-6f);
  p = fma(p, square, 0x1.ce2d64p-4f);
  p = fma(p, square, -0x1.812740p-2f);
  p = fma(p, square, 0x1.06eba8p-3f);
  const float small = fma(p, a, a);
  // 1 - exp(g(a)), g = log(erfc) on [0.9375, 3.925], fit error 2^-29.4 of erf; beyond it erf is 1.
  const float b = at_most(a, 3.925f);
  float g = 0x1.96b044p-13f;
  g = fma(g, b, -0x1.8c475ap-9f);
  g = fma(g, b, 0x1.6adcd8p-6f);
  g = fma(g, b, -0x1.a90640p-4f);
  g = fma(g, b, -0x1.4655a8p-1f);
  g = fma(g, b, -0x1.20a7eap+0f);
  g = fma(g, b, -0x1.d44832p-13f);
  const detail::ExpParts parts = detail::exp_parts(g);
  const float power = detail::pow2(parts.n);
  const float large = fma(-power, parts.q, 1.0f - power);
  return copysign(select(a < 0.9375f, small, large), x);
}

/// Complementary error function 1 - erf(x), relative accuracy in the right tail down to subnormals.
AMPCHECK_HD float erfc(float x) {
  const float a = at_most(abs(x), 10.5f);
  // erfc(a) = exp(-a^2) w p(w - 15/32), w = 1 / (1 + 3a/8); fit error 2^-28.2 on [0, 10.1].
  const float denominator = fma(0.375f, a, 1.0f);
  const float w = divide(1.0f, denominator);
  const float v = w - 0.46875f;
  float p = -0x1.fd8d5ap-6f;
  p = fma(p, v, 0x1.48b124p-5f);
  p = fma(p, v, 0x1.9c96a4p-5f);
  p = fma(p, v, -0x1.f33a20p-5f);
  p = fma(p, v, -0x1.09a47cp-3f);
  p = fma(p, v, 0x1.054622p-6f);
  p = fma(p, v, 0x1.554088p-2f);
  p = fma(p, v, 0x1.3a4858p-1f);
  p = fma(p, v, 0x1.642926p-1f);
  p = fma(p, v, 0x1.292f92p-1f);
  p = fma(p, v, 0x1.846958p-2f);
  // The relative error of w (rounded sum, rounded quotient) times the condition of w p, which is
  // within 0.05 of 0.67 + 2.33 w, joins the exponent, as does the error of a^2.
  const float lost = fma(0.375f, a, 1.0f - denominator);
  const float error = fma(-lost, w, fma(-denominator, w, 1.0f));
  const float square = a * a;
  const float tail_error = fma(error, fma(2.33f, w, 0.67f), -fma(a, a, -square));
  const detail::ExpParts parts = detail::exp_parts(-square, tail_error);
  const float product = w * p;
  const float tail = detail::scale(fma(product, parts.q, product), parts.n);
  return select(x < 0.0f, 2.0f - tail, tail);
}

/// 1 / (1 + exp(-x)): as exp(x) / (1 + exp(x)) left of 0, so that the tail keeps its digits.
AMPCHECK_HD float sigmoid(float x) {
  const float e = exp(-abs(x));
  return divide(select(x < 0.0f, e, 1.0f), 1.0f + e);
}

/// x^p as C has it: 1 for p = 0 and for x = 1, NaN for x < 0 unless p is a whole number, the sign of x for odd p.
AMPCHECK_HD float pow(float x, float p) {
  const float a = abs(x);
  const bool zero = a == 0.0f, infinite = to_bits(a) == kInfinityBits;
  const double size = detail::log2_of(a);
  const double huge = static_cast<double>(from_bits(kInfinityBits));
  const double logarithm = select(zero, -huge, select(infinite, huge, select(a == a, size, static_cast<double>(a))));
  const double power = static_cast<double>(p) * logarithm;
  const double clamped = select(power < -200.0, -200.0, select(power > 200.0, 200.0, power));
  const float value = static_cast<float>(detail::exp2_of(clamped));  // 2^-200 is 0 and 2^200 infinite
  const bool whole = detail::is_whole(static_cast<double>(p));
  const bool odd = whole & !detail::is_whole(0.5 * static_cast<double>(p));
  const float with_sign = select(odd, copysign(value, x), value);
  const float inside = select((x < 0.0f) & !infinite & !whole, from_bits(kNanBits), with_sign);
  const bool one = (p == 0.0f) | (x == 1.0f) | ((a == 1.0f) & (to_bits(abs(p)) == kInfinityBits));
  return select(one, 1.0f, inside);
}

}  // namespace ampcheck::kernels::math
