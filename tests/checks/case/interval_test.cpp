// SPDX-License-Identifier: Apache-2.0
#include "checks/case/interval.h"

#include <gtest/gtest.h>

#include <cmath>

#include "src/random.h"
#include "src/rounding.h"

namespace ampcheck::checks {
namespace {

using reference::Ball;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Ball ball(const std::vector<double>& v, const std::vector<double>& r, const std::vector<std::uint8_t>& flags = {},
          const std::vector<double>& replay = {}) {
  Ball out;
  out.shape = {static_cast<std::int64_t>(v.size())};
  out.v = reference::make_channel(out.count());
  out.r = reference::make_channel(out.count());
  std::copy(v.begin(), v.end(), out.v.get());
  std::copy(r.begin(), r.end(), out.r.get());
  reference::measure(out);
  if (flags.empty()) return out;
  out.flags = std::shared_ptr<std::uint8_t[]>(new std::uint8_t[flags.size()]);
  out.replay = reference::make_channel(out.count());
  std::copy(flags.begin(), flags.end(), out.flags.get());
  std::copy(replay.begin(), replay.end(), out.replay.get());
  return out;
}
Interval one(double v, double r, Dtype dtype = Dtype::bf16) { return interval_of(ball({v}, {r}), dtype, "form", true); }
Interval flagged(double v, double r, std::uint8_t flag, double replay, bool finite = true) {
  return interval_of(ball({v}, {r}, {flag}, {replay}), Dtype::fp32, "form", finite);
}
/// The neighbour of a stored number.
double next(const FloatFormat& format, double x, int steps) {
  return decode_scalar(format, encode_scalar(format, x) + static_cast<std::uint64_t>(steps));
}

TEST(Interval, RoundsItsEndsToStorage) {
  const Interval at = one(1.0 + 0x1p-10, 0x1p-7);
  EXPECT_EQ(at.low[0], 1 - 0x1p-7);  // 0.9932 on the grid of 2^-8 below one
  EXPECT_EQ(at.high[0], 1 + 0x1p-7);
  for (const double got : {at.low[0], 1.0, at.high[0]}) EXPECT_TRUE(admits(at, 0, got));
  EXPECT_FALSE(admits(at, 0, next(kBf16, at.high[0], 1)));
  EXPECT_FALSE(admits(at, 0, next(kBf16, at.low[0], -1)));
}

TEST(Interval, NaNNeverLiesInOne) {
  for (const double v : {0.0, 1.0, 3e38}) EXPECT_FALSE(admits(one(v, 1e30), 0, kNan));
  EXPECT_EQ(compare({kNan}, one(1, 0.5)).outside.size(), 1u);
  EXPECT_EQ(compare({kNan}, one(0, 0)).outside.size(), 1u);
}

TEST(Interval, OneValueIntervalsAreJudged) {
  const Interval exact = one(1 + 0x1p-8 + 0x1p-20, 0);  // just above a tie
  EXPECT_EQ(exact.low[0], 1 + 0x1p-7);
  EXPECT_EQ(exact.high[0], 1 + 0x1p-7);
  const Comparison right = compare({1 + 0x1p-7}, exact), wrong = compare({1.0}, exact);
  EXPECT_TRUE(right.outside.empty());
  EXPECT_EQ(right.blind, 0);
  EXPECT_EQ(wrong.outside.size(), 1u);
}

TEST(Interval, BinadeEdges) {
  const Interval at = one(2 - 0x1p-12, 0x1p-11);  // the spacing doubles at 2
  EXPECT_EQ(at.low[0], 2);
  EXPECT_EQ(at.high[0], 2);
  const Interval wide = one(2, 0x1p-6);
  EXPECT_EQ(wide.low[0], 2 - 0x1p-6);
  EXPECT_EQ(wide.high[0], 2 + 0x1p-6);
  EXPECT_TRUE(admits(wide, 0, 2 - 0x1p-7));
}

TEST(Interval, Subnormals) {
  const double step = kBf16.min_subnormal();
  const Interval at = one(2.25 * step, 0);
  EXPECT_EQ(at.low[0], 2 * step);
  EXPECT_EQ(one(0.5 * step, 0).high[0], 0);  // a tie goes to even, which is zero
  EXPECT_EQ(one(0.5 * step, 0.25 * step).high[0], step);
  EXPECT_TRUE(admits(one(-0.25 * step, 0), 0, 0.0));
  EXPECT_FALSE(admits(at, 0, 0));
}

TEST(Interval, OverflowToInfinity) {
  const double max = kFp16.max_finite();  // 65504; the next would be 65536, and 65520 rounds away
  EXPECT_EQ(one(65519.9, 0, Dtype::fp16).high[0], max);
  EXPECT_EQ(one(65520, 0, Dtype::fp16).high[0], kInf);
  const Interval both = one(65519, 2, Dtype::fp16);
  EXPECT_TRUE(admits(both, 0, max));
  EXPECT_TRUE(admits(both, 0, kInf));
  EXPECT_FALSE(admits(both, 0, -kInf));
  EXPECT_FALSE(admits(both, 0, next(kFp16, max, -1)));
  EXPECT_FALSE(admits(one(65504, 8, Dtype::fp16), 0, kInf));
}

TEST(Interval, SignedZeroIsFree) {
  for (const double zero : {0.0, -0.0})
    for (const double got : {0.0, -0.0}) EXPECT_TRUE(admits(one(zero, 0), 0, got));
  EXPECT_FALSE(admits(one(0, 0), 0, kBf16.min_subnormal()));
}

TEST(Interval, Classes) {
  const Interval infinite = flagged(kInf, 0, 0, kInf, false),
                 maybe = flagged(-kInf, 0, reference::kMayBeNan, -kInf, false);
  EXPECT_EQ(infinite.how[0], Judgement::infinite);
  EXPECT_TRUE(admits(infinite, 0, kInf));
  for (const double wrong : {-kInf, kNan, 3e38}) EXPECT_FALSE(admits(infinite, 0, wrong));
  EXPECT_EQ(maybe.how[0], Judgement::maybe_nan);
  EXPECT_TRUE(admits(maybe, 0, kNan));
  EXPECT_TRUE(admits(maybe, 0, -kInf));
  EXPECT_FALSE(admits(maybe, 0, kInf));

  const Interval nan = flagged(kNan, 0, 0, kNan, false);
  EXPECT_EQ(nan.how[0], Judgement::non_finite);
  for (const double right : {kNan, kInf, -kInf}) EXPECT_TRUE(admits(nan, 0, right));
  EXPECT_FALSE(admits(nan, 0, 0));
  EXPECT_EQ(flagged(kNan, 0, 0, kNan, true).how[0], Judgement::open);  // 0/0 of the formula itself

  const Interval open = one(1, kInf);
  EXPECT_EQ(open.how[0], Judgement::unbounded);
  EXPECT_EQ(compare({kNan}, open).range, 1);
  EXPECT_EQ(compare({kNan}, open).outside.size(), 0u);
}

TEST(Interval, WhereThereIsNoInfinityWhatOverflowsIsNaNOrTheLargest) {
  const auto admitted = [](double v, double r, double got) { return admits(one(v, r, Dtype::e4m3fn), 0, got); };
  for (const double v : {464.1, 1e6, -1e6, kInf, -kInf}) {
    EXPECT_TRUE(admitted(v, 0, kNan)) << v;
    EXPECT_TRUE(admitted(v, 0, std::copysign(448, v))) << v;
    for (const double wrong : {std::copysign(240, v), std::copysign(416, v), std::copysign(448, -v), 0.0})
      EXPECT_FALSE(admitted(v, 0, wrong)) << v << " " << wrong;
  }
  EXPECT_TRUE(admitted(464, 0, 448)) << "the tie rounds to the largest number";
  EXPECT_FALSE(admitted(464, 0, kNan));
  EXPECT_TRUE(admitted(460, 5, kNan)) << "may overflow";
  EXPECT_FALSE(admitted(440, 5, kNan));
  EXPECT_FALSE(admits(one(1e6, 0, Dtype::e5m2), 0, kNan)) << "has an infinity";
  EXPECT_TRUE(admits(one(1e6, 0, Dtype::e5m2), 0, kInf));
}

TEST(Interval, ABallThatHoldsEveryNumberSaysNothingOfNaN) {
  const std::vector<double> v = {0, 1e30, 0, 1e38}, r = {1e130, 1e39, 1e38, 4e38};
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16}) {
    const Interval i = interval_of(ball(v, r), dtype, "", true);
    EXPECT_TRUE(admits(i, 0, kNan)) << "exp of a difference that is all rounding";
    EXPECT_TRUE(admits(i, 1, kNan));
    EXPECT_FALSE(admits(i, 2, kNan)) << "fp32 never met its end";
    EXPECT_FALSE(admits(i, 3, kNan)) << "nothing below -3e38";
  }
}

