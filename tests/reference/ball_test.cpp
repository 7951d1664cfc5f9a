// SPDX-License-Identifier: Apache-2.0
// The radius rules, each at a graph small enough to work out by hand.
#include "reference/ball/ball.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "checks/data/regimes.h"
#include "reference/replay/replay.h"
#include "src/random.h"
#include "src/rounding.h"
#include "tests/support/small_balls.h"

namespace ampcheck::reference {
namespace {

constexpr double kEta = 0x1p-150 * (1 + 0x1p-20), kInf = std::numeric_limits<double>::infinity();
double gamma(double roundings) { return roundings * kU / (1 - roundings * kU); }
void expect_close(double got, double want) { EXPECT_NEAR(got, want, 1e-9 * std::fabs(want)); }

TEST(BallR1, MovingDataRoundsNothing) {
  Graph g;
  const Expr x = g.input("x", {3, 4});
  const Values v = full_mantissas(12, "move");
  const int order[] = {1, 0};
  for (const Expr& y :
       {reshape(x, {4, 3}), transpose(x, order), slice(x, 1, 1, 3), -x, concat({x, x}, 0), abs(x), max(x, 1),
        take(x, {3, -1, 0}, {3}), x + 0.0, x * 0.5, x * -4.0, x / 8.0, x * 0.0, where(less(x, -x), x, x * 2.0)})
    for (const double r : evaluate(y, {{x, v}}).r) EXPECT_EQ(r, 0) << name(g.node(y.id).primitive);
}

TEST(BallR1, ExactSumsAndProducts) {
  Fixture f(4);
  const Values a = {1, 3, 0x1p20 + 1, 1 + 0x1p-23}, b = {0x1p-23, 5, 0x1p-3, 1 + 0x1p-23};
  const Out sum = evaluate(f.a + f.b, {{f.a, a}, {f.b, b}}), product = evaluate(f.a * f.b, {{f.a, a}, {f.b, b}});
  EXPECT_EQ(sum.r, (Values{0, 0, 0, 0}));
  EXPECT_EQ(product.r[0], 0);
  EXPECT_EQ(product.r[1], 0);
  expect_close(product.r[3], kU * product.v[3]);  // 1 + 2^-22 + 2^-46 needs 47 bits
  const Out inexact = evaluate(f.a + f.b, {{f.a, {1, 1, 1, 0}}, {f.b, {0x1p-30, 0x1p-24, 0x1p-149, 0x1p-149}}});
  for (const std::size_t i : {0u, 1u, 2u}) expect_close(inexact.r[i], kU * inexact.v[i]);
  EXPECT_EQ(inexact.r[3], 0);
}

TEST(BallR1, SumsOfOneTermAndStructuralZeros) {
  Graph g;
  const Expr x = g.input("x", {2, 5});
  const Values v = {0, 0, 1.2345678f, 0, 0, 0, 0, 0, 0, 0};
  const Out out = evaluate(sum(x, 1), {{x, v}});
  EXPECT_EQ(out.r, (Values{0, 0}));
  EXPECT_EQ(out.v[0], static_cast<double>(1.2345678f));
  // An exact zero times a ball is zero.
  const Expr y = x * exp(x) * indicator(g, {2, 5}, std::vector<std::int64_t>(10, 0));
  for (const double r : evaluate(y, {{x, full_mantissas(10, "z")}}).r) EXPECT_EQ(r, 0);
}

TEST(BallR1, PowersOfTwoThatUnderflowStillRound) {
  Fixture f(1);
  EXPECT_EQ(evaluate(f.a * 0x1p-10, {{f.a, {1.2345678f}}}).r[0], 0);
  EXPECT_GE(evaluate(f.a * 0x1p-20, {{f.a, {1.2345678f * 0x1p-120}}}).r[0], kEta);
  EXPECT_GE(evaluate(f.a / 0x1p20, {{f.a, {1.2345678f * 0x1p-120}}}).r[0], kEta);
}

TEST(BallR2, SumInAnyOrder) {
  Graph g;
  const Expr x = g.input("x", {100});
  Values v = full_mantissas(100, "sum");
  for (std::size_t i = 0; i < 100; i += 3) v[i] = -v[i];
  expect_close(evaluate(sum(x, 0), {{x, v}}).r[0], gamma(99) * total(v));
  // Exact zeros are no terms; radii of the terms add up.
  for (std::size_t i = 50; i < 100; ++i) v[i] = 0;
  expect_close(evaluate(sum(x, 0), {{x, v}}).r[0], gamma(49) * total(v));
  Values r(100, 0.0);
  r[3] = 0x1p-10;
  expect_close(evaluate(sum(x, 0), {{x, v, r}}).r[0], r[3] + gamma(49) * (total(v) + r[3]));
  // Inner axis and outer axis follow the same rule.
  const Expr m = g.input("m", {100, 2});
  Values both(200);
  for (std::size_t i = 0; i < 100; ++i) {
    both[2 * i] = v[i];
    both[2 * i + 1] = v[i];
  }
  expect_close(evaluate(sum(m, 0), {{m, both}}).r[1], gamma(49) * total(v));
}

TEST(BallR2, EveryPrefixOfACumulativeSumHasItsOwnCount) {
  Graph g;
  const Expr x = g.input("x", {100});
  Values v = full_mantissas(100, "prefix");
  for (std::size_t i = 0; i < 100; i += 3) v[i] = -v[i];
  v[7] = 0;
  const Out forward = evaluate(cumsum(x, 0), {{x, v}}), backward = evaluate(cumsum(x, 0, true), {{x, v}});
  for (std::size_t i : {1u, 6u, 7u, 8u, 50u, 99u}) {
    const Values first(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(i) + 1),
        last(v.begin() + static_cast<std::ptrdiff_t>(i), v.end());
    const auto terms = [](const Values& of) {
      return of.size() - static_cast<std::size_t>(std::ranges::count(of, 0.0));
    };
    expect_close(forward.r[i], gamma(static_cast<int>(terms(first)) - 1) * total(first));
    expect_close(backward.r[i], gamma(std::max(static_cast<int>(terms(last)) - 1, 0)) * total(last));
    EXPECT_DOUBLE_EQ(forward.v[i], std::accumulate(first.begin(), first.end(), 0.0));
  }
  EXPECT_EQ(forward.r[0], 0);
  EXPECT_EQ(backward.r[99], 0);
  // What is added to it, or up before it, is one sum with it.
  const Expr m = g.input("m", {5, 20});
  expect_close(evaluate(cumsum(sum(m, 1), 0), {{m, v}}).r[4], gamma(98) * total(v));
  expect_close(evaluate(sum(cumsum(reshape(x, {1, 100}), 1), 0), {{x, v}}).r[99], gamma(98) * total(v));
  EXPECT_EQ(evaluate(cumsum(x, 0), {{x, Values(100, 3.0)}}).r[99], 0);  // whole numbers add up exactly
}

TEST(BallR2, Grid) {
  Graph g;
  const Expr x = g.input("x", {64});
  Values v(64);
  for (std::size_t i = 0; i < 64; ++i) v[i] = (i % 2 ? -1 : 1) * static_cast<double>(i * 4096) * 0x1p-30;
  EXPECT_EQ(evaluate(sum(x, 0), {{x, v}}).r[0], 0);
  v[5] = 0x1p-42;  // a lower lowest bit: now 2^24 of them do not hold the sum
  EXPECT_GT(evaluate(sum(x, 0), {{x, v}}).r[0], 0);
  EXPECT_EQ(evaluate(sum(x, 0), {{x, Values(64, 0x1p18)}}).r[0], 0);
  Values over(64, 0x1p18);
  over[0] = 0x1p18 + 1;  // 64 * 2^18 = 2^24 steps and one more
  EXPECT_GT(evaluate(sum(x, 0), {{x, over}}).r[0], 0);
}

TEST(BallR2, DeclaredDepthAccumulatorAndOnePass) {
  Graph g;
  const Expr x = g.input("x", {100});
  const Values v = full_mantissas(100, "depth");
  Arithmetic tree;
  tree.summation_depth = 7;
  expect_close(evaluate(sum(x, 0), {{x, v}}, tree).r[0], gamma(7) * total(v));
  Arithmetic low;
  low.accumulate_roundoff = kBf16.unit_roundoff();
  EXPECT_GT(evaluate(sum(x, 0), {{x, v}}, low).r[0], 99 * 0x1p-8 * total(v));
  Arithmetic pass;
  pass.one_pass = true;
  EXPECT_NEAR(evaluate(sum(x, 0), {{x, v}}, pass).r[0], gamma(4 * 99) * total(v), 1e-8 * total(v));
  EXPECT_GT(evaluate(sum(x, 0), {{x, Values(100, 1.0)}}, pass).r[0], 0);  // no grid rule there
}

TEST(BallR3, NestedSumsAreFlat) {
  Graph g;
  const Expr x = g.input("x", {6, 7});
  const Values v = full_mantissas(42, "nested");
  const double flat = gamma(41) * total(v);
  const int order[] = {1, 0};
  for (const Expr& y :
       {sum(sum(x, 1), 0), sum(-sum(x, 0), 1), sum(reshape(sum(x, 1), {6}), 0), sum(transpose(sum(x, 1), order), 1),
        sum(reshape(x, {42}), 0), put_add(sum(x, 1), {0, 0, 0, 0, 0, 0}, {1})})
    expect_close(evaluate(y, {{x, v}}).r[0], flat);
  // A product in between ends the sum: its rounding counts on top.
  EXPECT_GT(evaluate(sum(sum(x, 1) * sum(x, 1), 0), {{x, v}}).r[0], 0);
}

TEST(BallR3, MatmulThenScatterIsOneSum) {
  Graph g;
  const Expr a = g.input("a", {1, 4}), b = g.input("b", {4, 2}), p = g.input("p", {1, 8}), q = g.input("q", {8, 1});
  const Values av = full_mantissas(4, "a"), bv = full_mantissas(8, "b");
  Values pv(8), qv(8);
  for (std::size_t k = 0; k < 4; ++k)
    for (std::size_t j = 0; j < 2; ++j) {
      pv[2 * k + j] = av[k];
      qv[2 * k + j] = bv[2 * k + j];
    }
  const double nested = evaluate(put_add(matmul(a, b), {0, 0}, {1}), {{a, av}, {b, bv}}).r[0];
  const double flat = evaluate(matmul(p, q), {{p, pv}, {q, qv}}).r[0];
  expect_close(nested, flat);
  double mass = 0;
  for (std::size_t i = 0; i < 8; ++i) mass += pv[i] * qv[i];
  EXPECT_NEAR(flat, kU * mass + gamma(7) * mass, 1e-6 * flat);
}

TEST(BallR3, ChainsOfPlus) {
  Fixture f(1);
  const double a = static_cast<double>(1.7f), b = static_cast<double>(-1.6999f), c = static_cast<double>(0.3f);
  expect_close(evaluate(f.a + f.b, {{f.a, {a}}, {f.b, {static_cast<double>(1e-7f)}}}).r[0],
               kU * (a + static_cast<double>(1e-7f)));
  const Values both = evaluate(f.a + f.b + f.c, {{f.a, {a}}, {f.b, {b}}, {f.c, {c}}}).r;
  expect_close(both[0], gamma(2) * (a - b + c));
  expect_close(evaluate(f.a - (-f.b - f.c), {{f.a, {a}}, {f.b, {b}}, {f.c, {c}}}).r[0], both[0]);
  // Cancellation of two single terms is nearly free: u times the small difference.
  const Out two = evaluate(f.a + f.b, {{f.a, {a}}, {f.b, {b}}});
  EXPECT_LE(two.r[0], kU * std::fabs(two.v[0]) * 1.01);
}

TEST(BallR4, ProductsInAnyOrder) {
  Fixture f(1);
  const double x = static_cast<double>(1e-25f), z = static_cast<double>(1e30f);
  const std::vector<Leaf> leaves = {{f.a, {x}}, {f.b, {x}}, {f.c, {z}}};
  for (const Expr& y : {f.a * f.b * f.c, f.a * (f.b * f.c), f.c * f.b * f.a, f.a / (1.0 / f.b) * f.c}) {
    const Out out = evaluate(y, leaves);
    EXPECT_TRUE(out.full);
    EXPECT_GE(out.r[0], 0x1p-150 * z) << "the product of the small factors may underflow first";
    EXPECT_LE(std::fabs(out.v[0] - 0), out.r[0]);  // (x x) z is 0 in fp32
  }
  const Out large = evaluate(f.a * f.b * f.c, {{f.a, {1e25f}}, {f.b, {1e25f}}, {f.c, {1e-30f}}});
  EXPECT_TRUE(large.flags[0] & kLeftRange);
  const Out plain = evaluate(f.a * f.b * f.c, {{f.a, {1.1f}}, {f.b, {1.2f}}, {f.c, {1.3f}}});
  EXPECT_FALSE(plain.full);
  EXPECT_EQ(plain.flags[0], 0);
}

TEST(BallR5, ProductsOfBalls) {
  Fixture f(1);
  const double a = 3.14159f, b = -2.71828f, ra = 1e-3, rb = 1e-4;
  const double in = a * rb - b * ra + ra * rb;
  expect_close(evaluate(f.a * f.b, {{f.a, {a}, {ra}}, {f.b, {b}, {rb}}}).r[0], in + kU * (std::fabs(a * b) + in));
  const double in_square = 2 * a * ra + ra * ra;
  expect_close(evaluate(square(f.a), {{f.a, {a}, {ra}}}).r[0], in_square + kU * (a * a + in_square));
  EXPECT_EQ(evaluate(square(f.a), {{f.a, {3.0}}}).r[0], 0);
}

TEST(BallR5, Quotients) {
  Fixture f(1);
  const double a = 3.14159f, b = 2.71828f, ra = 1e-3, rb = 1e-4;
  expect_close(evaluate(f.a / f.b, {{f.a, {a}}, {f.b, {b}}}).r[0], 2 * kU * a / b);
  const double in = (ra + a / b * rb) / (b - rb);
  expect_close(evaluate(f.a / f.b, {{f.a, {a}, {ra}}, {f.b, {b}, {rb}}}).r[0], in + 2 * kU * (a / b + in));
  EXPECT_GE(in * (1 + 1e-12), (a + ra) / (b - rb) - a / b);  // the supremum over the ball
  EXPECT_EQ(evaluate(f.a / f.b, {{f.a, {a}}, {f.b, {1e-5f}, {1e-4}}}).r[0], kInf);
  EXPECT_EQ(evaluate(f.a / f.b, {{f.a, {0.0}}, {f.b, {b}, {rb}}}).r[0], 0);
  EXPECT_EQ(evaluate(f.a / f.b, {{f.a, {a}}, {f.b, {0.25}}}).r[0], 0);
}

TEST(BallR5, Matmul) {
  Graph g;
  const Expr a = g.input("a", {2, 9}), b = g.input("b", {9, 3}), at = g.input("at", {9, 2});
  const Values av = full_mantissas(18, "ma"), bv = full_mantissas(27, "mb");
  const Out out = evaluate(matmul(a, b), {{a, av}, {b, bv}});
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t j = 0; j < 3; ++j) {
      double mass = 0;
      for (std::size_t k = 0; k < 9; ++k) mass += av[9 * i + k] * bv[3 * k + j];
      expect_close(out.v[3 * i + j], mass);
      EXPECT_NEAR(out.r[3 * i + j], kU * mass + gamma(8) * mass, 1e-6 * out.r[3 * i + j]);
    }
  Values turned(18);
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t k = 0; k < 9; ++k) turned[2 * k + i] = av[9 * i + k];
  EXPECT_EQ(evaluate(matmul(at, b, true), {{at, turned}, {b, bv}}).r, out.r);
  Values whole(18), small(27);
  for (std::size_t i = 0; i < 18; ++i) whole[i] = static_cast<double>(i) - 9;
  for (std::size_t i = 0; i < 27; ++i) small[i] = static_cast<double>(i % 5) - 2;
  for (const double r : evaluate(matmul(a, b), {{a, whole}, {b, small}}).r) EXPECT_EQ(r, 0);
}

