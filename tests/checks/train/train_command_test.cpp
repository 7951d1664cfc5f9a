// SPDX-License-Identifier: Apache-2.0
// `ampcheck train` as a user sees it: its lines, its summary, its rules of scaling.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::testing {
namespace {

using nlohmann::json;

TEST(TrainCommand, AStepIsALineAndTheSummarySaysWhatWasLostAndWhatToTry) {
  const ProgramResult run =
      ampcheck("train --model mlp --data digits --dtype fp16 --scaler none --steps 30 --shadow both --seed 1");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_TRUE(run.err.empty()) << "no moving line off a terminal: " << run.err;
  EXPECT_EQ(run.out.find("mlp in fp16, autocast cuda (torch 2.15.0), scaler none, seed 1\nstep  1/30  loss 2."), 0u)
      << run.out;
  EXPECT_TRUE(contains(run.out, "step 30/30"));
  for (const char* word : {"stayed close to the fp64 run", "where   cross_entropy_1 backward cast of dx to fp16:",
                           "scale   ", "try     --scaler torch"})
    EXPECT_TRUE(contains(run.out, word)) << word << run.out;
}

/// Adam does not care how small all gradients are, fp16 does: the loss divided by a million, with and without a scaler.
TEST(TrainCommand, ARunWhoseGradientsVanishLeavesTheFp64RunAndEndsWithOne) {
  const std::string arguments = "train --steps 40 --json --optimizer adam --lr 0.003 --loss-weight 1e-6 --scaler ";
  const ProgramResult run = ampcheck(arguments + "none");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  const json j = json::parse(run.out);
  EXPECT_EQ(j["schema"], "ampcheck.train/1");
  ASSERT_EQ(j["steps"].size(), 40u);
  const json& at = j["steps"][j["left_at"].get<std::size_t>()];
  EXPECT_GT(std::abs(at["apart"].get<double>()), at["spread"].get<double>());
  EXPECT_GT(j["vanished_share"].get<double>(), 0.5);
  EXPECT_EQ(j["try"], "--scaler torch");
  EXPECT_GT(j["loss_scale"]["best"].get<int>(), 8);

  const ProgramResult scaled = ampcheck(arguments + "torch");
  EXPECT_EQ(scaled.exit_code, 0) << scaled.out;
  EXPECT_TRUE(json::parse(scaled.out)["left_at"].is_null());
  EXPECT_LT(json::parse(scaled.out)["vanished_share"].get<double>(), 0.1);
}

TEST(TrainCommand, ALossThatIsNotFiniteIsTracedToItsProducer) {
  const ProgramResult run = ampcheck("train --steps 4 --lr 1e9");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_TRUE(contains(run.out, "is NaN from step 2 on")) << run.out;
  EXPECT_TRUE(contains(
      run.out, "fault   step 2: linear_1 (layer0) forward cast of weight to fp16 made finite values non-finite"))
      << run.out;
}

/// An overflow at the first step: by their published defaults torch halves at once, Megatron's second overflow in a row
/// does.
TEST(TrainCommand, TheScaleMovesByTheRuleAskedFor) {
  const auto scales = [](const std::string& rule) {
    std::vector<double> out;
    const json run =
        json::parse(ampcheck("train --steps 4 --shadow off --json --init-scale 16777216 --scaler " + rule).out);
    for (const json& step : run["steps"]) out.push_back(step["scale"].get<double>());
    return out;
  };
  EXPECT_EQ(scales("torch"), (std::vector<double>{0x1p24, 0x1p23, 0x1p22, 0x1p21}));
  EXPECT_EQ(scales("megatron"), (std::vector<double>{0x1p24, 0x1p24, 0x1p23, 0x1p22}));
}

TEST(TrainCommand, WrongUseIsExitCodeTwo) {
  for (const char* arguments : {"--model mpl", "--dtype fp4", "--fp8 current", "--dtype fp8 --fp8 late", "--steps 0",
                                "--shadow half", "--data text", "--optimizer adam --momentum 0.9", "--scaler apexx",
                                "--lr -1", "--init-scale 0", "--clip-norm 0", "--loss-weight 0"}) {
    const ProgramResult run = ampcheck(std::string("train ") + arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments << run.err;
    EXPECT_TRUE(contains(run.err, "want")) << run.err;
  }
  EXPECT_EQ(ampcheck("trace no_such_file").exit_code, 2);
  EXPECT_EQ(ampcheck("trace " + tests::in_source("/tests/data/digits.csv")).exit_code, 2);
}

}  // namespace
}  // namespace ampcheck::testing