TEST(Interval, LeftRangeTakesTheReplayIn) {
  const Interval hull = flagged(1, 0x1p-20, reference::kLeftRange, 2);
  EXPECT_TRUE(admits(hull, 0, 1));
  EXPECT_TRUE(admits(hull, 0, 1.5));
  EXPECT_TRUE(admits(hull, 0, 2 * (1 + 0x1p-7)));
  EXPECT_FALSE(admits(hull, 0, 2.1));
  EXPECT_FALSE(admits(hull, 0, kNan));
  EXPECT_EQ(flagged(1, 0, reference::kLeftRange, kNan).how[0], Judgement::open);
  EXPECT_EQ(flagged(kInf, 0, reference::kLeftRange, 1).how[0], Judgement::open);
  EXPECT_EQ(flagged(1e39, 1e30, reference::kOverflowed, kInf).high[0], kInf);  // own overflow: RN decides
  EXPECT_FALSE(admits(flagged(1e39, 1e30, reference::kOverflowed, kInf), 0, 3e38));
}

TEST(Comparison, BlindIsZeroAndTwice) {
  EXPECT_EQ(compare({1e-3}, one(1e-3, 1.1e-3)).blind, 1);
  EXPECT_EQ(compare({1e-3}, one(1e-3, 0.9e-3)).blind, 0);  // zero would be seen
  EXPECT_EQ(compare({0}, one(0, 1e-3)).blind, 1);
  EXPECT_EQ(compare({0}, one(0, 0)).blind, 0);  // a structural zero is judged
  EXPECT_EQ(compare({-1e-3}, one(-1e-3, 1.1e-3)).blind, 1);
  EXPECT_EQ(compare({1.0}, one(1e-3, 1.1e-3)).blind, 0);  // outside is outside
}

