// SPDX-License-Identifier: Apache-2.0
// check --lines and --fuse on kernels in PTX: a loss is shown and named at its line, and a right twin loses nothing.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::contains;

/// Line 3 adds 1, line 4 squares, and line 5 is what the test says.
std::string kernel(const std::string& last, const std::string& type = "f32") {
  return ".version 8.0\n.target sm_80\n.address_size 64\n.file 1 \"odd.cu\"\n"
         ".visible .entry odd(.param .u64 x, .param .u64 y, .param .u32 n)\n{\n"
         ".reg .pred %p<2>;\n.reg .b64 %d<6>;\n.reg .b32 %r<6>;\n.reg .f32 %f<9>;\n.reg .b16 %h<6>;\n"
         ".loc 1 2 3\nmov.u32 %r0, %ctaid.x;\nmov.u32 %r1, %ntid.x;\nmov.u32 %r2, %tid.x;\n"
         "mad.lo.s32 %r3, %r0, %r1, %r2;\nld.param.u32 %r4, [n];\nsetp.ge.s32 %p0, %r3, %r4;\n@%p0 ret;\n"
         "ld.param.u64 %d0, [x];\nld.param.u64 %d1, [y];\nmul.wide.s32 %d2, %r3, 4;\nadd.s64 %d3, %d0, %d2;\n"
         "add.s64 %d4, %d1, %d2;\nld.global.f32 %f0, [%d3];\n.loc 1 3 3\nadd.f32 %f1, %f0, 0f3F800000;\n"
         ".loc 1 4 3\nmul." +
         type + " %f2, %f1, %f1;\nmul." + type + " %f3, %f0, %f0;\n.loc 1 5 3\n" + last +
         "st.global.f32 [%d4], %f4;\nret;\n}\n";
}

constexpr const char* kLaunch =
    "name = \"odd\"\nformula = \"y = 2 * x + 1\"\ndims = { N = [5, 64, 100] }\n"
    "inputs = { x = { dims = \"N\", gradient = false } }\noutputs = { y = \"N\" }\ncontract = { storage = [\"fp32\"] "
    "}\n"
    "[forward]\nkernel = \"odd\"\ngrid = [\"(N + 63) / 64\"]\nblock = [64]\narguments = [\"const float* x\", \"float* "
    "y\", "
    "\"int N\"]\n";

class KernelLines : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = temporary_.path();
    std::ofstream(folder_ / "odd.toml") << kLaunch;
  }

  testing::ProgramResult checked(const std::string& text, const std::string& more) {
    std::ofstream(folder_ / "odd.ptx") << text;
    return testing::ampcheck("check " + (folder_ / "odd.ptx").string() + " --launch " +
                             (folder_ / "odd.toml").string() + " --regimes quick " + more);
  }
  testing::TemporaryFolder temporary_;
  std::filesystem::path folder_;
};

// 2 x + 1 with a detour of x by 65536, as a difference of squares, and plainly.
const std::string kDetour = "add.f32 %f5, %f0, 0f47800000;\nadd.f32 %f6, %f5, 0fC7800000;\nadd.f32 %f4, %f6, %f1;\n",
                  kDifference = "sub.f32 %f4, %f2, %f3;\n",
                  kSum = "add.f32 %f5, %f0, %f0;\nadd.f32 %f4, %f5, 0f3F800000;\n";

TEST_F(KernelLines, ALossIsNamedAndShown) {
  const testing::ProgramResult run = checked(kernel(kDetour), "--lines");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_TRUE(contains(run.out, "numbers lose half of their digits or more at odd.cu:5 (cancellation)")) << run.out;
  EXPECT_TRUE(contains(run.out, "takes half of the digits of") && contains(run.out, "(cancellation)")) << run.out;
}

/// Near the largest numbers 2 x overflows in a right kernel too: it is the usual numbers that lose nothing.
TEST_F(KernelLines, ARightTwinLosesNothing) {
  const auto lost_of_usual_numbers = [&](const std::string& last, int exit_code) {
    const testing::ProgramResult run = checked(kernel(last), "--lines --json");
    EXPECT_EQ(run.exit_code, exit_code) << run.out << run.err;
    std::int64_t out = 0, lines = 0;
    const nlohmann::json report = nlohmann::json::parse(run.out);
    for (const auto& result : report["cases"])
      if (result.contains("lines") && !contains(result["case"].get<std::string>(), "range="))
        for (const auto& line : result["lines"]) {
          out += line["lost"].get<std::int64_t>();
          ++lines;
        }
    EXPECT_GT(lines, 3);
    return out;
  };
  EXPECT_EQ(lost_of_usual_numbers(kSum, 0), 0);
  EXPECT_GT(lost_of_usual_numbers(kDetour, 1), 0);
}

TEST_F(KernelLines, HalvesThatOverflowAreNamed) {
  const std::string half =
      "cvt.rn.f16.f32 %h0, %f0;\ncvt.rn.f16.f32 %h1, 0f476A6000;\nmul.f16 %h2, %h0, %h1;\n"
      "cvt.f32.f16 %f5, %h2;\nmul.f32 %f4, %f5, 0f378BCF65;\nadd.f32 %f4, %f4, %f1;\n";  // x * 60000 / 60000
  const testing::ProgramResult run = checked(kernel(half), "--lines --json");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  std::int64_t infinities = 0, elsewhere = 0;
  const nlohmann::json report = nlohmann::json::parse(run.out);
  for (const auto& result : report["cases"])
    if (result.contains("lines") && !contains(result["case"].get<std::string>(), "range="))  // usual numbers
      for (const auto& line : result["lines"])
        (line["place"] == "odd.cu:5" ? infinities : elsewhere) += line["infinities"].get<std::int64_t>();
  EXPECT_GT(infinities, 0);
  EXPECT_EQ(elsewhere, 0);
}

TEST_F(KernelLines, NothingIsSaidUnlessAsked) {
  const testing::ProgramResult run = checked(kernel(kDetour), "--json");
  EXPECT_FALSE(contains(run.out, "\"lines\"") || contains(run.out, "lose half")) << run.out;
}

/// (x + 1)^2 - x^2: with one of both squares not rounded it is another number.
TEST_F(KernelLines, FusedProductsAreRunAgainFused) {
  const testing::ProgramResult run = checked(kernel(kDifference), "--fuse");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_TRUE(contains(run.out, " --fuse\n")) << "the line that runs it again: " << run.out;
  EXPECT_NE(checked(kernel(kDifference), "").out, run.out);
}

TEST_F(KernelLines, AFileOfKernelsIsListed) {
  std::ofstream(folder_ / "odd.ptx") << kernel(kSum);
  const testing::ProgramResult run = testing::ampcheck("list " + (folder_ / "odd.ptx").string());
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.out, "odd     8 8 4\n")) << run.out;
  std::ofstream(folder_ / "odd.ptx") << kernel("wgmma.fence.sync.aligned;\n" + kSum);
  const testing::ProgramResult other = testing::ampcheck("list " + (folder_ / "odd.ptx").string() + " --json");
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_TRUE(contains(other.out, "\"runs\": false") && contains(other.out, "wgmma")) << other.out;
}

}  // namespace
}  // namespace ampcheck::checks
