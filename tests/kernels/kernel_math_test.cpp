// SPDX-License-Identifier: Apache-2.0
// The ulp bounds of kernels/math.h on a sample: a stride over bit patterns, every binade edge, the
// seams of the algorithms and the special values. All floats: kernel_math_exhaustive_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/kernel_math_sweep.h"

namespace ampcheck::kernels::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void add_with_neighbours(std::vector<float>& points, float x, int reach) {
  const std::uint32_t bits = math::to_bits(math::abs(x));
  for (int i = -reach; i <= reach; ++i) {
    const std::uint32_t near = bits + static_cast<std::uint32_t>(i);
    if (near >= 0x80000000u) continue;
    points.push_back(math::from_bits(near));
    points.push_back(-math::from_bits(near));
  }
}

/// Every 257th pattern where 2^-26 <= |x| < 2^8 (the functions bend there), every 4099th elsewhere.
std::vector<float> make_strided_points() {
  std::vector<float> points;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32);) {
    const float x = math::from_bits(static_cast<std::uint32_t>(bits));
    points.push_back(x);
    const float a = math::abs(x);
    bits += a >= 0x1p-26f && a < 0x1p8f ? 257 : 4099;
  }
  return points;
}

std::vector<float> make_edge_points() {
  std::vector<float> points = {0.0f, -0.0f, kInf, -kInf, kNan, -kNan};
  for (std::uint32_t exponent = 0; exponent < 255; ++exponent) {
    add_with_neighbours(points, math::from_bits(exponent << 23), 4);
    add_with_neighbours(points, math::from_bits((exponent << 23) | 0x3504f3u), 4);  // sqrt(2) 2^e
  }
  for (int half_steps = -310; half_steps <= 270; ++half_steps)  // where exp changes its 2^n
    add_with_neighbours(points, static_cast<float>(half_steps * 0.34657359027997264), 4);
  for (const float seam : {0.5625f, 0.9375f, 3.925f, 10.5f, 10.0f, 18.0f, 89.0f, 104.0f, 1.0f, 88.722839f, 87.336548f,
                           103.97208f, 9.19455f, 10.054f})
    add_with_neighbours(points, seam, 64);
  return points;
}

const std::vector<float>& strided_points() {
  static const std::vector<float> points = make_strided_points();
  return points;
}

const std::vector<float>& edge_points() {
  static const std::vector<float> points = make_edge_points();
  return points;
}

const MathFunction& function(const std::string& name) {
  for (const MathFunction& f : math_functions())
    if (name == f.name) return f;
  throw std::out_of_range(name);
}

class KernelMath : public testing::TestWithParam<MathFunction> {};

TEST_P(KernelMath, SampledFloatsAreWithinTheBound) {
  const SweepResult result = check_points(GetParam(), strided_points());
  EXPECT_GT(result.compared, 2'000'000u);
  EXPECT_EQ(result.failures, 0u) << result.max_ulp << " ulp at " << result.worst;
}