TEST(BallR6, FunctionsAreExactAtTheirFixedPoints) {
  Fixture f(1);
  for (const Expr& y : {exp(f.a), tanh(f.a), erf(f.a), sin(f.a), cos(f.a), expm1(f.a), log1p(f.a), sqrt(f.a)})
    EXPECT_EQ(evaluate(y, {{f.a, {0.0}}}).r[0], 0);
  EXPECT_EQ(evaluate(log(f.a), {{f.a, {1.0}}}).r[0], 0);
  EXPECT_EQ(evaluate(sqrt(f.a), {{f.a, {2.25}}}).r[0], 0);
  EXPECT_EQ(evaluate(rsqrt(f.a), {{f.a, {4.0}}}).r[0], 0);
  EXPECT_GT(evaluate(erfc(f.a), {{f.a, {0.0}}}).r[0], 0);
}

TEST(BallR6, OwnErrorIsTwoUlpsOfTheMathSet) {
  Fixture f(1);
  Arithmetic arithmetic;
  arithmetic.math = {.name = "test",
                     .exp = 1,
                     .expm1 = 1.5,
                     .log = 2,
                     .log1p = 2.5,
                     .tanh = 3,
                     .erf = 3.5,
                     .erfc = 4,
                     .rsqrt = 4.5,
                     .sqrt = 5,
                     .pow = 5.5};
  const std::pair<Expr, double> functions[] = {
      {exp(f.a), 1},  {expm1(f.a), 1.5}, {log(f.a), 2},  {log1p(f.a), 2.5},
      {tanh(f.a), 3}, {erf(f.a), 3.5},   {erfc(f.a), 4}, {rsqrt(f.a), 4.5},
      {sin(f.a), 2},  {cos(f.a), 2},     {sqrt(f.a), 5}, {pow(f.a, constant(f.graph, 1.5)), 5.5}};
  for (const auto& [y, ulps] : functions) {
    const Out out = evaluate(y, {{f.a, {static_cast<double>(0.7f)}}}, arithmetic);
    expect_close(out.r[0], 2 * ulps * kU * std::fabs(out.v[0]));
  }
}

