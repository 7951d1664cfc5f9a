// SPDX-License-Identifier: Apache-2.0
#include "tools/workers/oom_kills.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/run_program.h"

namespace ampcheck::tools {
namespace {

TEST(OomKills, AreThoseOfTheSystemAndZeroWhereItSaysNone) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/vmstat";
  std::ofstream(path) << "nr_free_pages 12\noom_kill_disabled 4\noom_kill 31\npgfault 7\n";
  EXPECT_EQ(oom_kills(path), 31);
  std::ofstream(path) << "nr_free_pages 12\n";
  EXPECT_EQ(oom_kills(path), 0);
  EXPECT_EQ(oom_kills(folder.path() + "/none"), 0);
  EXPECT_GE(oom_kills(), 0);
}

}  // namespace
}  // namespace ampcheck::tools
