// SPDX-License-Identifier: Apache-2.0
// The wider bound for kernels that regroup a formula: it holds what such kernels compute in fp32, exactly where nothing
// rounds, and grows no farther.
#include "reference/replay/regrouped.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/replay/replay.h"
#include "src/random.h"

namespace ampcheck::reference {
namespace {

using Values = std::vector<double>;

Values normals(const char* name, std::size_t n, double scale = 1) {
  Values out(n);
  Random(1, name).normals(0, out);
  for (double& v : out) v = static_cast<double>(static_cast<float>(scale * v));
  return out;
}

struct Written {
  Graph graph;
  std::vector<std::pair<Expr, Values>> leaves;
  Expr leaf(const char* name, const Shape& shape, Values values) {
    const Expr x = graph.input(name, shape);
    leaves.emplace_back(x, std::move(values));
    return x;
  }
  Regrouped bound(Expr target) { return regrouped(graph, leaves, target, {}); }
};

constexpr std::size_t kTerms = 64;

/// s (x_1 + ... + x_n) where the formula has s x_1 + ... + s x_n, and the other way round.
TEST(Regrouped, AFactorMayStandBeforeOrBehindItsSum) {
  const Values x = normals("x", kTerms), s = normals("s", 1);
  float inside = 0, outside = 0;
  for (const double v : x) {
    inside += static_cast<float>(s[0]) * static_cast<float>(v);
    outside += static_cast<float>(v);
  }
  outside *= static_cast<float>(s[0]);
  double mass = 0;
  for (const double v : x) mass += std::fabs(s[0] * v);
  for (const bool factor_first : {false, true}) {
    Written w;
    const Expr terms = w.leaf("x", Shape{1, kTerms}, x), factor = w.leaf("s", Shape{1, 1}, s);
    const Regrouped bound = w.bound(factor_first ? sum(factor * terms, 1) : factor * sum(terms, 1));
    const double r = bound.radius[0];
    EXPECT_LE(std::fabs(static_cast<double>(inside) - bound.value[0]), r);
    EXPECT_LE(std::fabs(static_cast<double>(outside) - bound.value[0]), r);
    // One rounding for each of n - 1 additions and for the product, of at most the sum of all sizes.
    EXPECT_LE(r, (kTerms + 1) * 0x1p-24 * mass * (1 + 0x1p-10));
    EXPECT_FALSE(bound.overflows[0]);
  }
}

/// Sums of small whole numbers are exact in any grouping: there is no room then, and with one non-integer factor there
/// is.
TEST(Regrouped, WhatRoundsNothingHasNoRadius) {
  Values x(kTerms);
  for (std::size_t i = 0; i < kTerms; ++i) x[i] = static_cast<double>(i % 9) - 4;
  for (const double factor : {3.0, static_cast<double>(0.1f)}) {
    Written w;
    const Expr terms = w.leaf("x", Shape{1, kTerms}, x), by = w.leaf("s", Shape{1, 1}, {factor});
    const double r = w.bound(by * sum(terms + 1.0, 1)).radius[0];
    if (factor == 3.0)
      EXPECT_EQ(r, 0);
    else
      EXPECT_GT(r, 0);
  }
}

/// Two sums are multiplied as sums: their n^2 products in one sum would leave room for n times the rounding.
TEST(Regrouped, TwoSumsAreNotExpanded) {
  Written w;
  const Expr x = w.leaf("x", Shape{1, kTerms}, normals("x", kTerms)),
             y = w.leaf("y", Shape{1, kTerms}, normals("y", kTerms));
  const Regrouped a = w.bound(sum(x, 1)), b = w.bound(sum(y, 1)), both = w.bound(sum(x, 1) * sum(y, 1));
  const double of_parts = std::fabs(a.value[0]) * b.radius[0] + std::fabs(b.value[0]) * a.radius[0];
  EXPECT_LE(both.radius[0], 1.01 * of_parts + 2 * 0x1p-24 * std::fabs(both.value[0]));
}

/// 2 x dy for x dy + x dy, a + t (b - a) for (1 - t) a + t b: their intermediates leave the range where the formula's
/// do not.
TEST(Regrouped, RangeIsThatOfTheLargestIntermediateOfAnyGrouping) {
  for (const double size : {1e38, 3e38}) {
    Written w;
    const Expr x = w.leaf("x", Shape{1}, {size}), dy = w.leaf("dy", Shape{1}, {0.25}), t = w.leaf("t", Shape{1}, {0.5}),
               b = w.leaf("b", Shape{1}, {-size});
    const Regrouped twice = w.bound(x * dy + x * dy), lerp = w.bound((1 - t) * x + t * b);
    EXPECT_EQ(twice.overflows[0] != 0, size > 2e38);
    EXPECT_EQ(lerp.overflows[0] != 0, size > 2e38) << "three terms, if 1 - t is multiplied out";
    EXPECT_FALSE(w.bound(x * dy).overflows[0]);
  }
  Written w;
  const Expr x = w.leaf("x", Shape{1, 2}, {1e30, -1e30});
  EXPECT_FALSE(w.bound(x * 0.5).overflows[0]);
  EXPECT_TRUE(w.bound(exp(square(x) * 1e-70)).overflows[0])
      << "behind an intermediate that left the range nothing is sure";
}

/// The error of one factor of a sum moves the sum, not each of two large terms that cancel by itself.
TEST(Regrouped, ACommonFactorErrsOnceForAllTerms) {
  Written w;
  const Expr a = w.leaf("a", Shape{1, 1}, {200}), b = w.leaf("b", Shape{1, 1}, {200 - 0x1p-7}),
             factor = exp(sum(square(w.leaf("s", Shape{1, kTerms}, normals("s", kTerms))) * 0.125, 1));
  const Regrouped of_factor = w.bound(factor), of_product = w.bound((a - b) * factor);
  const double differs = 0x1p-7, mass = 400;
  EXPECT_GE(of_product.radius[0], of_factor.radius[0] * differs);
  EXPECT_LE(of_product.radius[0], 1.01 * (of_factor.radius[0] * differs + 4 * 0x1p-24 * mass * of_factor.value[0]));
  EXPECT_LT(of_product.radius[0], of_factor.radius[0] * mass / 8);
}

/// What an infinite input leaves finite has a bound, as each of the numbers of a softmax of -inf.
TEST(Regrouped, AnInfiniteInputOpensNoMoreThanTheFormula) {
  Written w;
  const Expr x = w.leaf("x", Shape{1, 3}, {-INFINITY, 0.5, 1}), e = exp(x - stop_gradient(max(x, 1)));
  const Regrouped bound = w.bound(e / sum(e, 1));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(bound.overflows[i]) << i;
    EXPECT_LE(bound.radius[i], 0x1p-20) << i;
  }
}

/// exp(x - lse) for e / l: as good where |x| is large as the formula at inputs that are known to one rounding. With a
/// logarithm in bf16 it is not, and y + 1, which cancels, is no way to compute exp(x).
TEST(Regrouped, ADivisorMayMoveIntoTheExponent) {
  for (const double mean : {0.0, 30.0, -300.0}) {
    Values x = normals("x", kTerms);
    float lse = 0, most = -INFINITY;
    for (double& v : x) v = static_cast<double>(static_cast<float>(v + mean));
    for (const double v : x) most = std::max(most, static_cast<float>(v));
    for (const double v : x) lse += std::exp(static_cast<float>(v) - most);
    lse = most + std::log(lse);
    Written w;
    const Expr terms = w.leaf("x", Shape{1, kTerms}, x), e = exp(terms - stop_gradient(max(terms, 1)));
    const Regrouped bound = w.bound(e / sum(e, 1));
    int outside = 0;
    for (std::size_t i = 0; i < kTerms; ++i) {
      const auto got = [&](float with) { return static_cast<double>(std::exp(static_cast<float>(x[i]) - with)); };
      EXPECT_LE(std::fabs(got(lse) - bound.value[i]), bound.radius[i]) << mean << ", " << i;
      outside += std::fabs(got(lse * (1 + 0x1p-9f)) - bound.value[i]) > bound.radius[i];
    }
    EXPECT_GE(outside, static_cast<int>(kTerms / 2)) << mean;
  }
  Written w;
  const Regrouped bound = w.bound(exp(w.leaf("x", Shape{1, 1}, {-9.25})) / w.leaf("c", Shape{1, 1}, {1.5}));
  const double cancelling = static_cast<double>((std::expm1(-9.25f) + 1) / 1.5f);
  EXPECT_GT(std::fabs(cancelling - bound.value[0]), bound.radius[0]);
}

/// Welford's mean of whole numbers over a power of two rounds, where their sum and its quotient do not. So does one of
/// mostly zeros. Without its last term it is outside.
TEST(Regrouped, AMeanMayRunAlong) {
  for (const std::size_t n : {4u, 16u, 64u})
    for (const std::size_t given : {std::size_t{1}, std::size_t{3}, n}) {
      Values x(n);
      for (std::size_t i = 0; i < given; ++i) x[i] = static_cast<double>(i * 7 % 9) - 3;
      const auto running = [&](std::size_t last) {
        float mean = 0;
        for (std::size_t i = 0; i < last; ++i) mean += (static_cast<float>(x[i]) - mean) / static_cast<float>(i + 1);
        return static_cast<double>(mean);
      };
      Written w;
      const Expr terms = w.leaf("x", Shape{1, static_cast<std::int64_t>(n)}, x);
      for (const Expr& target : {mean(terms, 1), sum(terms, 1) / static_cast<double>(n)}) {
        const Regrouped bound = w.bound(target);
        EXPECT_LE(std::fabs(running(n) - bound.value[0]), bound.radius[0]) << n << ", " << given;
        EXPECT_GT(std::fabs(running(n - 1) - bound.value[0]), bound.radius[0]) << n << ", " << given;
      }
      EXPECT_EQ(w.bound(sum(terms, 1)).radius[0], 0) << "no mean, so it stays exact";
      EXPECT_EQ(w.bound(sum(terms, 1) * (0.5 / static_cast<double>(n))).radius[0], 0) << "of another count";
    }
}

/// A kernel that skips hidden keys meets no 0 inf; one that skips a visible one, or a weight that is zero by itself, is
/// wrong.
TEST(Regrouped, WhatIsMaskedMayBeLeftOut) {
  Written w;
  const Expr weights = w.leaf("p", Shape{1, 4}, {0.5, 0.0, 0.25, 0.25}),
             v = w.leaf("v", Shape{4, 3}, {1, 1, 1, 2, INFINITY, 2, 3, 3, 3, 4, 4, -INFINITY}),
             visible = indicator(w.graph, Shape{1, 4}, {1, 1, 1, 0});
  const Expr zero = constant(w.graph, 0.0);
  const Regrouped bound = w.bound(matmul(where(visible, weights, zero) / sum(weights, 1), v));
  EXPECT_EQ(bound.value[0], 1.25);
  EXPECT_TRUE(std::isnan(bound.value[1])) << "the weight of a visible key is zero by itself";
  EXPECT_EQ(bound.value[2], 1.25) << "the last key is hidden";
  EXPECT_LE(bound.radius[2], 0x1p-20);
  const Expr nothing = where(indicator(w.graph, Shape{1, 4}, {0, 0, 0, 0}), weights, zero);
  EXPECT_TRUE(std::isnan(w.bound(nothing / sum(nothing, 1)).value[0])) << "0 / 0 of a row that is masked as a whole";
}

/// Against fp32 replays in every order: none leaves the bound, and the bound is no more than the one of any order
/// allows.
TEST(Regrouped, HoldsReplaysInEveryOrder) {
  Written w;
  const Expr x = w.leaf("x", Shape{4, kTerms}, normals("x", 4 * kTerms)),
             s = w.leaf("s", Shape{1, kTerms}, normals("s", kTerms));
  const Expr y = sum(x * s, 1) / sqrt(sum(square(x), 1) + 1e-6) * 0.125;
  const Regrouped bound = w.bound(y);
  for (const SumOrder order : {SumOrder::sequential, SumOrder::lanes32, SumOrder::pairwise, SumOrder::reversed}) {
    const Values got = replay(w.graph, w.leaves, {y}, {.order = order}).front();
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_LE(std::fabs(got[i] - bound.value[i]), bound.radius[i]) << i;
      EXPECT_LE(bound.radius[i], 0x1p-10);
    }
  }
}

}  // namespace
}  // namespace ampcheck::reference