TEST(Comparison, BlocksSayWhatElementsSay) {
  const Random random(5, "comparison");
  for (const std::size_t n : {0u, 1u, 1023u, 1024u, 1025u, 5000u}) {
    std::vector<double> v(n), r(n), got(n);
    for (std::size_t i = 0; i < n; ++i) {
      v[i] = random.normal(i);
      r[i] = random.below(2 * i, 3) == 0 ? 0.0 : 0.01 * random.uniform(i);
      got[i] = random.below(7 * i + 1, 50) == 0 ? kNan : v[i] + 0.02 * (random.uniform(3 * i) - 0.5);
    }
    round_values(kBf16, RoundingMode{}, got, got);
    const Interval interval = interval_of(ball(v, r), Dtype::bf16, "form", true);
    const Comparison found = compare(got, interval);
    std::vector<std::int64_t> outside;
    for (std::size_t i = 0; i < n; ++i)
      if (!admits(interval, static_cast<std::int64_t>(i), got[i])) outside.push_back(static_cast<std::int64_t>(i));
    EXPECT_EQ(found.outside, outside);
    EXPECT_EQ(found.compared, static_cast<std::int64_t>(n));
    EXPECT_LE(found.max_ratio, 1);
    if (n <= 100) continue;
    EXPECT_GT(outside.size(), n / 50);
    EXPECT_LT(outside.size(), n);
  }
}

