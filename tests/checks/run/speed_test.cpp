// SPDX-License-Identifier: Apache-2.0
// Paired times and their bootstrap: what is faster is said, what chance may make is not.
#include "checks/run/speed.h"

#include <gtest/gtest.h>

#include "src/random.h"

namespace ampcheck::checks {
namespace {

/// Cases of twelve pairs: the base takes 1 ms, the build `factor` times that, each with noise of up to `noise`.
std::vector<SecondPairs> timed(double factor, double noise, std::uint64_t seed, std::size_t cases = 20) {
  const Random random(seed, "times");
  std::uint64_t index = 0;
  std::vector<SecondPairs> out(cases);
  for (SecondPairs& pairs : out)
    for (int i = 0; i < 12; ++i) {
      const double base = 1e-3 * (1 + noise * random.uniform(index++)),
                   build = factor * 1e-3 * (1 + noise * random.uniform(index++));
      pairs.push_back({base, build});
    }
  return out;
}

TEST(Speed, SlowerFasterAndTheSameAreTold) {
  EXPECT_EQ(speed_of(timed(1, 0.1, 1)).pace, Pace::same);
  EXPECT_EQ(speed_of(timed(1.3, 0.1, 1)).pace, Pace::slow);
  EXPECT_EQ(speed_of(timed(0.7, 0.1, 1)).pace, Pace::fast);
  EXPECT_NEAR(speed_of(timed(1.3, 0.1, 1)).ratio, 1.3, 0.03);
  EXPECT_EQ(name(Pace::unsure), "UNSURE");
}

TEST(Speed, ABusyMachineIsUnsure) {
  EXPECT_EQ(speed_of(timed(1.06, 5, 1, 2)).pace, Pace::unsure);
  EXPECT_EQ(speed_of({}).pace, Pace::unsure) << "nothing was timed";
  EXPECT_EQ(speed_of({{{1e-3, 9e-3}}}).pace, Pace::unsure) << "one pair";
  EXPECT_EQ(speed_of({SecondPairs(12, {0, 0})}).pace, Pace::unsure) << "too short for the clock";
}

/// A difference of 8 % is what two builds of the same code show: never SLOW, whatever the noise.
TEST(Speed, TwoCopiesOfOneLibraryAreNeverSlow) {
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    const Speed speed = speed_of(timed(1.08, 0.2, seed, 8));
    EXPECT_NE(speed.pace, Pace::slow) << seed << " " << speed.low;
    EXPECT_LE(speed.low, speed.ratio);
    EXPECT_GE(speed.high, speed.ratio);
  }
}

TEST(Speed, TheResamplesAreTheSameEachTime) {
  const Speed once = speed_of(timed(1.1, 1, 7)), again = speed_of(timed(1.1, 1, 7));
  EXPECT_EQ(once.low, again.low);
  EXPECT_EQ(once.high, again.high);
}

}  // namespace
}  // namespace ampcheck::checks
