// SPDX-License-Identifier: Apache-2.0
// tools/mutate_kernels over a sample of our own kernels: what it sees, and what it says of a survivor.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::testing {
namespace {

/// One op, a few of its mutants, on few cases: seconds.
class KernelMutants : public ::testing::Test {
 protected:
  void SetUp() override {
    if (shell("python3 --version && ninja --version && c++ --version").exit_code != 0)
      GTEST_SKIP() << "there is no python3, ninja or c++ here";
    if (shell("grep -c -- -fsanitize= '" + tests::in_build("/compile_commands.json") + "'").exit_code == 0)
      GTEST_SKIP() << "a build with sanitizers";
    if (shell("grep -c 'bin/nvcc .*kernels' '" + tests::in_build("/compile_commands.json") + "'").exit_code == 0)
      GTEST_SKIP() << "nvcc compiles the kernels of this build";
  }
  ProgramResult run(const std::string& options) {
    return shell("'" + tests::in_source("/tools/mutate_kernels") + "' --build '" + tests::in_build("") + "' " +
                 options + " -- --regimes quick --shapes first --dtype fp32");
  }
  const TemporaryFolder folder_;
};

TEST_F(KernelMutants, AreSeenAndASurvivorHasItsReason) {
  const ProgramResult relu = run("relu --limit 4");
  EXPECT_EQ(relu.exit_code, 0) << relu.out << relu.err;
  EXPECT_TRUE(contains(relu.out, "kernels/relu.cu: 4 of 8 tried, 3 killed, 1 survived")) << relu.out;
  EXPECT_TRUE(contains(relu.out, "another valid subgradient")) << relu.out;
}

/// Without its reason a survivor fails, and so does a reason of a mutant that is seen.
TEST_F(KernelMutants, ASurvivorWithoutAReasonFails) {
  const ProgramResult list =
      shell("cd '" + tests::in_source("") + "'; \"$AMPCHECK\" mutate kernels/relu.cu --limit 4 --list");
  ASSERT_EQ(list.exit_code, 0) << list.err;
  const std::size_t first = list.out.find("\n- "), end = list.out.find('\n', list.out.find("\n+ ") + 1);
  std::ofstream(folder_.path() + "/reasons.txt")
      << "kernels/relu.cu" << list.out.substr(first, end - first) << "\nit is said to survive\n";
  const ProgramResult relu = run("relu --limit 4 --reasons '" + folder_.path() + "/reasons.txt'");
  EXPECT_EQ(relu.exit_code, 1) << relu.out << relu.err;
  EXPECT_TRUE(contains(relu.out, "no reason is known")) << relu.out;
  EXPECT_TRUE(contains(relu.out, "has a reason for a mutant that is seen")) << relu.out;
}

}  // namespace
}  // namespace ampcheck::testing
