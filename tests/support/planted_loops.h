// SPDX-License-Identifier: Apache-2.0
// A small training loop with a loss scale, right in all its variants, and with one planted fault at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checks/scaler/loop.h"
#include "src/amp/scale_rule.h"

namespace ampcheck::tests {

struct PlantedLoop {
  const char* fault;
  const char* code;  ///< of the check that has to find it
};
const std::vector<PlantedLoop>& planted_loops();

/// Right ways to write a loop.
struct LoopVariant {
  const char* name = "";
  const char* rule = "torch";
  bool adam = true, decay = true, dropout = false, digests = false, says_skipped = true, scaler = true, plain = false;
};
const std::vector<LoopVariant>& loop_variants();

/// `fault`: empty for a right one.
std::unique_ptr<checks::scaler::Loop> small_loop(const LoopVariant& variant, const std::string& fault = "");

}  // namespace ampcheck::tests
