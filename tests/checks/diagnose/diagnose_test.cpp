// SPDX-License-Identifier: Apache-2.0
// Diagnoses of planted runs: the cause and the op that were planted are named, and healthy runs are left alone.
#include "checks/diagnose/diagnose.h"

#include <gtest/gtest.h>

#include <cmath>

#include "checks/diagnose/planted.h"
#include "checks/diagnose/planted_nets.h"
#include "checks/diagnose/score.h"
#include "checks/diagnose/smallest_set.h"
#include "src/error.h"

namespace ampcheck::checks::diagnose {
namespace {

const PlantedRun& planted(const std::string& name) {
  for (const PlantedRun& run : planted_runs())
    if (run.name == name) return run;
  throw Error("no planted run '" + name + "'");
}

/// One of each kind of rule; the whole suite is a soak test.
class Planted : public ::testing::TestWithParam<const char*> {};
TEST_P(Planted, IsNamedWithItsOp) {
  const Trial trial = try_run(planted(GetParam()), false);
  ASSERT_EQ(trial.error, "");
  ASSERT_FALSE(trial.named.empty());
  EXPECT_EQ(info(trial.named.front()).name, info(trial.run->cause).name);
  if (!trial.run->ops.empty()) {
    EXPECT_TRUE(trial.op_right(trial.op)) << trial.op;
  }
  if (trial.run->optimum >= 0) {
    EXPECT_EQ(trial.set_size, trial.run->optimum);
  }
}
INSTANTIATE_TEST_SUITE_P(Causes, Planted,
                         ::testing::Values("layer_overflows", "mask_1e9", "no_scaler", "nan_hidden",
                                           "spoilt_statistics", "race", "backward_nan", "stale_gradients",
                                           "scale_infinite", "clip_first", "first_gradient_alone", "replica_drifts",
                                           "bf16_weights", "bf16_moments", "fp16_moments", "one_pass_variance",
                                           "fp16_squares", "bf16_positions", "bf16_router", "gains_in_blocks",
                                           "truncated_layer", "stale_amax", "dropout_again", "recomputed_in_fp32",
                                           "inference_in_bf16", "fp8_stale", "fp8_history_of_one", "fp8_e4m3_gradients",
                                           "fp8_times_scale"));

class Control : public ::testing::TestWithParam<const char*> {};
TEST_P(Control, IsNoFaultOfPrecision) {
  const Trial trial = try_run(planted(GetParam()), false);
  ASSERT_EQ(trial.error, "");
  EXPECT_FALSE(trial.false_alarm()) << (trial.named.empty() ? "inconclusive" : info(trial.named.front()).name);
}
INSTANTIATE_TEST_SUITE_P(Runs, Control,
                         ::testing::Values("scale_comes_down", "scale_grows_back", "burst", "rate_too_large",
                                           "healthy_relu_fp16_sgd", "healthy_normed_bf16_adam", "healthy_clip",
                                           "healthy_masters", "healthy_fused", "healthy_reversed_softmax",
                                           "healthy_recomputed", "healthy_dropout", "healthy_inference",
                                           "healthy_fp8_delayed", "healthy_fp8_current"));

TEST(Diagnose, OverflowIsSeenBeforeItHappens) {
  const Subject subject = planted("layer_overflows").make();
  const Report report = diagnose_run(subject);
  ASSERT_FALSE(report.findings.empty());
  const Finding& f = report.findings.front();
  EXPECT_GT(f.step, f.precursor);
  EXPECT_EQ(report.smallest.ops, Ops{"linear_2"});
  EXPECT_TRUE(report.cured);
  EXPECT_NE(f.paste.find("wide"), std::string::npos) << f.paste;  // the layer, by its name
}

/// Second moments that vanish in fp16 move the weights away, until a layer overflows: the layer is not to blame.
TEST(Diagnose, AnOverflowOfWeightsThatTheOptimizerMovedAwayIsTheOptimizers) {
  Subject subject = planted("fp16_moments").make();
  subject.options.rule.optimizer.weights = train::Weights::low;
  subject.options.rule.optimizer.lr = 1e-2;
  const Report report = diagnose_run(subject);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(info(report.findings.front().cause).name, info(Cause::optimizer_underflow).name);
  EXPECT_TRUE(report.cured) << report.cure_tried;
}

TEST(Diagnose, ACheckpointGoesOnBitForBitAndAChangeOfTypesTakesItsValues) {
  const Subject subject = planted("healthy_masters").make();
  const Observation seen = observe(subject);
  Lab lab(subject, seen);
  const int from = 20;
  ASSERT_NE(seen.before(from), nullptr);
  ASSERT_GT(seen.before(from)->step, 0);
  const Course& again = lab.run({}, from, static_cast<int>(seen.steps.size()) - 1);
  ASSERT_EQ(again.refused, "");
  for (const train::StepResult& s : again.steps)
    EXPECT_EQ(s.loss, seen.steps[static_cast<std::size_t>(s.step)].loss) << s.step;
  const Course& wide = lab.run({.everything_fp32 = true}, from, from);
  ASSERT_EQ(wide.refused, "");
  EXPECT_NEAR(wide.steps.front().loss, seen.steps[static_cast<std::size_t>(wide.from)].loss,
              16 * format(Dtype::bf16).unit_roundoff() * seen.steps.front().loss);
  EXPECT_NE(wide.steps.front().loss, seen.steps[static_cast<std::size_t>(wide.from)].loss);
}

TEST(Diagnose, ARaisedOpRunsInFp32AndNoOther) {
  Subject subject = planted("healthy_relu_fp16_sgd").make();
  std::map<std::string, Dtype> types;
  subject.make_fault = [&types] {
    return [&types](const train::Event& e) {
      if (e.phase == train::Phase::forward && !e.cast) types[std::string(e.op)] = e.got.dtype;
    };
  };
  make_trainer(subject, {.raised = {"linear_2"}}, {}, 0)->step();
  EXPECT_EQ(types.at("linear_1"), Dtype::fp16);
  EXPECT_EQ(types.at("linear_2"), Dtype::fp32);
}

TEST(SmallestSet, FindsAPairThatWorksTogetherAloneAndAsksForNoSetTwice) {
  const std::vector<std::string> all = {"a", "b", "c", "d", "e", "f", "g", "h"};
  std::set<Ops> asked;
  const Search found = smallest_set(all, {"a"}, [&](const Ops& ops) {
    EXPECT_TRUE(asked.insert(ops).second);
    return ops.contains("b") && ops.contains("g");
  });
  EXPECT_TRUE(found.known);
  EXPECT_EQ(found.ops, (Ops{"b", "g"}));
  EXPECT_EQ(found.tried, static_cast<int>(asked.size()));
}

TEST(SmallestSet, SaysThatNoSetDoesIt) {
  const Search found = smallest_set({"a", "b"}, {}, [](const Ops&) { return false; });
  EXPECT_FALSE(found.known);
  EXPECT_EQ(found.tried, 1);
}

TEST(Causes, AreAllThereOnceWithWhatWouldDecide) {
  ASSERT_EQ(causes().size(), 36u);
  for (std::size_t i = 0; i < causes().size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(causes()[i].cause), i + 1);
    EXPECT_EQ(causes()[i].number, "D" + std::to_string(i + 1));
    EXPECT_FALSE(causes()[i].record.empty());
  }
}

TEST(Score, CountsARightOneAWrongOneAndAFalseAlarm) {
  const PlantedRun overflow{"a", Cause::forward_overflow, "", {"linear_1"}, 1, nullptr}, well{"b"};
  Trial right{.run = &overflow, .named = {Cause::forward_overflow}, .op = "linear_1", .healthy = false, .set_size = 2},
      wrong{.run = &overflow, .named = {Cause::cancellation}, .op = "add_1", .healthy = false, .set_size = 3},
      alarm{.run = &well, .named = {Cause::cancellation}, .healthy = false};
  const Score s = score({right, wrong, alarm});
  EXPECT_EQ(s.planted, 2);
  EXPECT_EQ(s.top1, 1);
  EXPECT_EQ(s.op_exact, 1);
  EXPECT_EQ(s.set_near, 1);
  EXPECT_EQ(s.false_alarms, 1);
  EXPECT_FALSE(goals_met(s));
}

}  // namespace
}  // namespace ampcheck::checks::diagnose
