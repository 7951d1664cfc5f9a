// SPDX-License-Identifier: Apache-2.0
// The weak mode's numerics: noise as measured, and bounds on differences that hold for smooth, kinked and noisy
// functions.
#include "checks/judge/noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "src/random.h"

namespace ampcheck::checks {
namespace {

std::vector<double> sampled(const std::function<double(double)>& f, double at, double h, int points) {
  std::vector<double> out;
  for (int i = 0; i < points; ++i) out.push_back(f(at + h * (i - points / 2)));
  return out;
}

TEST(Noise, LevelIsThatOfTheNoise) {
  int near = 0, all = 0;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const Random random(seed, "noise");
    const double sigma = std::ldexp(1.0, -8 - static_cast<int>(seed % 30));
    std::uint64_t n = 0;
    const auto f = [&](double x) { return std::exp(x) * std::cos(3 * x) + sigma * random.normal(n++); };
    const double level = noise_level(sampled(f, random.uniform(1000), std::min(1e-3, sigma), 9));
    ++all;
    near += level > sigma / 4 && level < 4 * sigma;  // what the authors of ECnoise ask of an estimate
  }
  EXPECT_GE(near, all * 95 / 100) << near << " of " << all;
}

TEST(Noise, PolynomialsHaveNone) {
  EXPECT_EQ(noise_level(sampled([](double x) { return 3 * x * x * x - x; }, 0, 0.25, 9)), 0);
  EXPECT_EQ(noise_level(std::vector<double>(9, 1.5)), 0);
  EXPECT_EQ(noise_level({0, 0, 0, 0, 0, 0, 1, 1, 1}), 0) << "a step that most points do not see";
}

TEST(Noise, ScatterIsTheChiSquareQuantile) {
  EXPECT_NEAR(scatter(9), std::sqrt(24.322 / 7), 0.02);    // tables: chi2(0.999; 7) = 24.322
  EXPECT_NEAR(scatter(32), std::sqrt(59.703 / 30), 0.01);  // chi2(0.999; 30) = 59.703
}

std::vector<Step> steps_of(const std::function<double(double)>& f, double at, double finest, int count, double error) {
  std::vector<Step> out;
  for (double h = finest; count-- > 0; h *= 2) out.push_back({h, f(at + h) - f(at), f(at - h) - f(at), 2 * error});
  return out;
}

TEST(Slope, BoundHoldsForSmoothFunctionsWithNoise) {
  int settled = 0;
  double best = HUGE_VAL;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    const Random random(seed, "slope");
    const double error = std::ldexp(1.0, -4 - static_cast<int>(seed % 40)), at = 4 * random.uniform(0) - 2;
    std::uint64_t n = 1;
    const int kind = static_cast<int>(seed % 4);
    const auto smooth = [&](double x) {
      return kind == 0 ? std::exp(x) : kind == 1 ? std::sin(2 * x) : kind == 2 ? x * x : std::tanh(3 * x);
    };
    const double right = kind == 0   ? std::exp(at)
                         : kind == 1 ? 2 * std::cos(2 * at)
                         : kind == 2 ? 2 * at
                                     : 3 * (1 - std::tanh(3 * at) * std::tanh(3 * at));
    const auto f = [&](double x) { return smooth(x) + error * (2 * random.uniform(n++) - 1); };
    const double base = f(at);
    std::vector<Step> steps;
    for (double h = 0x1p-12; h <= 0.5; h *= 2) steps.push_back({h, f(at + h) - base, f(at - h) - base, 2 * error});
    const Slope slope = slope_of(steps);
    if (!slope.settled) continue;
    ++settled;
    EXPECT_LE(std::fabs(slope.value - right), slope.bound) << "seed " << seed;
    best = std::min(best, slope.bound);
  }
  EXPECT_GT(settled, 2900);
  EXPECT_LT(best, 1e-6) << "and it is worth something";
}

TEST(Slope, BoundHoldsNearAKink) {
  // relu at distances from its kink of either sign, with a curved part: the gradient is 1 or 0, or at the kink anything
  // between.
  for (double at = -0.6; at <= 0.6; at += 0.0007) {
    const double curved = std::fmod(std::fabs(at) * 1e4, 3) - 1;
    const auto f = [&](double x) { return std::fmax(x, 0.0) + curved * x * x / 4; };
    const Slope slope = slope_of(steps_of(f, at, 0x1p-7, 7, 0));
    if (!slope.settled) continue;
    const double right = (at > 0 ? 1 : 0) + curved * at / 2;
    EXPECT_LE(std::fabs(slope.value - right), slope.bound * (1 + 1e-12) + 1e-12) << at;
  }
  const Slope kink = slope_of(steps_of([](double x) { return std::fabs(x); }, 0, 0x1p-7, 7, 0));
  EXPECT_GE(kink.bound, 1.0) << "any subgradient is admitted";
}

TEST(Slope, AJumpIsNoSlope) {
  for (const double at : {0.0, 0.01, 0.1, 0.3}) {
    const Slope slope = slope_of(steps_of([](double x) { return x > 0 ? 1.0 : 0.0; }, at, 0x1p-7, 7, 0));
    EXPECT_TRUE(!slope.settled || std::fabs(slope.value) <= slope.bound) << at << " " << slope.value;
  }
}

}  // namespace
}  // namespace ampcheck::checks