/// A wide ball holds all of [-1, 1] and no more than roundings beyond it; an exact argument of any size is reduced.
TEST(BallR6, WavesStayBetweenMinusOneAndOne) {
  Fixture f(1);
  for (const Expr& y : {sin(f.a), cos(f.a)})
    for (const double x : {0.0, 1.5707, -2.0, 1e9})
      for (const double r : {3.2, 7.0, 1e20}) {
        const Out out = evaluate(y, {{f.a, {x}, {r}}});
        EXPECT_LE(out.v[0] - out.r[0], -1) << name(f.graph.node(y.id).primitive) << x << " " << r;
        EXPECT_GE(out.v[0] + out.r[0], 1);
        EXPECT_LE(std::fabs(out.v[0]) + out.r[0], 1 + 8 * kU);
      }
  const auto far = static_cast<double>(1e30f);
  const Out out = evaluate(sin(f.a), {{f.a, {far}}});
  expect_close(out.v[0], std::sin(far));
  expect_close(out.r[0], 4 * kU * std::fabs(out.v[0]));
}

TEST(BallR6, TheBallOfTheArgumentGoesThrough) {
  Fixture f(1);
  using Function = double (*)(double);
  const std::tuple<Expr, Function, std::vector<double>> functions[] = {
      {exp(f.a), [](double x) { return std::exp(x); }, {-3, 0, 2.5}},
      {expm1(f.a), [](double x) { return std::expm1(x); }, {-3, 0, 2}},
      {log(f.a), [](double x) { return std::log(x); }, {0.9, 3, 50}},
      {log1p(f.a), [](double x) { return std::log1p(x); }, {0, 3}},
      {tanh(f.a), [](double x) { return std::tanh(x); }, {-2, 0, 0.3, 5}},
      {erf(f.a), [](double x) { return std::erf(x); }, {-2, 0, 0.3, 3}},
      {erfc(f.a), [](double x) { return std::erfc(x); }, {-2, 0, 0.3, 3}},
      {sin(f.a), [](double x) { return std::sin(x); }, {-2, 0, 0.3, 1.57, 3, 1e6}},
      {cos(f.a), [](double x) { return std::cos(x); }, {-2, 0, 0.3, 1.57, 3, 1e6}},
      {sqrt(f.a), [](double x) { return std::sqrt(x); }, {0.9, 3}},
      {rsqrt(f.a), [](double x) { return 1 / std::sqrt(x); }, {0.9, 3}},
      {sigmoid(f.a), [](double x) { return 1 / (1 + std::exp(-x)); }, {-20, -2, 0, 3, 30}},
      {square(f.a), [](double x) { return x * x; }, {-2, 0, 3}},
      {pow(f.a, constant(f.graph, 3.0)), [](double x) { return x * x * x; }, {-2, 0, 0.3, 3}},
      {pow(f.a, constant(f.graph, 2.0)), [](double x) { return x * x; }, {-2, 0, 0.3, 3}},
      {pow(f.a, constant(f.graph, -1.0)), [](double x) { return 1 / x; }, {-2, 0.9, 3}},
      {pow(f.a, constant(f.graph, 1.5)), [](double x) { return x * std::sqrt(x); }, {0.9, 3}},
      {abs(f.a), [](double x) { return std::fabs(x); }, {-2, 0, 1}}};
  for (const auto& [y, function, points] : functions)
    for (const double x : points)
      for (const double r : {1e-9, 1e-4, 0.03, 0.5, 0.85}) {
        const Out out = evaluate(y, {{f.a, {x}, {r}}});
        for (const double end : {x - r, x - r / 2, x + r / 2, x + r})
          EXPECT_LE(std::fabs(function(end) - out.v[0]),
                    out.r[0] * (1 + 0x1p-40) + std::fabs(out.v[0]) * 0x1p-51)  // R11
              << name(f.graph.node(y.id).primitive) << " at " << x << " radius " << r;
        EXPECT_LT(out.r[0], 100 * (r + kU)) << "not vacuous";
      }
}

