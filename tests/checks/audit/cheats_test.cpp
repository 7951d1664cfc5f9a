// SPDX-License-Identifier: Apache-2.0
// Kernels that deceive a test are found and named, and honest ones that keep something from call to call are not.
#include <gtest/gtest.h>

#include <set>

#include "checks/audit/cheat_audit.h"

namespace ampcheck::checks::zoo {
namespace {

std::vector<CheatTrial> run(Dtype dtype) {
  AuditOptions options;
  options.dtypes = {dtype};
  return audit_cheats(options);
}

class Cheats : public ::testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(All, Cheats, ::testing::Values(Dtype::fp32, Dtype::bf16),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(Cheats, AreFoundAndNamedAndHonestTwinsAreNot) {
  std::set<std::string> kinds;
  for (const CheatTrial& t : run(GetParam())) {
    const std::string& name = t.cheat->planted.op.signature.name;
    EXPECT_TRUE(t.right()) << name << ": " << t.named << " of " << t.convicted << " convictions of " << t.cases
                           << " cases are as due; first " << t.code << " '" << t.case_name << "' " << t.cause;
    EXPECT_GT(t.cases, 10) << name;
    if (!t.honest()) kinds.insert(name);
  }
  EXPECT_GE(kinds.size(), 24u);
}

}  // namespace
}  // namespace ampcheck::checks::zoo
