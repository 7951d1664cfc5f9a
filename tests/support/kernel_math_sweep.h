// SPDX-License-Identifier: Apache-2.0
//
// Measures an fp32 function against fp64 libm over float bit patterns. Shared by the sampled test
// and the exhaustive one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <vector>

#include "kernels/math.h"

namespace ampcheck::kernels::test {

/// `got` maps a whole block, so that the vectorised loop is what is measured.
struct MathFunction {
  const char* name;
  void (*got)(const float* x, float* y, std::size_t count);
  double (*want)(double);
  int bound;      ///< ulps, from kernels/math.h
  int direction;  ///< +1 increasing, -1 decreasing
};
inline void PrintTo(const MathFunction& one, std::ostream* out) { *out << one.name; }

inline std::ostream& operator<<(std::ostream& out, const MathFunction& f) { return out << f.name; }

struct SweepResult {
  std::uint64_t compared = 0;
  std::uint64_t failures = 0;
  double max_ulp = 0.0;  ///< of the finite results, the allowance for the fp64 reference included
  float worst = 0.0f;
};

/// glibc documents at most 5 ulp for these functions in fp64; the composed references (sigmoid,
/// rsqrt) stay below 8. 16 fp64 ulps are 16 * 2^-29 fp32 ulps at most.
inline constexpr double kReferenceUlp = 16.0;

/// |got - want| in fp32 ulps of `want`; infinity stands for 2^128. A wrong NaN or sign is infinite.
inline double distance_ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0.0 : HUGE_VAL;
  if (std::isnan(got) || std::signbit(got) != std::signbit(want)) return HUGE_VAL;
  const double a = std::min(std::fabs(static_cast<double>(got)), 0x1p128);
  const double b = std::min(std::fabs(want), 0x1p128);
  // The exact value may lie just below b: take the ulp of the smaller binade at an edge.
  const double below = b * (1.0 - kReferenceUlp * 0x1p-52);
  std::uint64_t bits;
  std::memcpy(&bits, &below, sizeof bits);
  const std::int64_t exponent = static_cast<std::int64_t>(bits >> 52) - 1023;
  const std::int64_t quantum = std::max<std::int64_t>(exponent - 23, -149);
  const std::uint64_t inverse_bits = static_cast<std::uint64_t>(1023 - quantum) << 52;
  double inverse;
  std::memcpy(&inverse, &inverse_bits, sizeof inverse);
  return std::fabs(a - b) * inverse;
}

/// Upper bound of the error of `got` against the exact value that `want` is near to.
inline double error_ulps(float got, double want) {
  const double distance = distance_ulps(got, want);
  return distance == 0.0 ? 0.0 : distance + kReferenceUlp * 0x1p-29;
}

inline void check_block(const MathFunction& f, const float* x, std::size_t count, SweepResult& result) {
  constexpr std::size_t kBlock = 1024;
  float y[kBlock];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t n = std::min(kBlock, count - begin);
    f.got(x + begin, y, n);
    for (std::size_t i = 0; i < n; ++i) {
      const double error = error_ulps(y[i], f.want(static_cast<double>(x[begin + i])));
      if (error > f.bound) ++result.failures;
      if (error > result.max_ulp) {
        result.max_ulp = error;
        result.worst = x[begin + i];
      }
    }
  }
  result.compared += count;
}

inline SweepResult check_points(const MathFunction& f, const std::vector<float>& points) {
  SweepResult result;
  check_block(f, points.data(), points.size(), result);
  return result;
}

/// Every pattern in [first, last).
inline SweepResult check_range(const MathFunction& f, std::uint64_t first, std::uint64_t last) {
  constexpr std::uint64_t kChunk = 1u << 14;
  std::vector<float> x(kChunk);
  SweepResult result;
  for (std::uint64_t begin = first; begin < last; begin += kChunk) {
    const std::size_t n = static_cast<std::size_t>(std::min(kChunk, last - begin));
    for (std::size_t i = 0; i < n; ++i) x[i] = math::from_bits(static_cast<std::uint32_t>(begin + i));
    check_block(f, x.data(), n, result);
  }
  return result;
}

inline double sigmoid_reference(double x) {
  return x < 0.0 ? std::exp(x) / (1.0 + std::exp(x)) : 1.0 / (1.0 + std::exp(-x));
}

#define AMPCHECK_MATH_ENTRY(name, want, bound, direction)          \
  MathFunction {                                                   \
#name,                                                           \
        [](const float* x, float* y, std::size_t n) {                \
          for (std::size_t i = 0; i < n; ++i) y[i] = math::name(x[i]); \
        },                                                           \
        [](double x) { return want; }, math::bound, direction \
  }

/// pow at one exponent; direction 0 where it is not monotone over all floats.
#define AMPCHECK_POW_ENTRY(name, exponent, direction)                            \
  MathFunction {                                                                 \
#name,                                                                         \
        [](const float* x, float* y, std::size_t n) {                              \
          for (std::size_t i = 0; i < n; ++i) y[i] = math::pow(x[i], exponent##f); \
        },                                                                         \
        [](double x) { return std::pow(x, exponent); }, math::kPowUlp, direction \
  }

inline const std::vector<MathFunction>& math_functions() {
  static const std::vector<MathFunction> functions = {
      AMPCHECK_MATH_ENTRY(exp, std::exp(x), kExpUlp, 1),
      AMPCHECK_MATH_ENTRY(expm1, std::expm1(x), kExpm1Ulp, 1),
      AMPCHECK_MATH_ENTRY(log, std::log(x), kLogUlp, 1),
      AMPCHECK_MATH_ENTRY(log1p, std::log1p(x), kLog1pUlp, 1),
      AMPCHECK_MATH_ENTRY(tanh, std::tanh(x), kTanhUlp, 1),
      AMPCHECK_MATH_ENTRY(erf, std::erf(x), kErfUlp, 1),
      AMPCHECK_MATH_ENTRY(erfc, std::erfc(x), kErfcUlp, -1),
      AMPCHECK_MATH_ENTRY(sigmoid, sigmoid_reference(x), kSigmoidUlp, 1),
      AMPCHECK_MATH_ENTRY(rsqrt, 1.0 / std::sqrt(x), kRsqrtUlp, -1),
      AMPCHECK_POW_ENTRY(pow_2, 2.0, 0),
      AMPCHECK_POW_ENTRY(pow_3, 3.0, 1),
      AMPCHECK_POW_ENTRY(pow_minus_1, -1.0, 0),
      AMPCHECK_POW_ENTRY(pow_half, 0.5, 1),
      AMPCHECK_POW_ENTRY(pow_minus_2_75, -2.75, -1),
  };
  return functions;
}

#undef AMPCHECK_MATH_ENTRY
#undef AMPCHECK_POW_ENTRY

}  // namespace ampcheck::kernels::test
