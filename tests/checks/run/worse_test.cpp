// SPDX-License-Identifier: Apache-2.0
// When errors are called worse: how often by chance alone, and whether what is worse is seen.
#include "checks/run/worse.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <tuple>

#include "src/rounding.h"

namespace ampcheck::checks {
namespace {

constexpr std::int64_t kRows = 12, kColumns = 40;

/// The profile of a bf16 tensor around 1 with normal errors: each element its own, and one that a row, a column, or the
/// whole tensor shares.
TensorProfile profile(std::mt19937_64& random, double scale, double of_row, double of_column, double bias = 0,
                      double of_all = 0) {
  std::normal_distribution<double> normal;
  const double all = of_all * normal(random);
  Dump::Entry got{"y.got", Shape({kRows, kColumns}), Dtype::bf16, {}}, want = got, low = got, high = got;
  want.name = "y.want";
  low.name = "y.low";
  high.name = "y.high";
  std::vector<double> columns(kColumns);
  for (double& c : columns) c = of_column * normal(random);
  const FloatFormat& bf16 = format(Dtype::bf16);
  for (std::int64_t i = 0; i < kRows; ++i) {
    const double row = of_row * normal(random);
    for (const double column : columns) {
      const double error = bias + scale * (normal(random) + row + column + all);
      want.values.push_back(1.5);
      got.values.push_back(decode_scalar(bf16, encode_scalar(bf16, 1.5 + error / 128)));
      low.values.push_back(0);
      high.values.push_back(3);
    }
  }
  return profile_of({{got, want, low, high}}).tensors.at("y");
}

/// Cases of two builds, the later with errors of another size or bias.
TensorChange change(std::mt19937_64& random, int cases, double scale, double of_row, double of_column, double bias = 0,
                    double of_all = 0) {
  std::vector<TensorProfile> was, now;
  std::vector<ProfilePair> pairs;
  for (int k = 0; k < cases; ++k) {
    was.push_back(profile(random, 1, of_row, of_column, 0, of_all));
    now.push_back(profile(random, scale, of_row, of_column, bias, of_all));
  }
  for (int k = 0; k < cases; ++k)
    pairs.emplace_back(&was[static_cast<std::size_t>(k)], &now[static_cast<std::size_t>(k)]);
  return change_of(pairs);
}

/// Each test at its level, also where all elements of a row, a column or the whole tensor err together. 6 sigma of the
/// binomial.
TEST(Worse, ChanceAloneIsSeldomCalledWorse) {
  constexpr int kRuns = 400;
  constexpr double kLevel = 0.05;
  for (const auto& [of_row, of_column, of_all] :
       {std::tuple{0.0, 0.0, 0.0}, {3.0, 0.0, 0.0}, {0.0, 3.0, 0.0}, {0.0, 0.0, 3.0}})
    for (const int cases : {1, 4, 20}) {
      std::mt19937_64 random(static_cast<std::uint64_t>(cases));
      int usual = 0, largest = 0, bias = 0;
      for (int k = 0; k < kRuns; ++k) {
        const TensorChange c = change(random, cases, 1, of_row, of_column, 0, of_all);
        usual += c.p_usual < kLevel;
        largest += c.p_max < kLevel;
        bias += c.p_bias < kLevel;
      }
      const double most = kRuns * kLevel + 6 * std::sqrt(kRuns * kLevel * (1 - kLevel));
      for (const int alarms : {usual, largest, bias})
        EXPECT_LE(alarms, most) << "rows " << of_row << " columns " << of_column << " all " << of_all << " cases "
                                << cases;
    }
}

TEST(Worse, LargerErrorsAreSeen) {
  std::mt19937_64 random(7);
  const double level = level_of(1);
  EXPECT_NE(change(random, 40, 1.2, 0, 0).worse(level), "") << "a fifth more, in many cases";
  EXPECT_NE(change(random, 12, 8, 0, 0).worse(level), "") << "three bits less, in few";
  EXPECT_EQ(change(random, 11, 8, 0, 0).worse(level), "") << "fewer than can tell";
  EXPECT_EQ(change(random, 40, 1, 0, 0).worse(level), "");
  EXPECT_EQ(change(random, 40, 0.5, 0, 0).worse(level), "") << "better is not worse";
  EXPECT_NE(change(random, 40, 1, 0, 0, 0.5).worse(level).find("lean"), std::string::npos) << "half an ulp to one side";
}

/// Forward of cases that differ in the incoming gradient alone.
TEST(Worse, CasesThatComputeTheSameHaveOneVote) {
  std::mt19937_64 random(9);
  const TensorProfile was = profile(random, 1, 0, 0), now = profile(random, 8, 0, 0);
  const TensorChange c = change_of(std::vector<ProfilePair>(50, {&was, &now}));
  EXPECT_EQ(c.changed, 50);
  EXPECT_EQ(c.votes(), 1);
  EXPECT_EQ(c.worse(level_of(1)), "");
}

TEST(Worse, AnElementThatIsWronglyInfiniteIsSeenAtOnce) {
  std::mt19937_64 random(8);
  const TensorProfile was = profile(random, 1, 0, 0);
  TensorProfile now = was;
  now.not_finite = 1;
  EXPECT_NE(change_of({{&was, &now}}).worse(level_of(1)), "");
}

TEST(Worse, TheLevelIsSharedByAllTensors) {
  EXPECT_DOUBLE_EQ(level_of(10), level_of(1) / 10);
  EXPECT_GT(TensorChange::needed(level_of(10)), TensorChange::needed(level_of(1)));
  TensorChange all;
  all.changed = all.larger = TensorChange::needed(level_of(1));
  all.p_usual = std::exp2(-all.larger);
  EXPECT_NE(all.worse(level_of(1)), "");
}

/// Numbers that can be counted by hand.
TEST(Profile, CountsErrorsInUlps) {
  const Shape shape({2, 3});
  const double ulp = 1.0 / 128;
  const Dump dump{{{"x", shape, Dtype::bf16, {1, 1, 1, 1, 1, 1}},
                   {"y.got", shape, Dtype::bf16, {1, 1 + ulp, 1 - 2 * ulp, 1 + 4 * ulp, HUGE_VAL, 7}},
                   {"y.want", shape, Dtype::fp64, {1 + ulp / 8, 1, 1, 1, 1, 1}},
                   {"y.low", shape, Dtype::bf16, {0, 0, 0, 0, 0, -HUGE_VAL}},
                   {"y.high", shape, Dtype::bf16, {9, 9, 9, 9, 9, HUGE_VAL}}}};
  const CaseProfile out = profile_of(dump);
  const TensorProfile& y = out.tensors.at("y");
  EXPECT_EQ(y.elements, 6);
  EXPECT_EQ(y.open, 1);
  EXPECT_EQ(y.not_finite, 1);
  EXPECT_EQ(y.max, 4);
  EXPECT_EQ(y.bias, (0 + 1 - 2 + 4) / 4.0);
  EXPECT_EQ(y.rms, std::sqrt((1 + 4 + 16) / 4.0));
  EXPECT_EQ(y.histogram, (std::map<int, std::int64_t>{{0, 1}, {1, 1}, {2, 1}}));
  ASSERT_EQ(y.worst.size(), 3u);
  EXPECT_EQ(y.worst.front().index, "[1,0]");
  Dump other = dump;
  other.entries[1].values[0] = -0.0;
  EXPECT_NE(profile_of(other).tensors.at("y").bits, y.bits);
  EXPECT_EQ(profile_of(other).inputs, out.inputs);
  other.entries[0].values[0] = 2;
  EXPECT_NE(profile_of(other).inputs, out.inputs);
}

}  // namespace
}  // namespace ampcheck::checks