TEST(BallR6, Poles) {
  Fixture f(1);
  EXPECT_EQ(evaluate(log(f.a), {{f.a, {0.5}, {0.5}}}).r[0], kInf);
  EXPECT_EQ(evaluate(rsqrt(f.a), {{f.a, {0.5}, {0.6}}}).r[0], kInf);
  EXPECT_EQ(evaluate(log1p(f.a), {{f.a, {-0.5}, {0.5}}}).r[0], kInf);
  EXPECT_LT(evaluate(sqrt(f.a), {{f.a, {0.0}, {0.01}}}).r[0], 0.2);
  const auto power = [&](double x, double r, double p) {
    return evaluate(pow(f.a, constant(f.graph, p)), {{f.a, {x}, {r}}}).r[0];
  };
  EXPECT_EQ(power(0.5, 0.6, -1), kInf);
  EXPECT_EQ(power(0.5, 0.6, 0.5), kInf);  // no number where the base is negative
  EXPECT_LT(power(0.5, 0.5, 0.5), 0.8);   // 0 is inside
  EXPECT_LT(power(0.5, 0.6, 3), 1.3);
  EXPECT_LT(power(-0.5, 0.25, -2), 13.0);
}

TEST(BallR6, PowersThatEveryFunctionGivesExactly) {
  Fixture f(1);
  const auto radius = [&](double x, double p) { return evaluate(pow(f.a, constant(f.graph, p)), {{f.a, {x}}}).r[0]; };
  EXPECT_EQ(radius(1, 0.3), 0);
  EXPECT_EQ(radius(0, 2.5), 0);
  EXPECT_EQ(radius(-7, 0), 0);
  EXPECT_GT(radius(3, 2), 0);  // a function may give another number than the product
  // An exponent that is a ball: log x times its radius.
  const Expr p = f.graph.input("p", {1});
  const Out out = evaluate(pow(f.a, p), {{f.a, {8.0}}, {p, {1.5}, {1e-4}}});
  EXPECT_NEAR(out.r[0], out.v[0] * std::log(8.0) * 1e-4, 1e-3 * out.r[0]);
  EXPECT_EQ(evaluate(pow(f.a, p), {{f.a, {-8.0}}, {p, {2.0}, {1e-4}}}).r[0], kInf);
}