TEST(Comparison, ExcessIsAtMostOneInside) {
  const Random random(6, "excess");
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const double v = random.normal(i), r = std::ldexp(random.uniform(i), -static_cast<int>(random.below(3 * i, 16)));
    const Interval interval = one(v, r, Dtype::fp16);
    for (const double got : {interval.low[0], interval.high[0]}) {
      EXPECT_TRUE(admits(interval, 0, got));
      EXPECT_LE(compare({got}, interval).max_ratio, 1);
    }
    // Clearly outside: more than the radius and half a step of the result beyond.
    const double far = next(kFp16, v > 0 ? interval.high[0] : interval.low[0], 2);
    EXPECT_GT(excess_ratio(interval, 0, far), 1) << v << " " << r;
  }
  EXPECT_EQ(excess_ratio(one(1, 0), 0, 1), 0);
  EXPECT_EQ(excess_ratio(one(1, 0), 0, 1.5), kInf);
  EXPECT_EQ(excess_ratio(one(1, 0.5), 0, kNan), kInf);
}

TEST(ExcessRatio, TakesTheSpacingOnTheSideOfTheValue) {
  // Below 1 the numbers of bf16 lie 2^-8 apart: from 1 - 2^-8 it is half of that to where rounding gives 1.
  const double v = 1 - 0x1p-8, r = 0x1.1p-9;
  EXPECT_TRUE(admits(one(v, r, Dtype::bf16), 0, 1.0));
  EXPECT_NEAR(excess_ratio(one(v, r, Dtype::bf16), 0, 1.0), 16.0 / 17, 1e-9);
  EXPECT_NEAR(excess_ratio(one(-v, r, Dtype::bf16), 0, -1.0), 16.0 / 17, 1e-9);
  // Above it they lie 2^-7 apart.
  EXPECT_NEAR(excess_ratio(one(1 + 0x1p-7, 0x1.1p-8, Dtype::bf16), 0, 1.0), 16.0 / 17, 1e-9);
}

TEST(ExcessRatio, OfARadiusBelowTheReferencesOwnErrorIsNotUsedUp) {
  // A tie of bf16 within an ulp of fp64: what decides it is the widening, not the radius.
  const double v = 1 + 0x1p-8 - 0x1p-52;
  const Comparison found = compare({1 + 0x1p-7}, one(v, 0x1p-149, Dtype::bf16));
  EXPECT_TRUE(found.outside.empty());
  EXPECT_NEAR(found.max_ratio, 0.5, 0.01);
}

TEST(Comparison, AFurtherFormTakesOnlyWhatItAdmits) {
  const std::vector<double> got = {1.5, 2.5, 7, kInf, kNan};
  for (const bool finite : {true, false}) {
    const Interval first = interval_of(ball({1, 2, 3, 4, 5}, {0, 0, 0, 0, 0}), Dtype::fp32, "a", finite);
    const Interval second = interval_of(ball({1, 2.5, 3, kInf, 5}, {0, 0, kInf, 0, kInf}), Dtype::fp32, "b", finite);
    Comparison found = compare(got, first);
    EXPECT_EQ(found.outside.size(), 5u);
    accept_form(got, second, 0, found);
    // Of finite inputs an infinity or NaN is excused by no form. The third is a number, and any number is rounding
    // there.
    EXPECT_EQ(found.outside, (finite ? std::vector<std::int64_t>{0, 3, 4} : std::vector<std::int64_t>{0}));
    EXPECT_EQ(found.range, finite ? 1 : 2);
    EXPECT_EQ(found.by_forms, finite ? 1 : 2);
    EXPECT_LE(found.max_ratio, 1);
  }
}

