// SPDX-License-Identifier: Apache-2.0
// `ampcheck mma` and --accumulate as a user sees them.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/run_program.h"
#include "tests/support/shared_data.h"

namespace ampcheck::testing {
namespace {

std::string file_with(const TemporaryFolder& folder, const std::string& text) {
  const std::string path = folder.path() + "/vectors.txt";
  std::ofstream(path) << text;
  return path;
}

TEST(Mma, ShowsTheInstructionsOfAGeneration) {
  const ProgramResult hopper = ampcheck("mma h100"), volta = ampcheck("mma v100");
  EXPECT_EQ(hopper.exit_code, 0) << hopper.err;
  for (const char* words :
       {"wgmma    e4m3 fp32     32     32    13  cut off to 13 bits of fraction",
        "mma      e4m3 fp32     32     16    25  cut off to fp32; as two fp16 products, c added last"})
    EXPECT_TRUE(contains(hopper.out, words)) << hopper.out;
  EXPECT_FALSE(contains(volta.out, "bf16")) << volta.out;
  EXPECT_EQ(ampcheck("mma v100 --in e4m3").exit_code, 4) << "it has none";
}

TEST(Mma, ComputesDAndSaysWhichInstructionGivesIt) {
  const TemporaryFolder folder;
  const std::string vectors = "# in=fp16 out=fp32\n3c00 8c00 | 3c00 0800 | 00000000";  // 1 - 2^-25
  const std::string file = file_with(folder, vectors + "\n");
  EXPECT_TRUE(contains(ampcheck("mma h100 -f " + file).out, "| 00000000 | 3f7fffff\n")) << "25 bits";
  EXPECT_TRUE(contains(ampcheck("mma a100 -f " + file).out, "| 00000000 | 3f800000\n")) << "24 bits";
  file_with(folder, vectors + " | 3f7fffff\n");
  const ProgramResult right = ampcheck("mma h100 -f " + file), wrong = ampcheck("mma a100 -f " + file);
  EXPECT_EQ(right.exit_code, 0);
  EXPECT_TRUE(contains(right.out, "Every d is that of mma.")) << right.out;
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_TRUE(contains(wrong.out, "line 2: got 3f7fffff, want 3f800000")) << wrong.out;
  EXPECT_TRUE(contains(wrong.out, "No instruction of this generation gives these d.")) << wrong.out;
}

TEST(Mma, LongVectorsAreChainsInTheOrderAskedFor) {
  const TemporaryFolder folder;
  std::string ones;  // 256 of them, to c = 2^15, of which 13 bits keep nothing below 4
  for (int k = 0; k < 256; ++k) ones += "38 ";
  const std::string file = file_with(folder, "# in=e4m3 out=fp32\n" + ones + "| " + ones + "| 47000000\n");
  EXPECT_TRUE(contains(ampcheck("mma h100 --unit wgmma -f " + file).out, "| 47000000 | 47000000\n")) << "all are lost";
  EXPECT_TRUE(contains(ampcheck("mma h100 --unit wgmma --promote 4 -f " + file).out, "| 47000000 | 47010000\n"));
  EXPECT_TRUE(contains(ampcheck("mma h100 -f " + file).out, "| 47000000 | 47010000\n")) << "mma adds c outside";
}

/// 32 products of 1 by 1, with scales 2 and 1/2 on either side; and of fp4 a sum that only many bits keep.
TEST(Mma, VectorsWithScalesFollowThePublishedModel) {
  const TemporaryFolder folder;
  const auto times = [](int n, const char* code) {
    std::string out;
    for (int i = 0; i < n; ++i) out += std::string(code) + " ";
    return out;
  };
  const std::string ones = times(32, "38") + "| " + times(32, "38") + "| 80 | 7e | 00000000";
  const std::string file = file_with(folder, "# scaled=mxf8f6f4 in=e4m3\n" + ones + "\n");
  EXPECT_TRUE(contains(ampcheck("mma b200 -f " + file).out, "| 00000000 | 42000000\n"));
  // c = 2^30 and one product of 1 times 2^-0: 25 bits lose it, 35 keep it.
  const std::string fp4 = "2 " + times(63, "0") + "| 2 " + times(63, "0") + "| 7f 7f | 7f 7f | 4b800000";  // 2^24 + 1
  file_with(folder, "# scaled=mxf4nvf4 in=e2m1\n" + fp4 + " | 4b800000\n");
  const ProgramResult known = ampcheck("mma b200 -f " + file);
  EXPECT_EQ(known.exit_code, 0) << known.out << known.err;
  EXPECT_TRUE(contains(known.out, "Every d is that of the model with F = 35.")) << known.out;
  file_with(folder, "# scaled=mxf4nvf4 in=e2m1\n" + fp4 + " | 4b800001\n");
  EXPECT_EQ(ampcheck("mma b200 -f " + file).exit_code, 1);
  const std::pair<std::string, const char*> faults[] = {
      {"# scaled=mxfp4 in=e2m1\n" + fp4, "want scaled=mxf8f6f4 or mxf4nvf4"},
      {"# scaled=mxf4nvf4\n" + fp4, "got no in="},
      {"# scaled=mxf8f6f4 in=e4m3\n" + fp4, "got 64 numbers of a, want 32"},
      {"# scaled=mxf8f6f4 in=e4m3\n38 | 38 | 0\n", "a | b | scales of a | scales of b | c"}};
  for (const auto& [text, words] : faults) {
    file_with(folder, text);
    const ProgramResult run = ampcheck("mma b200 -f " + file);
    EXPECT_EQ(run.exit_code, 2) << text;
    EXPECT_TRUE(contains(run.err, words)) << run.err;
  }
  file_with(folder, "# scaled=mxf8f6f4 in=e4m3\n" + ones + "\n");
  EXPECT_TRUE(contains(ampcheck("mma h100 -f " + file).err, "want b200"));
}

TEST(Mma, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  const std::string file = file_with(folder, "3c00 | 3c00 | 0\n");
  const std::pair<std::string, const char*> faults[] = {
      {"mma h1000", "want v100, turing, a100, ada, h100, h200 or b200"},
      {"mma h100 -f " + file, "want --in"},
      {"mma v100 --in bf16 -f " + file, "it has no bf16"},
      {"mma a100 --in fp16 --unit wgmma -f " + file, "wgmma is Hopper's alone"},
      {"mma h100 --in fp17", "want fp16, bf16, tf32, e4m3, e5m2"},
      {"check linear --accumulate h100,order=3", "want v100, turing"},
      {"check softmax --accumulate h100", "want one of linear, attention"},
  };
  for (const auto& [line, words] : faults) {
    const ProgramResult result = ampcheck(line);
    EXPECT_EQ(result.exit_code, 2) << line;
    EXPECT_TRUE(contains(result.err, words)) << line << ": " << result.err;
  }
  file_with(folder, "# in=fp16\n3c00 | 3c0z | 0\n");
  const ProgramResult bad = ampcheck("mma h100 -f " + file);
  EXPECT_EQ(bad.exit_code, 2) << bad.err;
  EXPECT_TRUE(contains(bad.err, ":2: got '3c0z', want a number in hex")) << bad.err;
  file_with(folder, "# in=fp16\n");
  EXPECT_EQ(ampcheck("mma h100 -f " + file).exit_code, 4);
}

TEST(Mma, ExplainsCaptures) {
  const auto folder = tests::shared_file("tensor_core_captures");
  if (!folder) GTEST_SKIP() << "tensor_core_captures is not on this machine (AMPCHECK_SHARED)";
  for (const char* name : {"v100_fp16_fp16", "a100_tf32_fp32", "ada_e5m2_fp16", "h200_e4m3_fp32", "b200_e4m3_fp32"}) {
    const std::string gpu = std::string(name).substr(0, std::string(name).find('_'));
    const ProgramResult result = ampcheck("mma " + gpu + " -f '" + (*folder / name).string() + ".txt'");
    EXPECT_EQ(result.exit_code, 0) << name << result.out << result.err;
    EXPECT_TRUE(contains(result.out, "Every d is that of ")) << result.out;
  }
}

TEST(Accumulate, MatmulAndAttentionRunOnCoresAndAreJudgedByTheirBound) {
  const ProgramResult matmul = ampcheck("check matmul --accumulate h100 --regimes quick --shapes first --real off");
  EXPECT_EQ(matmul.exit_code, 0) << matmul.out << matmul.err;
  EXPECT_TRUE(contains(matmul.out, "linear")) << matmul.out;
  const ProgramResult attention =
      ampcheck("check attention --accumulate a100,split=2 --regimes quick --shapes first --real off");
  EXPECT_EQ(attention.exit_code, 0) << attention.out << attention.err;
  const ProgramResult one = ampcheck("replay 'matmul(x=fp16[5,7],weight=fp16[3,7],seed=1)' --accumulate v100");
  EXPECT_EQ(one.exit_code, 0) << one.out << one.err;
}

}  // namespace
}  // namespace ampcheck::testing