TEST(BallR6, ResultsThatMayBeSubnormal) {
  Fixture f(1);
  const Out out = evaluate(exp(f.a), {{f.a, {-100.0}}});
  EXPECT_GE(out.r[0], 2 * kEta);
  EXPECT_LE(out.r[0], 2 * kEta + 3 * kU * out.v[0] + 0x1p-200);
  Arithmetic flush;
  flush.flushes_subnormals = true;
  EXPECT_GE(evaluate(exp(f.a), {{f.a, {-100.0}}}, flush).r[0], out.v[0]);  // zero is right
  EXPECT_LT(out.r[0], out.v[0] / 10);
}

TEST(BallR7, SigmoidTails) {
  Fixture f(3);
  const Out out = evaluate(sigmoid(f.a), {{f.a, {-90, -20, 20}}});
  EXPECT_GE(out.r[0], out.v[0]);  // 1 / inf = 0 is right
  EXPECT_LT(out.r[1], 6 * kU * out.v[1]);
  EXPECT_LT(out.r[2], 4 * kU);
  EXPECT_GE(out.r[2], kU);
}

TEST(BallR8, AttributesAreBalls) {
  Graph g;
  expect_close(evaluate(constant(g, 0.9), {}).r[0], kU * 0.9);
  EXPECT_EQ(evaluate(constant(g, 0.75), {}).r[0], 0);
  const Out keep = evaluate(1.0 - constant(g, 0.9), {});
  expect_close(keep.r[0], kU * 0.9 + kU * (std::fabs(keep.v[0]) + kU * 0.9));
  const Out scale = evaluate(1.0 / (1.0 - constant(g, 0.9)), {});
  const double relative = scale.r[0] / scale.v[0] / kU;
  EXPECT_NEAR(relative, 9 + 1 + 2, 0.1);  // cancellation amplifies p's rounding by 9
  const float p = 0.9f;
  EXPECT_LE(std::fabs(static_cast<double>(1.0f / (1.0f - p)) - scale.v[0]), scale.r[0]);
  EXPECT_GT(std::fabs(static_cast<double>(1.0f / (1.0f - p)) - scale.v[0]), 3 * kU * scale.v[0]);
}