TEST(AddedTo, WhatTheBufferHeldIsOneMoreTerm) {
  reference::Graph graph;
  const reference::Expr x = graph.input("x", Shape{3, 4}), y = reference::sum(x, 1);
  reference::BallEvaluator balls(graph, {}, {y});
  balls.adds_on(y);
  balls.set(x, std::vector<double>{0.25, 0.25, 0, 0, 0, 0, 0, 0, 0.1, 0.2, 0.3, 0.4});
  balls.run({y});
  const std::vector<double> held{1.25, 3.75, 1};
  const Interval got = interval_of(balls.added_to(balls.result(y), held), Dtype::fp32, "form", true);
  EXPECT_EQ(got.low[0], 1.75);
  EXPECT_EQ(got.high[0], 1.75);
  EXPECT_TRUE(admits(got, 1, 3.75));
  EXPECT_FALSE(admits(got, 0, 0.5));  // overwritten
  EXPECT_GT(got.radius[2],
            3 * kFp32.unit_roundoff());  // four roundings of numbers from 1 to 2, if it is added term by term
  EXPECT_LT(got.radius[2], 9 * kFp32.unit_roundoff());
}

TEST(UlpDistance, CountsSteps) {
  EXPECT_EQ(ulp_distance(kBf16, 1, 1), 0);
  EXPECT_EQ(ulp_distance(kBf16, 1, 1 + 0x1p-7), 1);
  EXPECT_EQ(ulp_distance(kFp32, 1, 1 + 0x1p-23), 1);
  EXPECT_EQ(ulp_distance(kBf16, 0, kBf16.min_subnormal()), 1);
  EXPECT_EQ(ulp_distance(kBf16, -kBf16.min_subnormal(), kBf16.min_subnormal()), 2);
  EXPECT_EQ(ulp_distance(kFp16, kInf, kInf), 0);
  EXPECT_EQ(ulp_distance(kFp16, kNan, kNan), 0);
  EXPECT_EQ(ulp_distance(kFp16, kNan, 1), kInf);
  EXPECT_EQ(ulp_distance(kFp16, 1, kInf), kInf);
}

TEST(ElementOf, ShowsIndexBitsAndInterval) {
  Interval interval = interval_of(ball({1, 2, 3, 4, 5, 6}, {0, 0, 0, 0, 0x1p-4, 0}), Dtype::bf16, "e/l", true);
  interval.shape = {2, 3};
  const Element at = element_of(interval, 4, 5.5, 0x40b0);
  EXPECT_EQ(at.index, (std::vector<std::int64_t>{1, 1}));
  EXPECT_EQ(at.got, 5.5);
  EXPECT_EQ(at.want, 5);
  EXPECT_EQ(at.want_bits, 0x40a0u);
  EXPECT_EQ(at.low, 5 - 0x1p-4);
  EXPECT_EQ(at.high, 5 + 0x1p-4);
  EXPECT_EQ(at.ulp, 16);
  EXPECT_EQ(at.interval_from, "e/l");
}

// exp(x y - z) may pass the largest number or not, by the rounding of x y: a product with zero is 0 or NaN, and open.
TEST(Judgement, AnOverflowThatRoundingDecidesIsOpen) {
  using reference::Expr;
  using Values = std::vector<double>;
  reference::Graph g;
  const Expr x = g.input("x", {1}), y = g.input("y", {1}), z = g.input("z", {1}), w = g.input("w", {1});
  const Expr target = exp(x * y - z) * w;
  const auto open_at = [&](double shift) {
    reference::BallEvaluator balls(g, {}, {target});
    balls.set(x, Values{300.3125});
    balls.set(y, Values{300.0078125});
    balls.set(z, Values{300.3125 * 300.0078125 - 88.7228394 + shift});
    balls.set(w, Values{0});
    balls.run({target});
    return (balls.result(target).flags[0] & reference::kLeftRange) != 0 &&
           !std::isfinite(balls.result(target).replay[0]);
  };
  EXPECT_TRUE(open_at(0)) << "88.72 +- 0.005, around the logarithm of the largest number";
  EXPECT_FALSE(open_at(1)) << "surely finite";
}

