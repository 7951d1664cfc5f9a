// SPDX-License-Identifier: Apache-2.0
// --sandbox: a library's code reaches nothing but libraries, as it is loaded and in its kernels.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "src/error.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/sanitized.h"
#include "tools/workers/sandbox.h"

namespace ampcheck::testing {
namespace {

/// The library in a folder with a file that is none of its business.
class Sandbox : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "a sanitizer reads what the sandbox shuts off";
    try {
      tools::require_sandbox();
    } catch (const EnvironmentError& error) {
      GTEST_SKIP() << error.what();
    }
    std::filesystem::copy_file(tests::in_build("/custom_ops/escapes.so"), library());
    std::ofstream(folder_.path() + "/secret.txt") << "secret";
  }
  std::string library() const { return folder_.path() + "/escapes.so"; }
  ProgramResult run(const std::string& arguments) const {
    return ampcheck(arguments, "SECRET_TOKEN=1 AMPCHECK_TEST_FOLDER=" + folder_.path());
  }

  TemporaryFolder folder_;
};

TEST_F(Sandbox, NoTryOfALibrarySucceedsInside) {
  for (const char* const op : {"escapes", "escaped_at_load"}) {
    const std::string check = "check " + library() + " " + op + " --regimes quick";
    const ProgramResult outside = run(check), inside = run(check + " --sandbox");
    EXPECT_EQ(outside.exit_code, 1) << outside.out << outside.err;
    EXPECT_EQ(inside.exit_code, 0) << inside.out << inside.err;
  }
  for (const std::string& command : {"replay " + library() + " 'escapes(x=fp32[64],seed=1)'",
                                     "compare " + library() + " " + library() + " escapes --regimes quick"}) {
    const ProgramResult inside = run(command + " --sandbox");
    EXPECT_EQ(inside.exit_code, 0) << command << inside.out << inside.err;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/written.txt"));
}

TEST_F(Sandbox, AWrongOpIsFoundAndARightOneOfATomlFilePasses) {
  const std::string launchers = tests::in_build("/custom_ops/rms_norm_launchers.toml");
  const ProgramResult right = ampcheck("check " + launchers + " --regimes quick --sandbox");
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
  const ProgramResult wrong =
      ampcheck("check " + tests::in_build("/custom_ops/unruly.so") + " wrong --regimes quick --sandbox");
  EXPECT_EQ(wrong.exit_code, 1) << wrong.out << wrong.err;
}

TEST_F(Sandbox, WhereNoneIsPossibleNothingRuns) {
  const ProgramResult here = run("check " + library() + " escapes --regimes quick --sandbox --isolation none");
  EXPECT_EQ(here.exit_code, 2);
  EXPECT_TRUE(contains(here.err, "--isolation none")) << here.err;
  const ProgramResult device = run("check " + library() + " escapes --regimes quick --sandbox --device ptx");
  EXPECT_NE(device.exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/written.txt"));
}

}  // namespace
}  // namespace ampcheck::testing