TEST(BallR9, Overflow) {
  Graph g;
  const Expr x = g.input("x", {4});
  const double big = static_cast<double>(3e38f);
  EXPECT_EQ(evaluate(sum(x, 0), {{x, {big, big, -big, -big}}}).flags[0] & kLeftRange, kLeftRange);
  const Out own = evaluate(sum(x, 0), {{x, {big, big, 1, 1}}});
  EXPECT_EQ(own.flags[0], kOverflowed | kMayBeNan);  // a compensated sum makes NaN of it
  const Expr e = exp(x), quotient = e / (e + 1.0);
  const Out after = evaluate(quotient, {{x, {100, 1, 2, 3}}});
  EXPECT_EQ(after.flags[0] & kLeftRange, kLeftRange);
  EXPECT_EQ(after.flags[1], 0);
  const Out infinite = evaluate(sum(x, 0), {{x, {kInf, 1, 2, 3}}});
  EXPECT_EQ(infinite.v[0], kInf);
  EXPECT_EQ(infinite.flags[0] & kMayBeNan, kMayBeNan);
  EXPECT_TRUE(std::isnan(evaluate(sum(x, 0), {{x, {kInf, -kInf, 2, 3}}}).v[0]));
  EXPECT_TRUE(std::isnan(evaluate(max(x, 0), {{x, {1, std::nan(""), 2, 3}}}).v[0]));
  // A branch that is not taken does not matter.
  const Out chosen = evaluate(where(less(x, constant(g, 50)), x, exp(x)), {{x, {1, 2, 3, 4}}});
  for (const int flag : chosen.flags) EXPECT_EQ(flag, 0);
}

