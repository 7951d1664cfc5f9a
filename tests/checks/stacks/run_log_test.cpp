// SPDX-License-Identifier: Apache-2.0
// Logs of a loss, a norm and a learning rate: planted troubles with their step, and healthy runs that are not flagged.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>

#include "checks/stacks/run_log.h"
#include "src/random.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks::stacks {
namespace {

using testing::contains;

struct Curve {
  int steps = 200;
  double noise = 0.05;
  std::uint64_t seed = 1;
  std::function<void(int, double&, double&, double&)> plant = {};  ///< changes loss, norm and lr of a step
};

/// A loss that falls from ln 50000 as losses do, with a norm and a warm-up, in one of several forms of line.
std::string log_of(const Curve& curve, int form) {
  Random random(curve.seed, "run log");
  std::string out;
  for (int i = 1; i <= curve.steps; ++i) {
    const auto noise = [&](std::uint64_t k) {
      return curve.noise *
             (static_cast<double>(random.bits(static_cast<std::uint64_t>(i) * 4 + k) >> 40) * 0x1p-24 - 0.5);
    };
    double loss = 2.5 + 8.3 * std::exp(-i / 40.0) + noise(0), norm = 0.8 + 3 * std::exp(-i / 20.0) + 4 * noise(1),
           lr = 1e-4 * std::min(1.0, i / 20.0);
    if (curve.plant) curve.plant(i, loss, norm, lr);
    const auto text = [](double v) {
      return std::isnan(v) ? std::string("nan") : std::isinf(v) ? "inf" : fmt::format("{:.6g}", v);
    };
    switch (form) {
      case 0:
        out += fmt::format("{{'loss': {}, 'grad_norm': {}, 'learning_rate': {}, 'epoch': 0.1}}\n", text(loss),
                           text(norm), text(lr));
        break;
      case 1:
        out += fmt::format("[titan] step: {:2}  loss: {}  grad_norm: {}  memory: 10.5GiB  tps: 5,000\n", i, text(loss),
                           text(norm));
        break;
      case 2:
        out += (i == 1 ? "step,loss,grad_norm,lr\n" : "") +
               fmt::format("{},{},{},{}\n", i, text(loss), text(norm), text(lr));
        break;
      default: out += fmt::format("iter {}: loss {}, time 12.00ms, lr {}\n", i, text(loss), text(lr)); break;
    }
  }
  return out;
}

TEST(RunLogs, EachFormIsReadWithItsSteps) {
  for (int form = 0; form < 4; ++form) {
    const LogDiagnosis found = diagnose_log(log_of({}, form));
    EXPECT_EQ(found.steps.size(), 200u) << form;
    EXPECT_EQ(found.trouble, LogTrouble::none) << form << " " << found.what;
    EXPECT_EQ(found.steps[9].step.value_or(10), 10) << form;
    EXPECT_EQ(found.steps[9].step.has_value(), form > 0);
    EXPECT_EQ(found.steps[9].norm.has_value(), form != 3);
  }
}

TEST(RunLogs, HealthyRunsAreNotFlagged) {
  int flagged = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed)
    for (const double noise : {0.01, 0.3, 2.0}) flagged += diagnose_log(log_of({300, noise, seed, {}}, 2)).wrong();
  EXPECT_EQ(flagged, 0);
}

TEST(RunLogs, ASpikeThatIsMadeGoodIsNoDivergence) {
  const LogDiagnosis found = diagnose_log(log_of({200, 0.05, 1,
                                                  [](int i, double& loss, double&, double&) {
                                                    if (i >= 120 && i < 126) loss += 4;
                                                  }},
                                                 2));
  EXPECT_FALSE(found.wrong()) << found.what;
}

TEST(RunLogs, ANanInTheLossIsTheForwardsWhereTheNormBeforeIsFinite) {
  for (int form = 0; form < 4; ++form) {
    const LogDiagnosis found = diagnose_log(log_of({200, 0.05, 2,
                                                    [](int i, double& loss, double& norm, double&) {
                                                      if (i >= 137) loss = norm = NAN;
                                                    }},
                                                   form));
    EXPECT_EQ(found.kind, "loss_not_finite") << form;
    ASSERT_EQ(found.first_bad, 136) << form;
    EXPECT_TRUE(found.wrong());
    if (form == 3) continue;
    ASSERT_FALSE(found.excluded.empty());
    EXPECT_TRUE(contains(found.excluded.front(), "the gradients of ")) << found.excluded.front();
    EXPECT_TRUE(contains(found.left.front(), "the forward of ")) << found.left.front();
  }
}

