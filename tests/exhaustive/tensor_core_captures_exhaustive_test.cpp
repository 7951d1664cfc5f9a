// SPDX-License-Identifier: Apache-2.0
// Every captured line against the model of tensor cores and the contract's intervals.
#include "tests/support/captures_in_bounds.h"

namespace ampcheck::tests {
namespace {

TEST(TensorCoreCaptures, EveryLineLiesInItsInterval) {
  if (capture_files().empty()) GTEST_SKIP() << "tensor_core_captures is not on this machine (AMPCHECK_SHARED)";
  expect_captures_in_bounds(1);
}

}  // namespace
}  // namespace ampcheck::tests
