// SPDX-License-Identifier: Apache-2.0
// GPU kernels in PTX, judged as ops: a right softmax passes, and each broken one is convicted with its source lines.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "checks/data/regimes.h"
#include "checks/doors/plugin.h"
#include "checks/run/run_case.h"
#include "checks/run/runner.h"
#include "src/error.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/softmax_ptx.h"

namespace ampcheck::checks {
namespace {

using testing::contains;
using testing::softmax_ptx;
using testing::SoftmaxPtx;

/// A folder of the test with files in it.
class Folder {
 public:
  explicit Folder(const std::string& name) : path_(std::filesystem::path(::testing::TempDir()) / ("ptx_" + name)) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

/// Causes of the findings of the first shapes, by code.
std::map<std::string, std::string> found(const std::string& name, const SoftmaxPtx& how) {
  const Folder folder(name);
  const std::string word =
      folder.file("softmax.ptx", softmax_ptx(how)) + "@" + folder.file("launch.toml", testing::softmax_launch());
  const OpDef& op = load_plugin(word).ops.front();
  std::map<std::string, std::string> out;
  int cases = 0;
  for (const OpCall& call : cases_of(op.signature, Dtype::fp32, CaseSet::quick, 1)) {
    if (++cases > 12) break;
    for (const CheckResult& check : run_case(op, call, {}).checks)
      if (convicts(check.verdict)) out[ampcheck::name(check.code)] += check.cause + "\n";
  }
  EXPECT_GE(cases, 3);
  return out;
}

TEST(PtxDoor, ARightSoftmaxPasses) {
  const auto all = found("right", {});
  EXPECT_TRUE(all.empty()) << all.begin()->first << " " << all.begin()->second;
}

TEST(PtxDoor, ADroppedTailIsConvictedWithTheLineThatWrites) {
  const auto all = found("tail", {.tail = false});
  ASSERT_TRUE(all.contains("AC401")) << (all.empty() ? "" : all.begin()->second);
  EXPECT_TRUE(contains(all.at("AC401"), "'y' is written by softmax.cu:16, which leaves")) << all.at("AC401");
}

TEST(PtxDoor, ARaceIsConvictedWithBothLines) {
  const auto all = found("race", {.barrier = false});
  ASSERT_TRUE(all.contains("AC601"));
  EXPECT_TRUE(contains(all.at("AC601"), "softmax.cu:12") && contains(all.at("AC601"), "softmax.cu:7"))
      << all.at("AC601");
}

TEST(PtxDoor, SumsInBf16AreConvictedWithTheirLine) {
  const auto all = found("bf16", {.bf16 = true});
  ASSERT_TRUE(all.contains("AC301")) << (all.empty() ? "" : all.begin()->first + all.begin()->second);
  EXPECT_TRUE(contains(all.at("AC301"), "rounded to bf16 at softmax.cu:10")) << all.at("AC301");
}

/// What the kernel has no instructions of is no cause, however few terms a sum has; nor is a fast function where
/// numbers are known to be rounded to bf16.
TEST(PtxDoor, AFormatThatTheKernelDoesNotHaveIsNoCause) {
  const Folder folder("formats");
  const std::string word = folder.file("softmax.ptx", softmax_ptx({.bf16 = true})) + "@" +
                           folder.file("launch.toml", testing::softmax_launch());
  const OpDef& op = load_plugin(word).ops.front();
  int convicted = 0;
  for (const std::int64_t columns : {2, 3, 5, 7, 33}) {
    OpCall call = cases_of(op.signature, Dtype::fp32, CaseSet::quick, 1).front();
    call.dims["N"] = 2;
    call.dims["D"] = columns;
    for (const CheckResult& check : run_case(op, call, {}).checks) {
      if (!convicts(check.verdict)) continue;
      ++convicted;
      EXPECT_FALSE(contains(check.cause, "fp16") || contains(check.cause, "fast")) << check.cause;
      EXPECT_TRUE(contains(check.cause, "rounded to bf16 at softmax.cu:10")) << check.cause;
      EXPECT_FALSE(check.cause.ends_with("; ")) << check.cause;
    }
  }
  EXPECT_GE(convicted, 3);
}

TEST(PtxDoor, AReadBehindATensorIsConvictedWithItsLine) {
  const auto all = found("far", {.reads_too_far = true});
  ASSERT_TRUE(all.contains("AC603"));
  EXPECT_TRUE(contains(all.at("AC603"), "softmax.cu:9: reads 4 bytes") &&
              contains(all.at("AC603"), "behind the end of 'x'"))
      << all.at("AC603");
}

/// CUDA source is compiled by the toolkit of the machine: this test needs one.
TEST(PtxDoor, CudaSourceGoesThroughTheNvccThatIsThere) {
  const Folder folder("cuda");
  const std::string toml =
      "name = \"twice\"\nformula = \"y = 2 * x\"\ndims = { N = [5, 64, 100] }\n"
      "inputs = { x = { dims = \"N\", gradient = false } }\noutputs = { y = \"N\" }\n"
      "contract = { storage = [\"fp32\"] }\n[forward]\nkernel = \"twice\"\ngrid = [\"(N + 63) / 64\"]\nblock = [64]\n"
      "arguments = [\"const float* x\", \"float* y\", \"int N\"]\n";
  const auto codes = [&](const std::string& name, const std::string& guard) {
    const std::string source =
        "extern \"C\" __global__ void twice(const float* x, float* y, int n) {\n"
        "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n" +
        guard + "\n  y[i] = 2 * x[i];\n}\n";
    const std::string word = folder.file(name, source) + "@" + folder.file("launch.toml", toml);
    const OpDef& op = load_plugin(word).ops.front();
    const OpCall call = cases_of(op.signature, Dtype::fp32, CaseSet::quick, 1).front();
    std::map<std::string, std::string> out;
    for (const CheckResult& check : run_case(op, call, {}).checks)
      if (convicts(check.verdict)) out[ampcheck::name(check.code)] += check.cause;
    return out;
  };
  try {
    EXPECT_TRUE(codes("right.cu", "  if (i >= n) return;").empty());
    const auto wrong = codes("wrong.cu", "");
    ASSERT_TRUE(wrong.contains("AC603"));
    EXPECT_TRUE(contains(wrong.at("AC603"), "wrong.cu:4: reads 4 bytes")) << wrong.at("AC603");
  } catch (const EnvironmentError& error) {
    if (contains(error.what(), "no nvcc")) GTEST_SKIP() << error.what();
    throw;
  }
}

std::string refusal(const std::string& ptx, const std::string& toml) {
  static int count = 0;
  const Folder folder("refused" + std::to_string(++count));
  try {
    load_plugin(folder.file("softmax.ptx", ptx) + "@" + folder.file("launch.toml", toml));
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(PtxDoor, WhatCannotBeLaunchedSaysWhatWasWanted) {
  const std::string toml = testing::softmax_launch(), ptx = softmax_ptx();
  const auto toml_error = [&](const std::string& from, const std::string& to) {
    return refusal(ptx, replaced(toml, from, to));
  };
  const auto ptx_error = [&](const std::string& from, const std::string& to) {
    return refusal(replaced(ptx, from, to), toml);
  };
  EXPECT_TRUE(contains(toml_error("kernel = \"softmax\"", "kernel = \"softmin\""), "got none in"));
  EXPECT_TRUE(contains(toml_error("grid = [\"N\"]\n", ""), "grid, got none, want such as grid = [\"N\"]"));
  EXPECT_TRUE(contains(toml_error("block = [64]", "block = [1, 1, 1, 64]"), "got 4 extents, want 1 to 3"));
  EXPECT_TRUE(contains(toml_error("\"int D\"]", "\"int64_t D\"]"), "got 8 bytes, want the 4 that the kernel takes"));
  EXPECT_TRUE(contains(toml_error(", \"int D\"]", "]"), "got 2, want 3"));
  EXPECT_TRUE(
      contains(ptx_error(".version 8.0", ".version 1.4"), "softmax.ptx:1] got .version '1.4', want 3.0 to 9.9"));
  EXPECT_TRUE(contains(ptx_error("bar.sync 0;", "wgmma.fence.sync.aligned;"),
                       "matrix products of warp groups (wgmma), which device ptx does not run"));
  EXPECT_TRUE(contains(ptx_error("bar.sync 0;", "frob.b32 %r1, %r2;"), "got unknown instruction 'frob.b32'"));
}

TEST(PtxDoor, AnEndlessLoopEndsAtTheTimeoutWithItsLines) {
  const Folder folder("endless");
  const std::string ptx = folder.file("softmax.ptx", softmax_ptx({.ends = false})),
                    toml = folder.file("launch.toml", testing::softmax_launch());
  const testing::ProgramResult run = testing::ampcheck("check " + ptx + " --launch " + toml +
                                                       " --shapes N=2,D=7 --regimes quick --timeout 1 --jobs 1");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_TRUE(contains(run.out, "TIMEOUT") && contains(run.out, "in a loop over softmax.cu:15, softmax.cu:16"))
      << run.out;
}

TEST(PtxDoor, AKernelWithoutItsLaunchIsAskedForOne) {
  const Folder folder("alone");
  const testing::ProgramResult run = testing::ampcheck("check " + folder.file("softmax.ptx", softmax_ptx()));
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_TRUE(contains(run.err, "without its launch, want --launch launch.toml")) << run.err;
}

/// The kernel may stand in the file itself; device ptx runs it in the judge's process all the same, and says what it
/// saw.
TEST(PtxDoor, AKernelThatTheLaunchFileNamesRunsOnTheSimulatedGpu) {
  const Folder folder("named");
  folder.file("softmax.ptx", softmax_ptx({.barrier = false}));
  const std::string named = folder.file("named.toml", "library = \"softmax.ptx\"\n" + testing::softmax_launch()),
                    alone = folder.file("launch.toml", testing::softmax_launch());
  const testing::ProgramResult run = testing::ampcheck("check " + named + " --regimes quick");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_TRUE(contains(run.out, "AC601") && contains(run.out, "softmax.cu:12")) << run.out;
  EXPECT_TRUE(contains(run.out, "runs on a simulated GPU (device ptx)")) << run.out;
  EXPECT_EQ(simulated_kernel(named), folder.file("softmax.ptx", softmax_ptx({.barrier = false})));
  EXPECT_EQ(simulated_kernel(alone), "");
  const testing::ProgramResult without = testing::ampcheck("check " + alone);
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_TRUE(contains(without.err, "got the launch of a GPU kernel and no kernel") &&
              contains(without.err, "--launch launch.toml"))
      << without.err;
}

TEST(PtxDoor, AnNvccThatIsNoProgramIsAnError) {
  const Folder folder("nvcc");
  const std::string words =
      "check " + folder.file("k.cu", "") + " --launch " + folder.file("launch.toml", testing::softmax_launch());
  for (const std::string none : {"./none/nvcc", "no_such_nvcc"}) {
    const testing::ProgramResult run = testing::ampcheck(words, "NVCC=" + none);
    EXPECT_EQ(run.exit_code, 6) << run.out;
    EXPECT_TRUE(contains(run.err, "[NVCC] got '" + none + "', which is no program")) << run.err;
  }
}

/// Triton passes two pointers of its own behind the arguments, and a name for 16 bytes of shared memory.
std::string triton_launch(const std::string& kernel) {
  return "name = \"" + kernel +
         "_of_triton\"\nformula = \"e = exp(x - max(x, -1)); y = e / sum(e, -1)\"\n"
         "dims = { N = [3, 8, 2], D = { samples = [7, 129, 66], least = 1 } }\n"
         "inputs = { x = { dims = \"N D\", gradient = false } }\noutputs = { y = \"N D\" }\ncontract = { storage = "
         "[\"fp32\"] }\n"
         "[forward]\nkernel = \"" +
         kernel +
         "\"\ngrid = [\"N\"]\nblock = [128]\nshared = 16\nworkspace = \"16\"\narguments = [\"const float* x\", "
         "\"float* y\", "
         "\"int D\", \"int D\", \"void* workspace\", \"void* workspace\"]\n";
}

testing::ProgramResult checked_triton(const std::string& kernel) {
  const Folder folder("triton_" + kernel);
  const std::string ptx = tests::in_source("/tests/data/triton/" + kernel + ".ptx"),
                    toml = folder.file("launch.toml", triton_launch(kernel));
  return testing::ampcheck("check " + ptx + " --launch " + toml + " --shapes N=3,D=130");
}

TEST(PtxDoor, ASoftmaxOfTritonPassesWithAllData) {
  const testing::ProgramResult run = checked_triton("softmax");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_TRUE(contains(run.out, "ROUNDING")) << run.out;
}

TEST(PtxDoor, ADroppedTailOfTritonIsFoundWithTheLineOfItsSource) {
  const testing::ProgramResult run = checked_triton("dropped_tail");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_TRUE(contains(run.out, "AC401") && contains(run.out, "'y' is written by softmax.py:28")) << run.out;
}

}  // namespace
}  // namespace ampcheck::checks