TEST_P(KernelMath, EdgesAndSeamsAreWithinTheBound) {
  const SweepResult result = check_points(GetParam(), edge_points());
  EXPECT_GT(result.compared, 10'000u);
  EXPECT_EQ(result.failures, 0u) << result.max_ulp << " ulp at " << result.worst;
}

/// Largest step in the wrong direction between neighbouring floats, in ulps of the second value.
double worst_backward_step(const MathFunction& f, const std::vector<float>& points) {
  double worst = 0.0;
  for (const float x : points) {
    const float pair[2] = {x, std::nextafter(x, kInf)};
    if (pair[0] == 0.0f || pair[1] == 0.0f) continue;  // rsqrt jumps there
    float y[2];
    f.got(pair, y, 2);
    const double step = (static_cast<double>(y[1]) - static_cast<double>(y[0])) * f.direction;
    if (step < 0.0) worst = std::max(worst, distance_ulps(y[0], static_cast<double>(y[1])));
  }
  return worst;
}

TEST_P(KernelMath, NeighboursNeverStepBackBeyondTheBound) {
  std::vector<float> points = edge_points();
  const std::vector<float>& strided = strided_points();
  for (std::size_t i = 0; i < strided.size(); i += 16) points.push_back(strided[i]);
  const double worst = worst_backward_step(GetParam(), points);
  EXPECT_LE(worst, GetParam().bound);
}

INSTANTIATE_TEST_SUITE_P(, KernelMath, testing::ValuesIn(math_functions()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(KernelMathValues, SpecialValuesAreExact) {
  const auto bits = [](float x) { return math::to_bits(x); };
  EXPECT_EQ(bits(math::exp(0.0f)), bits(1.0f));
  EXPECT_EQ(bits(math::exp(-0.0f)), bits(1.0f));
  EXPECT_EQ(bits(math::exp(-kInf)), bits(0.0f));
  EXPECT_EQ(math::exp(kInf), kInf);
  EXPECT_EQ(math::exp(89.0f), kInf);
  EXPECT_EQ(bits(math::exp(-103.9f)), 1u);  // the smallest subnormal
  EXPECT_EQ(bits(math::exp(-104.0f)), 0u);
  EXPECT_EQ(bits(math::expm1(-0.0f)), bits(-0.0f));
  EXPECT_EQ(math::expm1(-kInf), -1.0f);
  EXPECT_EQ(math::expm1(kInf), kInf);
  EXPECT_EQ(bits(math::log(1.0f)), bits(0.0f));
  EXPECT_EQ(math::log(0.0f), -kInf);
  EXPECT_EQ(math::log(-0.0f), -kInf);
  EXPECT_EQ(math::log(kInf), kInf);
  EXPECT_TRUE(std::isnan(math::log(-0x1p-149f)));
  EXPECT_TRUE(std::isnan(math::log(-kInf)));
  EXPECT_EQ(bits(math::log1p(-0.0f)), bits(-0.0f));
  EXPECT_EQ(math::log1p(-1.0f), -kInf);
  EXPECT_TRUE(std::isnan(math::log1p(-1.0000001f)));
  EXPECT_EQ(math::log1p(kInf), kInf);
  EXPECT_EQ(math::tanh(kInf), 1.0f);
  EXPECT_EQ(bits(math::tanh(-0.0f)), bits(-0.0f));
  EXPECT_EQ(math::erf(-kInf), -1.0f);
  EXPECT_EQ(bits(math::erf(-0.0f)), bits(-0.0f));
  EXPECT_EQ(math::erfc(-kInf), 2.0f);
  EXPECT_EQ(bits(math::erfc(kInf)), bits(0.0f));
  EXPECT_EQ(math::erfc(0.0f), 1.0f);
  EXPECT_EQ(math::sigmoid(0.0f), 0.5f);
  EXPECT_EQ(math::sigmoid(kInf), 1.0f);
  EXPECT_EQ(bits(math::sigmoid(-kInf)), bits(0.0f));
  EXPECT_EQ(bits(math::sigmoid(-103.9f)), 1u);
  EXPECT_EQ(math::rsqrt(4.0f), 0.5f);
  EXPECT_EQ(math::rsqrt(0.0f), kInf);
  EXPECT_EQ(math::rsqrt(kInf), 0.0f);
  EXPECT_TRUE(std::isnan(math::rsqrt(-1.0f)));
}

TEST(KernelMathValues, PowersAreThoseOfC) {
  const float bases[] = {0.0f, -0.0f, 1.0f,   -1.0f,   2.0f, -2.0f, 0.5f, -0.5f,
                         3.0f, -3.0f, 1e-40f, -1e-40f, kInf, -kInf, kNan};
  const float exponents[] = {0.0f, 1.0f,  -1.0f,      2.0f,        -2.0f, 3.0f, -3.0f, 0.5f, -0.5f,
                             1.5f, 24.0f, 8388607.0f, 16777216.0f, 1e30f, kInf, -kInf, kNan};
  for (const float x : bases)
    for (const float p : exponents) {
      const float got = math::pow(x, p);
      const double want = std::pow(static_cast<double>(x), static_cast<double>(p));
      EXPECT_LE(distance_ulps(got, want), 1.0) << x << "^" << p << " = " << got << ", want " << want;
    }
}

TEST(KernelMathValues, PowersAreWithinTheBoundWhateverTheExponent) {
  double worst = 0;
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < strided_points().size(); i += 13)
    for (const float p : {0.1f, -0.1f, 0.3333333f, -1.7f, 4.0f, 7.3f, 100.5f, -37.0f}) {
      const float x = strided_points()[i];
      if (std::isnan(x)) continue;
      const double want = std::pow(static_cast<double>(x), static_cast<double>(p));
      worst = std::max(worst, error_ulps(math::pow(x, p), want));
      ++count;
    }
  EXPECT_GT(count, 1'000'000u);
  EXPECT_LE(worst, math::kPowUlp);
}

TEST(KernelMathValues, OddFunctionsAreOddInEveryBit) {
  for (const float x : edge_points()) {
    if (std::isnan(x)) continue;
    EXPECT_EQ(math::to_bits(math::tanh(-x)), math::to_bits(-math::tanh(x))) << x;
    EXPECT_EQ(math::to_bits(math::erf(-x)), math::to_bits(-math::erf(x))) << x;
  }
}

/// A block in a vectorised loop and one element at a time: the same bits.
TEST_P(KernelMath, BlocksAndSingleElementsHaveTheSameBits) {
  const std::vector<float>& points = edge_points();
  std::vector<float> block(points.size());
  GetParam().got(points.data(), block.data(), points.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    float single = 0.0f;
    GetParam().got(&points[i], &single, 1);
    if (std::isnan(single) && std::isnan(block[i])) continue;
    ASSERT_EQ(math::to_bits(block[i]), math::to_bits(single)) << points[i];
  }
}

// ---- planted faults -----------------------------------------------------------------------------

/// exp as in kernels/math.h, with its third coefficient open.
float exp_with_coefficient(float x, float third) {
  const float clamped = math::at_most(math::at_least(x, -104.0f), 89.0f);
  const float shifted = math::fma(clamped, math::detail::kLog2E, 0x1.8p+23f);
  const float n = shifted - 0x1.8p+23f;
  const float r = math::fma(n, -math::detail::kLn2Low, math::fma(n, -math::detail::kLn2High, clamped));
  float p = 0x1.9e6f00p-13f;
  p = math::fma(p, r, 0x1.6d3a3ep-10f);
  p = math::fma(p, r, 0x1.1112dap-7f);
  p = math::fma(p, r, 0x1.5554f8p-5f);
  p = math::fma(p, r, third);
  p = math::fma(p, r, 0.5f);
  return math::detail::scale(1.0f + math::fma(p, r * r, r), math::to_bits(shifted) - math::to_bits(0x1.8p+23f));
}

template <int kUlpsOff>
void exp_perturbed(const float* x, float* y, std::size_t n) {
  const float third = math::from_bits(math::to_bits(0x1.555554p-3f) + static_cast<std::uint32_t>(kUlpsOff));
  for (std::size_t i = 0; i < n; ++i) y[i] = exp_with_coefficient(x[i], third);
}

TEST(KernelMathPlanted, PerturbedCoefficientIsRejected) {
  MathFunction f = function("exp");
  const std::vector<float>& points = strided_points();
  f.got = exp_perturbed<0>;
  EXPECT_EQ(check_points(f, points).failures, 0u);
  f.got = exp_perturbed<256>;  // 2^-16 of the coefficient, about half an ulp of the result at most
  EXPECT_GT(check_points(f, points).failures, 0u);
}

TEST(KernelMathPlanted, BoundBelowTheMeasuredMaximumIsRejected) {
  for (const MathFunction& function : math_functions()) {
    MathFunction f = function;
    --f.bound;
    EXPECT_GT(check_points(f, strided_points()).failures, 0u) << f.name << ": its bound is too wide";
  }
}

TEST(KernelMathPlanted, SeamThatStepsBackIsRejected) {
  MathFunction f = function("tanh");
  f.got = [](const float* x, float* y, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) y[i] = math::tanh(x[i]) * (x[i] < 0.5625f ? 1.0f + 0x1p-21f : 1.0f);
  };
  EXPECT_GT(worst_backward_step(f, edge_points()), f.bound);
}

TEST(KernelMathPlanted, WrongNanSignAndInfinityAreRejected) {
  EXPECT_EQ(error_ulps(kNan, 1.0), HUGE_VAL);
  EXPECT_EQ(error_ulps(1.0f, std::nan("")), HUGE_VAL);
  EXPECT_EQ(error_ulps(-0.0f, 0.0), HUGE_VAL);
  EXPECT_GT(error_ulps(kInf, 1e38), 1e6);
  EXPECT_EQ(error_ulps(kInf, 1e300), 0.0);
  EXPECT_GT(error_ulps(0.0f, 0x1p-148), 1.9);
  EXPECT_NEAR(error_ulps(1.0f, 1.0 - 0x1p-24), 1.0, 1e-6);  // below 1 the ulp is 2^-24
}

}  // namespace
}  // namespace ampcheck::kernels::test
