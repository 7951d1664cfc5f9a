// SPDX-License-Identifier: Apache-2.0
#include "src/cpu_check.h"

#include <gtest/gtest.h>

namespace ampcheck {
namespace {

TEST(CpuCheck, FindsNothingMissingWhereTheTestsRun) { EXPECT_EQ(missing_cpu_feature(), nullptr); }

}  // namespace
}  // namespace ampcheck
