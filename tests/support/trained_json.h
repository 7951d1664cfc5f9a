// SPDX-License-Identifier: Apache-2.0
// A run of `ampcheck train` as data.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/run_program.h"

namespace ampcheck::testing {

/// The result of `train --json ARGUMENTS`, but for its time. The run must end by itself, with or without a finding.
inline nlohmann::json trained_json(const std::string& arguments) {
  const ProgramResult run = ampcheck("train --json " + arguments);
  EXPECT_LE(run.exit_code, 1) << run.err;
  nlohmann::json out = nlohmann::json::parse(run.out);
  out.erase("seconds");
  return out;
}

}  // namespace ampcheck::testing
