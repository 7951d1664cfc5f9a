// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kernel_ptx.h"
#include "tests/support/paths.h"

namespace ampcheck::ptx {
namespace {

TEST(KernelPtxExhaustive, EveryFusedMultiplyAddOfEveryKernelIsWritten) {
  if (!has_nvcc()) GTEST_SKIP() << "built without nvcc, so there is no PTX to look at";
  int kernels = 0;
  for (const auto& entry : std::filesystem::directory_iterator(tests::in_source("/kernels"))) {
    const std::string name = entry.path().stem().string();
    // It launches nothing itself: the pattern it calls does.
    if (entry.path().extension() != ".cu" || name == "embedding") continue;
    expect_only_written_fma(name);
    ++kernels;
  }
  EXPECT_GE(kernels, 20);
}

}  // namespace
}  // namespace ampcheck::ptx
