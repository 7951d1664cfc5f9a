// SPDX-License-Identifier: Apache-2.0
// Calls to the system that fail, one at a time: a sample. tests/exhaustive/faults_exhaustive_test.cpp has all.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "tests/support/faulted_run.h"
#include "tests/support/killed_run.h"
#include "tests/support/sanitized.h"

namespace ampcheck::testing {
namespace {

class Faults : public ::testing::TestWithParam<FaultedCommand> {};
INSTANTIATE_TEST_SUITE_P(All, Faults, ::testing::ValuesIn(writing_commands()),
                         [](const auto& info) { return info.param.name; });

TEST_P(Faults, CallsOfEachKindThatFailLoseNothing) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer takes the place of the library that lets calls fail";
  FaultedRun run(GetParam());
  for (std::size_t kind = 0; kind < kFaultKinds.size(); ++kind) {
    const bool memory = std::strcmp(kFaultKinds.at(kind).name, "malloc") == 0;
    for (const long k : run.points(kind, memory ? 6 : 1)) run.expect_nothing_lost(kind, k);
  }
}

/// A state that is written says what measured it, or is not written.
TEST(FaultsOfTheGate, EachFileThatCannotBeOpenedIsSaid) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer takes the place of the library that lets calls fail";
  const std::vector<FaultedCommand> commands = writing_commands();
  FaultedRun run(*std::ranges::find(commands, "gate", &FaultedCommand::name));
  const auto open = static_cast<std::size_t>(
      std::ranges::find_if(kFaultKinds, [](const FaultKind& kind) { return kind.name == std::string("open"); }) -
      kFaultKinds.begin());
  ASSERT_GT(run.calls(open), 0);
  for (long k = 1; k <= run.calls(open); ++k) run.expect_nothing_lost(open, k);
}

constexpr int kKills = kSanitized ? 3 : 25;

TEST(Kills, ACheckGoesOnToTheSameBytes) { EXPECT_GT(expect_checks_go_on(kKills), 0); }
TEST(Kills, ATrainingGoesOnToTheSameBytes) { EXPECT_GT(expect_trainings_go_on(kKills), 0); }

}  // namespace
}  // namespace ampcheck::testing
