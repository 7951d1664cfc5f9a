// SPDX-License-Identifier: Apache-2.0
// What tests of `ampcheck train --record` share.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/support/run_program.h"

namespace ampcheck::testing {

class TraceFile : public ::testing::Test {
 protected:
  std::string record(const std::string& arguments) {
    const std::string path = folder_.path() + "/run.trace";
    run_ = ampcheck("train --record " + path + " --steps 6 " + arguments);
    EXPECT_LE(run_.exit_code, 1) << run_.err;
    return path;
  }
  TemporaryFolder folder_;
  ProgramResult run_;
};

}  // namespace ampcheck::testing
