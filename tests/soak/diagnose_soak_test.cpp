// SPDX-License-Identifier: Apache-2.0
// The whole planted suite: the goals of `ampcheck audit diagnose`.
#include <gtest/gtest.h>

#include <cstdlib>

#include "checks/diagnose/score.h"

namespace ampcheck::checks::diagnose {
namespace {

TEST(DiagnoseSoak, TheGoalsAreMet) {
  if (std::getenv("AMPCHECK_SOAK_SEEDS") != nullptr)
    GTEST_SKIP() << "whole, without AMPCHECK_SOAK_SEEDS alone: the quick tests sample it";
  std::vector<Trial> trials;
  for (const PlantedRun& run : planted_runs()) trials.push_back(try_run(run, false));
  const Score s = score(trials);
  EXPECT_GE(s.planted, 40);
  EXPECT_GE(s.controls, 25);
  EXPECT_TRUE(goals_met(s)) << s.top1 << " of " << s.planted << ", " << s.false_alarms << " false alarms";
}

}  // namespace
}  // namespace ampcheck::checks::diagnose