/// No order of a sum meets more than its terms of one sign.
TEST(BallR9, AnOrderOverflowsByTheTermsOfOneSign) {
  Graph g;
  const Expr x = g.input("x", {4});
  const double big = static_cast<double>(3e38f);
  EXPECT_EQ(evaluate(sum(x, 0), {{x, {big, -big, 1, 1}}}).flags[0], 0);
  EXPECT_EQ(evaluate(sum(x, 0), {{x, {big, -big, big, 1}}}).flags[0] & kLeftRange, kLeftRange);
}

TEST(BallR9, WhatOverflowsToMinusInfinityIsZeroToExp) {
  Graph g;
  const Expr x = g.input("x", {2});
  const double big = static_cast<double>(3e38f);
  const Expr z = x + x, low = sum(exp(z), 0), flat = tanh(z);
  EXPECT_EQ(evaluate(low, {{x, {-big, 1}}}).flags[0], 0);
  EXPECT_EQ(evaluate(low, {{x, {big, 1}}}).flags[0] & kLeftRange, kLeftRange);
  for (const int flag : evaluate(flat, {{x, {-big, big}}}).flags) EXPECT_EQ(flag, 0);
  // inf - inf on the way: not a number
  EXPECT_NE(evaluate(exp(z - z * 2.0), {{x, {-big, 1}}}).flags[0], 0);
}

/// A mask of -infinity: what is masked is an exact 0 behind exp, and the rest keeps its bound. 1 / 0 is no such
/// constant.
TEST(BallR9, AnInfiniteConstantIsNoOverflow) {
  Graph g;
  const Expr x = g.input("x", {4}), seen = less(x, constant(g, 2));
  const auto probabilities = [&](Expr masked) {
    const Expr e = exp(where(seen, x, masked) - stop_gradient(max(x, 0)));
    return evaluate(e / sum(e, 0), {{x, {1, 2, 3, 1}}});
  };
  const Out out = probabilities(constant(g, -kInf));
  for (const int flag : out.flags) EXPECT_EQ(flag, 0);
  EXPECT_EQ(out.v, (Values{0.5, 0, 0, 0.5}));
  EXPECT_LT(out.r[1], 0x1p-126);
  EXPECT_GT(out.r[0], 0);
  EXPECT_LT(out.r[0], 20 * kU);
  EXPECT_NE(probabilities(constant(g, -1) / constant(g, 0)).flags[0], 0);
}

/// exp(x - y) of numbers whose rounding is larger than they are apart: in range, but anything.
TEST(BallR9, ARadiusWithoutABoundIsNoOverflow) {
  Graph g;
  const Expr x = g.input("x", {2});
  const double big = static_cast<double>(3e38f);
  const Expr e = exp(tanh(x) * x - x);
  const Out wide = evaluate(e, {{x, {big, 1}}});
  EXPECT_EQ(wide.flags[0], kUnbounded);
  EXPECT_EQ(evaluate(e * 2.0 + 1.0, {{x, {big, 1}}}).flags[0], kUnbounded);
  EXPECT_EQ(wide.flags[1], 0);
}

