// SPDX-License-Identifier: Apache-2.0
// Every call to the system that can fail, one at a time, and each from there on; of the many that take memory 450 of
// each command.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "tests/support/faulted_run.h"
#include "tests/support/killed_run.h"

namespace ampcheck::testing {
namespace {

class FaultsExhaustive : public ::testing::TestWithParam<FaultedCommand> {};
INSTANTIATE_TEST_SUITE_P(All, FaultsExhaustive, ::testing::ValuesIn(writing_commands()),
                         [](const auto& info) { return info.param.name; });

constexpr long kMemoryPoints = 450;

TEST_P(FaultsExhaustive, NoCallThatFailsLosesAnything) {
  FaultedRun run(GetParam());
  long points = 0;
  for (std::size_t kind = 0; kind < kFaultKinds.size(); ++kind) {
    const bool memory = std::strcmp(kFaultKinds.at(kind).name, "malloc") == 0;
    for (const long k : run.points(kind, memory ? kMemoryPoints : run.calls(kind))) {
      run.expect_nothing_lost(kind, k);
      ++points;
      if (memory) continue;
      run.expect_nothing_lost(kind, k, true);
      ++points;
    }
  }
  std::printf("%s: %ld points\n", GetParam().name.c_str(), points);
}

TEST(KillsExhaustive, ACheckGoesOnToTheSameBytes) { std::printf("500 kills, %d ends\n", expect_checks_go_on(500)); }
TEST(KillsExhaustive, ATrainingGoesOnToTheSameBytes) {
  std::printf("500 kills, %d ends\n", expect_trainings_go_on(500));
}

}  // namespace
}  // namespace ampcheck::testing
