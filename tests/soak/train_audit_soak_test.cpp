// SPDX-License-Identifier: Apache-2.0
// The whole audit of training runs: `ampcheck audit train`.
#include <gtest/gtest.h>

#include <cstdlib>

#include "checks/audit/train_audit.h"

namespace ampcheck::checks::train_audit {
namespace {

TEST(TrainAuditSoak, MeetsItsGoals) {
  if (std::getenv("AMPCHECK_SOAK_SEEDS") != nullptr)
    GTEST_SKIP() << "whole, without AMPCHECK_SOAK_SEEDS alone: the quick tests sample it";
  const std::vector<Trial> trials = audit({});
  const Score kernels = score(trials, Part::kernel), steps = score(trials, Part::step);
  EXPECT_GE(kernels.found, kKernelGoal * kernels.trials);
  EXPECT_EQ(steps.found, steps.trials);
  EXPECT_EQ(score(trials, Part::variant).found, 0);
  const Score healthy = score(trials, Part::healthy);
  EXPECT_EQ(healthy.trials, 300);
  EXPECT_EQ(healthy.found, 0);
}

}  // namespace
}  // namespace ampcheck::checks::train_audit
