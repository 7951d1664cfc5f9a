// SPDX-License-Identifier: Apache-2.0
// Training in fp8: the recipe's numbers, runs that follow it, and planted faults that are found with their cause.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "checks/train/checkpoint.h"
#include "checks/train/fp8_check.h"
#include "checks/train/trainer.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks::train {
namespace {

using ampcheck::testing::contains;

TrainOptions in_fp8(const char* recipe) {
  TrainOptions o;
  o.net.model = "mlp";
  o.net.data = models::find_data("");
  o.dtype = Dtype::bf16;
  o.fp8 = read_fp8_recipe(recipe);
  o.scaler.enabled = false;
  o.judge = JudgeMode::sampled;
  o.check_steps = true;
  return o;
}

std::vector<RunFinding> findings_of(const TrainOptions& options, int steps = 12) {
  Trainer trainer(options);
  for (int i = 0; i < steps; ++i) trainer.step();
  return trainer.findings();
}

std::string text(const std::vector<RunFinding>& findings) {
  std::string out;
  for (const RunFinding& f : findings) out += std::string(text_of(f.code).name) + " " + f.where + ": " + f.what + "\n";
  return out;
}

std::string error_of(const std::string& recipe) {
  try {
    read_fp8_recipe(recipe);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

TEST(Fp8, ARecipeIsReadAndWritten) {
  EXPECT_EQ(read_fp8_recipe("delayed").str(), "delayed");
  const char* const full = "delayed,amax_history_len=16,amax_compute_algo=most_recent,margin=2,fp8_format=E4M3";
  EXPECT_EQ(read_fp8_recipe(full).str(), full);
  EXPECT_EQ(read_fp8_recipe("current").dtype(true), Dtype::e5m2);
  EXPECT_EQ(read_fp8_recipe("current,fp8_format=E4M3").dtype(true), Dtype::e4m3fn);
  EXPECT_TRUE(contains(error_of("late"), "got 'late', want delayed or current"));
  EXPECT_TRUE(contains(error_of("delayed,amax_history_len=0"), "want a whole number from 1"));
  EXPECT_TRUE(contains(error_of("current,margin=1"), "current scaling"));
  EXPECT_TRUE(contains(error_of("delayed,length=4"), "got 'length=4'"));
}

/// Scales of steps 1, 2, ... by hand: 448 over the largest of the last two amaxes, halved by the margin.
TEST(Fp8, DelayedScalesFollowTheHistory) {
  Fp8State state(read_fp8_recipe("delayed,amax_history_len=2,margin=1"));
  const float amaxes[] = {1, 4, 2, 2, 0, 0, INFINITY};
  const float scales[] = {224, 56, 56, 112, 112, 112, 112};
  for (std::size_t i = 0; i < std::size(amaxes); ++i) {
    state.update({{"x", {amaxes[i], false}}});
    EXPECT_EQ(state.scale("x"), scales[i]) << i;
  }
  EXPECT_EQ(state.scale("another"), 1);
  EXPECT_EQ(current_scale(2, Dtype::e5m2), 28672);
  EXPECT_EQ(current_scale(0, Dtype::e5m2), 1);
}

TEST(Fp8, ValuesSaturateAndAreDividedByTheirScale) {
  Fp8State state(read_fp8_recipe("delayed"));
  state.update({{"x", {7, false}}});
  Fp8Rank rank(state);
  Tensor x(Dtype::fp32, {4});
  const float values[] = {7, 14, -1, 1e-9f};
  std::copy(std::begin(values), std::end(values), x.span<float>().begin());
  const Fp8Rank::Cast cast = rank.quantize("x", false, x.view());
  EXPECT_EQ(cast.scale, 64);
  EXPECT_EQ(to_doubles(cast.codes.view()), (std::vector<double>{448, 448, -64, 0}));
  EXPECT_EQ(to_doubles(rank.widened(cast).view()), (std::vector<double>{7, 7, -1, 0}));
  EXPECT_EQ(rank.met().at("x").amax, 14);
}

TEST(Fp8, RunsThatFollowTheirRecipeArePassed) {
  for (const char* recipe : {"current", "delayed", "delayed,amax_history_len=1", "delayed,amax_history_len=3,margin=1",
                             "delayed,amax_compute_algo=most_recent", "current,fp8_format=E4M3"}) {
    EXPECT_EQ(text(findings_of(in_fp8(recipe))), "") << recipe;
    TrainOptions ranks = in_fp8(recipe);
    ranks.rule.ranks = 2;
    ranks.rule.accumulate = 2;
    EXPECT_EQ(text(findings_of(ranks, 6)), "") << recipe;
  }
}

/// The fault, and what the finding has to say of it.
void expect_found(const char* recipe, const Fp8Fault& fault, const char* cause, const char* where = "") {
  TrainOptions o = in_fp8(recipe);
  o.planted_fp8 = fault;
  const std::vector<RunFinding> found = findings_of(o);
  ASSERT_FALSE(found.empty()) << cause;
  EXPECT_EQ(found.front().code, RunCode::fp8) << text(found);
  EXPECT_TRUE(contains(found.front().what, cause)) << text(found);
  EXPECT_TRUE(contains(found.front().where, where)) << text(found);
}

TEST(Fp8, AStaleAmaxIsNamed) {
  expect_found("delayed", {.frozen_after = 1}, "no scale has moved since step 1");
  expect_found("delayed,amax_history_len=4", {.frozen_after = 3}, "no scale has moved since step 3");
}

TEST(Fp8, AnotherHistoryLengthIsNamed) {
  expect_found("delayed", {.amax_history_len = 1}, "those of a history of 1 step, the recipe has 1024");
  expect_found("delayed,amax_history_len=2", {.amax_history_len = 4},
               "those of a history of 4 steps, the recipe has 2");
}

TEST(Fp8, GradientsInTheForwardFormatAreNamed) {
  for (const char* recipe : {"delayed", "current"})
    expect_found(recipe, {.gradients_in_forward = true}, "it is in e4m3fn, the recipe",
                 "backward cast of dy to e4m3fn");
}

TEST(Fp8, AScaleThatIsNotInvertedIsNamed) {
  for (const char* recipe : {"delayed", "current"})
    expect_found(recipe, {.times_scale = true}, "multiplied by its scale, not divided by it");
}

/// A wrong op of an fp8 run is named as any other.
TEST(Fp8, AWrongOpIsNamedInFp8Too) {
  TrainOptions o = in_fp8("current");
  o.kernels_of["relu"] = find_op("relu.cotangent_sign");
  const std::vector<RunFinding> found = findings_of(o, 2);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().code, RunCode::op) << text(found);
}

/// A recorded run says what it was in, and no product in fp8 is taken for one that autocast runs in fp32.
TEST(Fp8, ATraceSaysSoAndHasItsCasts) {
  const ampcheck::testing::TemporaryFolder folder;
  const std::string file = folder.path() + "/run.trace";
  for (const char* const recipe : {"current", "delayed,amax_history_len=4"}) {
    ASSERT_EQ(ampcheck::testing::ampcheck(std::string("train mlp --dtype fp8 --fp8 ") + recipe +
                                          " --steps 3 --record '" + file + "'")
                  .exit_code,
              0);
    const auto shown = ampcheck::testing::ampcheck("trace '" + file + "'");
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_TRUE(contains(shown.out, std::string("mlp in fp8 (") + recipe + ")")) << shown.out;
    EXPECT_TRUE(contains(shown.out, "backward cast of dy to e5m2")) << shown.out;
    EXPECT_FALSE(contains(shown.out, "runs in fp32")) << shown.out;
    std::filesystem::remove(file);
  }
}

TEST(Fp8, ARunGoesOnFromItsCheckpointBitForBit) {
  const TrainOptions o = in_fp8("delayed,amax_history_len=3");
  Trainer whole(o), half(o);
  for (int i = 0; i < 4; ++i) half.step();
  Trainer rest(o);
  resume(rest, checkpoint_bytes(half), "here");
  for (int i = 0; i < 4; ++i) whole.step();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(whole.step().loss, rest.step().loss) << i;
  EXPECT_EQ(text(rest.findings()), "");
}

}  // namespace
}  // namespace ampcheck::checks::train
