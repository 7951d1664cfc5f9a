// SPDX-License-Identifier: Apache-2.0
// Libraries whose launchers call the CUDA runtime, on the simulated GPU: one by hand, which needs no toolkit, and one
// that nvcc has made, where it is.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/custom_op_list.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::ampcheck;
using testing::contains;
using testing::ProgramResult;

const std::string kLaunches = custom_op_folder() + "launches.so",
                  kByNvcc = custom_op_folder() + "rms_norm_cuda_open.so";

TEST(Launches, ARightKernelPassesThroughTheStandIn) {
  const ProgramResult run = ampcheck("check " + kLaunches + " twice --device ptx --regimes quick");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_TRUE(contains(run.out, "PTX (") && contains(run.out, "ROUNDING")) << run.out;
}

TEST(Launches, ABlockThatWritesOnIsFoundWithItsLine) {
  const ProgramResult run = ampcheck("check " + kLaunches + " twice_past_end --device ptx --regimes quick");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_TRUE(contains(run.out, "AC603") && contains(run.out, "twice.cu:14")) << run.out;
  EXPECT_TRUE(contains(run.out, "--device ptx")) << "the line that runs it again: " << run.out;
}

TEST(Launches, MemoryThatNothingWroteIsNamed) {
  const ProgramResult run = ampcheck("check " + kLaunches + " twice_unwritten --device ptx --regimes quick");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_TRUE(contains(run.out, "AC602") && contains(run.out, "of 20 bytes', which nothing wrote")) << run.out;
}

TEST(Launches, TheReportNamesTheDevice) {
  const ProgramResult run = ampcheck("check " + kLaunches + " twice --device ptx --regimes quick --json");
  EXPECT_TRUE(contains(run.out, "\"device\": \"ptx\"") || contains(run.out, "\"device\":\"ptx\"")) << run.out;
}

TEST(Launches, WithoutTheDeviceTheRuntimeIsMissing) {
  const ProgramResult run = ampcheck("check " + kLaunches + " twice");
  EXPECT_NE(run.exit_code, 0);
  EXPECT_TRUE(contains(run.err + run.out, "undefined symbol: ") && contains(run.err + run.out, "--device ptx"))
      << run.err << run.out;
}

TEST(Launches, OurOwnKernelsAreThereOrMissed) {
  const ProgramResult run = ampcheck("check relu --device ptx --regimes quick --dtype fp32");
  if (std::filesystem::exists(kByNvcc)) {
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
    return;
  }
  EXPECT_EQ(run.exit_code, 6) << run.out;
  EXPECT_TRUE(contains(run.err, "built without CUDA and has no kernels for it")) << run.err;
}

TEST(Launches, TrainingIsRefused) {
  EXPECT_TRUE(contains(testing::refused_training("--device ptx"), "[--device] got ptx, want cpu or cuda"));
}

TEST(Launches, ALibraryOfNvccRunsAsItIs) {
  if (!std::filesystem::exists(kByNvcc)) GTEST_SKIP() << "built without nvcc";
  const std::string how = " --device ptx --regimes quick --dtype fp16";
  const ProgramResult right = ampcheck("check " + kByNvcc + " rms_norm_cuda" + how),
                      wrong = ampcheck("check " + kByNvcc + " rms_norm_cuda_drops_warp" + how);
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
  EXPECT_EQ(wrong.exit_code, 1) << wrong.err;
  EXPECT_TRUE(contains(wrong.out, "AC101") && contains(wrong.out, "rms_norm_cuda.cu:")) << wrong.out;
}

}  // namespace
}  // namespace ampcheck::checks
