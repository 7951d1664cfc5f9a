// SPDX-License-Identifier: Apache-2.0
// What `ampcheck review` does with a terminal.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/run_program.h"

namespace ampcheck::testing {
namespace {

TEST(Review, LongerThanTheTerminalGoesThroughAPager) {
  if (shell("script -qec true /dev/null").exit_code != 0) GTEST_SKIP() << "no 'script', or no terminal can be made";
  const TemporaryFolder folder;
  const std::string here = "cd '" + folder.path() + "'; unset CI; ", paged = folder.path() + "/paged";
  const ProgramResult gate =
      shell(here + "\"$AMPCHECK\" gate relu exp log sqrt --regimes quick --shapes first --dtype fp32 --baseline base");
  ASSERT_EQ(gate.exit_code, 7) << gate.out << gate.err;
  const auto review = [&](int rows, const std::string& pager) {
    std::filesystem::remove(paged);
    return shell(here + "export TERM=xterm PAGER='" + pager + "'; script -qec \"stty rows " + std::to_string(rows) +
                 " cols 80; '$AMPCHECK' review --baseline base\" /dev/null")
        .out;
  };
  const std::string words = "first state, ";
  EXPECT_FALSE(contains(review(3, "cat >paged"), words));
  EXPECT_TRUE(contains(read_text(paged), words)) << read_text(paged);
  EXPECT_TRUE(contains(review(60, "cat >paged"), words)) << "it fits";
  EXPECT_FALSE(std::filesystem::exists(paged));
  EXPECT_TRUE(contains(review(3, "no_such_pager"), words)) << "what cannot be paged is printed";
  EXPECT_TRUE(contains(review(3, ""), words));
}

}  // namespace
}  // namespace ampcheck::testing