/// Values of the normal range and the codes nearest to them.
struct Codes {
  std::vector<double> values;
  std::vector<std::uint16_t> codes;
  Ball ball;
  /// What stays open; more than `most` is nothing.
  std::vector<std::int64_t> open(Dtype dtype, std::size_t most = 1000) const {
    std::vector<std::int64_t> out;
    return unsettled_codes(reinterpret_cast<const std::byte*>(codes.data()), codes.size(), ball, 0, dtype, out, most)
               ? out
               : std::vector<std::int64_t>{-1};
  }
  bool settled(Dtype dtype) const { return open(dtype).empty(); }
};
Codes codes_of(std::vector<double> values, Dtype dtype, double absolute) {
  Codes out;
  out.codes.resize(values.size());
  encode(format(dtype), {}, values, out.codes.data());
  out.ball = ball(values, std::vector<double>(values.size(), 0));
  out.ball.r = nullptr;
  out.ball.all.relative = 0x1p-20;
  out.ball.all.absolute = absolute;
  out.values = std::move(values);
  return out;
}

/// A code that is not the nearest, wherever it stands, whatever the vectors; and what the test of values leaves open is
/// never settled.
TEST(SettledCodes, EveryWidthSeesEveryWrongCodeAndSettlesTheRightOnes) {
  const Random random(5, "codes");
  for (const std::string_view target : simd_targets())
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp16})
      for (const bool own_radii : {false, true})
        for (const std::size_t n : {1u, 3u, 8u, 17u, 40u}) {
          set_simd_target(target);
          std::vector<double> values(n);
          for (std::size_t i = 0; i < n; ++i)
            values[i] = (random.uniform(i) + 0.5) * (i % 3 == 0 ? -1 : 1) *
                        std::ldexp(1.0, static_cast<int>(random.below(i, 20)) - 10);
          Codes at = codes_of(values, dtype, 0x1p-20);
          if (own_radii) {
            at.ball.r = reference::make_channel(at.ball.count());
            std::fill_n(at.ball.r.get(), n, 0x1p-20);
          }
          EXPECT_TRUE(at.settled(dtype)) << target << " " << n;
          for (std::size_t i = 0; i < n; ++i)
            for (const int wrong : {1, -1, 0x8000}) {
              Codes off = at;
              off.codes[i] = static_cast<std::uint16_t>(off.codes[i] + wrong);
              EXPECT_FALSE(off.settled(dtype)) << target << " " << n << " at " << i << " by " << wrong;
              Codes near_zero = at;  // it might be blind
              if (own_radii) {
                near_zero.ball.r = reference::make_channel(at.ball.count());
                std::fill_n(near_zero.ball.r.get(), n, 0.0);
                near_zero.ball.r[static_cast<std::ptrdiff_t>(i)] = std::fabs(values[i]);
              } else
                near_zero.ball.all.absolute = std::fabs(values[i]);
              EXPECT_FALSE(near_zero.settled(dtype)) << target << " " << n << " at " << i;
            }
        }
  set_simd_target("");
}

TEST(SettledCodes, TiesGoToTheEvenCodeAndTheEndsOfTheRangeStayOpen) {
  for (const std::string_view target : simd_targets())
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp16}) {
      set_simd_target(target);
      const FloatFormat& f = format(dtype);
      const double u = f.unit_roundoff();
      Codes tie = codes_of({1 + u, 1 + 3 * u, -1 - u}, dtype, 0);
      EXPECT_TRUE(tie.settled(dtype)) << target;
      ++tie.codes[0];  // as near, but odd
      EXPECT_FALSE(tie.settled(dtype)) << target;
      for (const double v : {0.0, f.min_subnormal(), f.max_finite() * (1 + u), 2 * f.max_finite()})
        EXPECT_FALSE(codes_of({1, v, 1}, dtype, 0).settled(dtype)) << target << " " << v;
      EXPECT_TRUE(codes_of({f.min_normal() * 1024, f.max_finite(), -1}, dtype, 0).settled(dtype)) << target;
      EXPECT_TRUE(codes_of({1, f.min_normal() / 2, 1}, dtype, 0).settled(dtype))
          << target << ": a subnormal code is looked at by value";
    }
  set_simd_target("");
}