TEST(BallR10, Choices) {
  Fixture f(3);
  const Values a = {1, 2, 3}, r = {0.1, 0.1, 0.1};
  // Exact inputs decide exactly.
  EXPECT_EQ(evaluate(less(f.a, f.b), {{f.a, a}, {f.b, {1, 3, 2}}}).v, (Values{0, 1, 0}));
  EXPECT_EQ(evaluate(less_equal(f.a, f.b), {{f.a, a}, {f.b, {1, 3, 2}}}).v, (Values{1, 1, 0}));
  EXPECT_EQ(evaluate(equal(f.a, f.b), {{f.a, a}, {f.b, {1, 3, 2}}}).v, (Values{1, 0, 0}));
  // Balls that meet may go either way.
  const Out open = evaluate(less(f.a, f.b), {{f.a, a, r}, {f.b, {1.15, 3, 2}, r}});
  EXPECT_EQ(open.v, (Values{0.5, 1, 0}));
  EXPECT_EQ(open.r, (Values{0.5, 0, 0}));
  const Out hull = evaluate(where(less(f.a, f.b), f.a, f.c), {{f.a, a, r}, {f.b, {1.15, 3, 2}, r}, {f.c, {5, 6, 7}}});
  const double slack = hull.r[0] * 0x1p-40;  // R11's own widening
  EXPECT_LE(hull.v[0] - hull.r[0] - slack, 0.9);
  EXPECT_GE(hull.v[0] + hull.r[0] + slack, 5);
  EXPECT_EQ(hull.v[1], 2);
  EXPECT_EQ(hull.r[2], 0);
  const Out larger = evaluate(maximum(f.a, f.b), {{f.a, a, r}, {f.b, {1.05, 3, 2}, {0.3, 0, 0}}});
  EXPECT_NEAR(larger.v[0] + larger.r[0], 1.35, 1e-12);
  EXPECT_LE(larger.v[0] - larger.r[0], 0.9);
  EXPECT_EQ(larger.r[1], 0);
}

TEST(BallR10, FirstMaximum) {
  Graph g;
  const Expr x = g.input("x", {4});
  EXPECT_EQ(evaluate(first_max(x, 0), {{x, {1, 3, 3, 2}}}).v, (Values{0, 1, 0, 0}));
  const Out open = evaluate(first_max(x, 0), {{x, {1, 3, 3.05, 2}, {0.1, 0.1, 0.1, 0.1}}});
  EXPECT_EQ(open.v, (Values{0, 0.5, 0.5, 0}));
  EXPECT_EQ(open.r, (Values{0, 0.5, 0.5, 0}));
}

TEST(Ball, StoredIntermediatesRoundToTheSavedType) {
  Graph g;
  const Expr x = g.input("x", {2}), y = stored("y", x);
  Arithmetic arithmetic;
  EXPECT_EQ(evaluate(y, {{x, {1.25, 1.2345678f}}}, arithmetic).r, (Values{0, 0}));
  arithmetic.saved["y"] = &kBf16;
  const Out out = evaluate(y, {{x, {1.25, static_cast<double>(1.2345678f)}}}, arithmetic);
  EXPECT_EQ(out.r[0], 0);
  expect_close(out.r[1], 0x1p-8 * out.v[1]);
}

TEST(Ball, GivenStoredValuesStartTheRestAnew) {
  Graph g;
  const Expr x = g.input("x", {1}), y = stored("y", exp(x)), z = y * 3.0;
  BallEvaluator balls(g, {}, {y, z});
  balls.set(x, Values{1.0});
  balls.run({z});
  const double inexact = balls.result(z).r[0];
  EXPECT_GT(inexact, 0);
  balls.set(y, Values{2.0});
  balls.run({z});
  EXPECT_EQ(balls.result(z).v[0], 6);
  EXPECT_EQ(balls.result(z).r[0], 0);
  balls.release(y);
  balls.run({z});
  EXPECT_EQ(balls.result(z).r[0], inexact);
  balls.set(x, Values{0.0});
  balls.run({z});
  EXPECT_EQ(balls.result(z).v[0], 3);
}

TEST(Ball, StopGradientHasNoRadius) {
  Graph g;
  const Expr x = g.input("x", {3}), shift = stop_gradient(sum(exp(x), 0));
  EXPECT_EQ(evaluate(shift, {{x, {1, 2, 3}}}).r[0], 0);
  EXPECT_GT(evaluate(sum(exp(x), 0), {{x, {1, 2, 3}}}).r[0], 0);
}

TEST(Ball, SwitchesLeaveContributionsOut) {
  Graph g;
  const Expr x = g.input("x", {20}), y = sum(exp(x), 0);
  const Values v = full_mantissas(20, "switch");
  const double all = evaluate(y, {{x, v}}).r[0];
  const double no_sum = evaluate(y, {{x, v}}, {}, {.summation = false}).r[0];
  const double no_exp = evaluate(y, {{x, v}}, {}, {.without = static_cast<int>(Primitive::exp)}).r[0];
  double mass = 0;
  for (const double t : v) mass += std::exp(t);
  EXPECT_NEAR(no_sum, 2 * kU * mass, 1e-9 * all);
  EXPECT_NEAR(no_exp, gamma(19) * mass, 1e-9 * all);
  EXPECT_NEAR(no_sum + no_exp, all, 1e-4 * all);
  EXPECT_EQ(evaluate(y, {{x, v}}, {}, {.summation = false, .without = static_cast<int>(Primitive::exp)}).r[0], 0);
}

// Soundness: random graphs, evaluated in fp32 in several orders, never leave their balls.

}  // namespace
}  // namespace ampcheck::reference