TEST(RunLogs, ANanInTheNormAloneIsTheBackwards) {
  const LogDiagnosis found = diagnose_log(log_of({200, 0.05, 3,
                                                  [](int i, double& loss, double& norm, double&) {
                                                    if (i >= 137) norm = NAN;
                                                    if (i >= 138) loss = NAN;
                                                  }},
                                                 1));
  EXPECT_EQ(found.kind, "norm_not_finite");
  EXPECT_EQ(found.first_bad, 136);
  EXPECT_TRUE(contains(found.excluded.front(), "the forward of step 137: its loss is finite"))
      << found.excluded.front();
}

TEST(RunLogs, SingleInfiniteNormsAreSkippedSteps) {
  const LogDiagnosis found = diagnose_log(log_of({200, 0.05, 4,
                                                  [](int i, double&, double& norm, double&) {
                                                    if (i == 40 || i == 90) norm = INFINITY;
                                                  }},
                                                 1));
  EXPECT_EQ(found.trouble, LogTrouble::skipped);
  EXPECT_EQ(found.first_bad, 39);
  EXPECT_FALSE(found.wrong());
}

TEST(RunLogs, ARiseHasItsStepAndThePrecursorOfTheNorm) {
  const LogDiagnosis found = diagnose_log(log_of({300, 0.05, 5,
                                                  [](int i, double& loss, double& norm, double&) {
                                                    if (i >= 180) norm *= 1 + (i - 179) * 0.2;
                                                    if (i >= 220) loss += (i - 219) * 0.05;
                                                  }},
                                                 2));
  EXPECT_EQ(found.kind, "loss_rises");
  EXPECT_NEAR(static_cast<double>(*found.steps[static_cast<std::size_t>(found.first_bad)].step), 220, 4);
  ASSERT_GE(found.precursor, 0);
  EXPECT_NEAR(static_cast<double>(*found.steps[static_cast<std::size_t>(found.precursor)].step), 181, 6);
}

TEST(RunLogs, AJumpOfTheRateIsLeftAndASteadyOneExcluded) {
  const auto jump = [](double factor) {
    return log_of({200, 0.05, 6,
                   [factor](int i, double& loss, double& norm, double& lr) {
                     if (i < 137) return;
                     lr *= factor;
                     loss = norm = NAN;
                   }},
                  2);
  };
  EXPECT_TRUE(contains(diagnose_log(jump(10)).left.front(), "the learning rate: it jumps"))
      << diagnose_log(jump(10)).left.front();
  std::string excluded;
  for (const std::string& one : diagnose_log(jump(1)).excluded) excluded += one + "\n";
  EXPECT_TRUE(contains(excluded, "a jump of the learning rate: 0.0001 before, 0.0001 here")) << excluded;
}

TEST(RunLogs, FrozenLossesAndZeroGradients) {
  EXPECT_EQ(diagnose_log(log_of({100, 0.05, 7,
                                 [](int i, double& loss, double&, double&) {
                                   if (i >= 30) loss = 6.5;
                                 }},
                                1))
                .kind,
            "loss_frozen");
  const LogDiagnosis zero = diagnose_log(log_of({100, 0.05, 8,
                                                 [](int i, double&, double& norm, double&) {
                                                   if (i >= 50) norm = 0;
                                                 }},
                                                1));
  EXPECT_EQ(zero.kind, "no_gradient");
  EXPECT_EQ(zero.first_bad, 49);
}

TEST(RunLogs, TheWidthOfARiseFollowsTheLength) {
  EXPECT_LT(first_rise(std::vector<double>(50, 1.0)).width, first_rise(std::vector<double>(50'000, 1.0)).width);
  std::vector<double> steps(40, 1.0);
  for (std::size_t i = 20; i < 40; ++i) steps[i] = 2;
  EXPECT_EQ(first_rise(steps).at, 20);
  steps.back() = 0.5;
  EXPECT_EQ(first_rise(steps).at, -1) << "made good again";
  EXPECT_EQ(first_rise({}).at, -1);
}

TEST(RunLogs, NothingToReadIsNoDiagnosis) {
  EXPECT_TRUE(diagnose_log("hello\nworld\n").steps.empty());
  EXPECT_TRUE(diagnose_log("").steps.empty());
}

}  // namespace
}  // namespace ampcheck::checks::stacks