/// A value far beyond the format's largest number: the bits of its code that a code has no room for make none of those
/// that it has right.
TEST(SettledCodes, ACodeIsNotThatOfAValueWithTheSameLowBits) {
  for (const std::string_view target : simd_targets())
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp16}) {
      set_simd_target(target);
      const FloatFormat& f = format(dtype);
      for (int exponent = f.max_exponent() + 1; exponent < 1024; ++exponent)
        for (const double sign : {1.0, -1.0})
          for (const int negative : {0, 0x8000}) {
            Codes at = codes_of(std::vector<double>(9, std::ldexp(sign * 1.25, exponent)), dtype, 0);
            const int code = (exponent + f.bias) << f.fraction_bits() | 1 << (f.fraction_bits() - 2);
            at.codes.assign(9, static_cast<std::uint16_t>((code & 0x7fff) | negative));
            EXPECT_FALSE(at.settled(dtype))
                << target << " 2^" << exponent << " taken for " << decode_scalar(f, at.codes[0]);
          }
    }
  set_simd_target("");
}

/// It leaves open what the test of values does, element by element: at random values beside ties, at random codes
/// beside the nearest.
TEST(SettledCodes, LeaveOpenWhatTheTestOfValuesDoes) {
  const Random random(6, "codes beside ties");
  std::size_t all = 0, left = 0;
  for (const std::string_view target : simd_targets())
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp16})
      for (std::uint64_t round = 0; round < 40; ++round) {
        set_simd_target(target);
        const FloatFormat& f = format(dtype);
        std::vector<double> values, got;
        std::vector<std::uint16_t> codes;
        for (std::uint64_t k = 0; k < 300 + round; ++k) {
          const std::uint64_t i = 4 * (1000 * round + k), code = f.max_code() * random.below(i, 1000) / 1000;
          const double x = decode_scalar(f, code), half = (decode_scalar(f, code + 1) - x) / 2;
          values.push_back(x + half * (1 + (static_cast<double>(random.below(i + 1, 5)) - 2) * 0x1p-30));
          codes.push_back(
              static_cast<std::uint16_t>(code + (random.below(i + 2, 3) == 0 ? 1 - random.below(i + 3, 2) : 0)));
          if (codes.back() == code) values.back() = x;  // most are right
          got.push_back(decode_scalar(f, codes.back()));
        }
        Codes at = codes_of(values, dtype, round % 2 == 0 ? 0.0 : decode_scalar(f, f.max_code() / 3));
        at.codes = codes;
        std::vector<std::int64_t> want;
        unsettled(got, at.ball, 0, dtype, want);
        EXPECT_EQ(at.open(dtype), want) << target << " " << round;
        all += values.size();
        left += want.size();
      }
  set_simd_target("");
  EXPECT_GT(left, all / 20);
  EXPECT_LT(left, all / 2);
}

TEST(SettledCodes, MoreThanWantedAreNotListed) {
  Codes at = codes_of(std::vector<double>(500, 1.0), Dtype::bf16, 0);
  for (const std::size_t i : {3u, 130u, 131u, 400u}) ++at.codes[i];
  EXPECT_EQ(at.open(Dtype::bf16, 4), (std::vector<std::int64_t>{3, 130, 131, 400}));
  EXPECT_EQ(at.open(Dtype::bf16, 3), std::vector<std::int64_t>{-1});
}

}  // namespace
}  // namespace ampcheck::checks
