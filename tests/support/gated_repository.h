// SPDX-License-Identifier: Apache-2.0
// A repository whose kernel changes, as tests of gate, review and accept have it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::testing {

/// A repository with one op, gated_sum, in ./gated_sum.so.
class Gate : public ::testing::Test {
 protected:
  void SetUp() override { use("none"); }

  /// Builds the op with this change (tests/custom_ops/gated_sum.cpp).
  void use(const std::string& change) {
    std::filesystem::copy_file(tests::in_build("/custom_ops/gated_sum_" + change + ".so"), folder_.path() + "/new.so",
                               std::filesystem::copy_options::overwrite_existing);
    std::filesystem::rename(folder_.path() + "/new.so", folder_.path() + "/gated_sum.so");
  }
  ProgramResult run(const std::string& arguments, const std::string& before = "unset CI;") {
    return shell("cd '" + folder_.path() + "'; " + before + " \"$AMPCHECK\" " + arguments);
  }
  ProgramResult gate(const std::string& more = "", const std::string& before = "unset CI;") {
    return run("gate ./gated_sum.so --regimes quick --baseline base " + more, before);
  }
  ProgramResult in_ci(const std::string& more = "") { return gate(more, "CI=true"); }
  void accept_now(const std::string& more = "") {
    gate();
    const ProgramResult accepted = run("accept --baseline base --reason 'as measured' " + more);
    ASSERT_EQ(accepted.exit_code, 0) << accepted.out << accepted.err;
  }
  std::string read(const std::string& name) { return read_text(folder_.path() + "/" + name); }
  bool exists(const std::string& name) { return std::filesystem::exists(folder_.path() + "/" + name); }

  TemporaryFolder folder_;
};

}  // namespace ampcheck::testing
