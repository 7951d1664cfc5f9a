// SPDX-License-Identifier: Apache-2.0
// One op per pattern; kernel_ptx_exhaustive_test.cpp compiles all.
#include "tests/support/kernel_ptx.h"

#include <fstream>

namespace ampcheck::ptx {
namespace {

TEST(KernelPtx, EveryFusedMultiplyAddIsWritten) {
  if (!has_nvcc()) GTEST_SKIP() << "built without nvcc, so there is no PTX to look at";
  for (const char* name : {"gelu", "layer_norm", "matmul"}) expect_only_written_fma(name);
}

/// Planted fault: the compiler's own contraction, and a correct variant.
TEST(KernelPtx, FindsAContractedMultiplyAdd) {
  if (!has_nvcc()) GTEST_SKIP() << "built without nvcc, so there is no PTX to look at";
  const std::string source = testing::TempDir() + "/contracted.cu";
  std::ofstream(source) << "#include \"kernels/math.h\"\n"
                           "__global__ void f(float* x) { x[0] = x[1] * x[2] + x[3]; }\n"
                           "__global__ void g(float* x) { x[0] = ampcheck::kernels::math::fma(x[1], x[2], x[3]); }\n";
  const Fusions clean = fusions(compile(source)), contracted = fusions(compile(source, "--fmad=true"));
  EXPECT_EQ(clean.written, 1);
  EXPECT_TRUE(clean.unwritten.empty());
  EXPECT_EQ(contracted.written, 1);
  ASSERT_EQ(contracted.unwritten.size(), 1u);
  EXPECT_NE(contracted.unwritten[0].find("contracted.cu:2"), std::string::npos) << contracted.unwritten[0];
  std::filesystem::remove(source);
}

}  // namespace
}  // namespace ampcheck::ptx
