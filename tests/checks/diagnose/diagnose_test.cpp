// SPDX-License-Identifier: Apache-2.0
// Diagnoses of planted runs: the cause and the op that were planted are named, and healthy runs are left alone.
#include "checks/diagnose/diagnose.h"

#include <gtest/gtest.h>

#include <cmath>

#include "checks/diagnose/equality.h"
#include "checks/diagnose/planted.h"
#include "checks/diagnose/planted_nets.h"
#include "checks/diagnose/score.h"
#include "checks/diagnose/smallest_set.h"
#include "checks/models/bound_call.h"
#include "src/error.h"
#include "tests/support/run_program.h"

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
                                           "fp8_times_scale", "amax_in_registers", "amax_in_registers_fp16",
                                           "compared_in_registers", "compared_in_registers_bf16", "one_fused_kernel",
                                           "deep_amax_kept", "image_amax_kept", "sequence_compared_kept",
                                           "deep_one_kernel", "image_one_kernel", "no_dot_term", "no_factor",
                                           "guided_relu", "rounded_exponent", "deep_slope", "deep_density",
                                           "image_square", "sequence_slope", "sequence_hard"));

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
                                           "healthy_fp8_delayed", "healthy_fp8_current", "healthy_amax_stored",
                                           "healthy_amax_stored_fp16", "healthy_amax_fused", "healthy_amax_fused_bf16",
                                           "healthy_amax_emulated", "healthy_amax_one_kernel", "well_deep_amax",
                                           "well_image_amax", "well_sequence_amax", "well_deep_one_kernel",
                                           "well_deep_by_exp", "well_image_erfc", "well_sequence_double"));

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

/// With less precision in one place the run is well: nothing else does that.
TEST(Diagnose, AMovedRoundingIsPutBackWhereItWasLeftOut) {
  const Subject subject = planted("amax_in_registers").make();
  const Report report = diagnose_run(subject);
  ASSERT_FALSE(report.findings.empty());
  const Finding& f = report.findings.front();
  EXPECT_EQ(f.cure.rounded, Ops{"most_fused_1"});
  EXPECT_GT(f.step, 0) << "gains of 1 are exact";
  EXPECT_TRUE(report.cured) << report.cure_tried;
  EXPECT_EQ(report.cure_tried, "tried: with most_fused_1 rounded to bf16 the run is well");
  EXPECT_TRUE(testing::contains(f.paste, "emulate_precision_casts")) << f.paste;
}

TEST(Diagnose, OnlyComparedNumbersThatWereComputedAreAnEquality) {
  make_trainer(planted("one_fused_kernel").make(), {}, {}, 0)->prepare();
  EXPECT_TRUE(compares_inputs(models::op_of_call("share_inside_stored")));
  for (const char* op : {"relu", "max", "max_pool2d", "cross_entropy"})
    EXPECT_FALSE(compares_inputs(*find_op(op))) << op;
}

TEST(Diagnose, OnlyOpsThatAddUpHaveASumInTooFewBits) {
  for (const char* op : {"softmax", "linear", "conv2d", "mean", "layer_norm"})
    EXPECT_TRUE(sums_inputs(*find_op(op))) << op;
  for (const char* op : {"sigmoid", "relu", "mul", "gelu"}) EXPECT_FALSE(sums_inputs(*find_op(op))) << op;
}

/// Whatever is advised was tried, or it says that it was not.
TEST(Diagnose, AdviceIsTriedOrSaysThatItWasNot) {
  const auto said = [](const char* name) {
    const Report report = diagnose_run(planted(name).make());
    EXPECT_FALSE(report.findings.empty()) << name;
    EXPECT_FALSE(report.findings.front().paste.empty()) << name;
    EXPECT_EQ(report.tried_cure, report.cure_tried.starts_with("tried: ")) << report.cure_tried;
    EXPECT_LE(report.cured, report.tried_cure) << name;
    return report.cure_tried;
  };
  EXPECT_EQ(said("stale_amax"), "tried: with current scaling of linear_1 the run is well");
  EXPECT_EQ(said("fp8_jumps"), "tried: the run is well with current scaling");
  EXPECT_EQ(said("fp8_stale"), "tried: the run is well with scales and formats as the recipe says");
  EXPECT_EQ(said("fp8_stale_short"), "tried: the run is well with current scaling");
  EXPECT_EQ(said("mask_1e9"), "tried: the run is well with it");
  EXPECT_EQ(said("clip_first"), "tried: the run is well with a step as torch does it");
  EXPECT_EQ(said("race"), "not tried: it needs the machine that the run was made on");
  EXPECT_EQ(said("rate_too_large"), "tried: the run is well with it");
}

/// Where fp32 was tried and did not help, the line does not say fp32; where it was not tried or helped, it may.
TEST(Diagnose, WhatDidNotHelpIsNotAdvised) {
  const Report squares = diagnose_run(planted("fp16_squares").make());
  ASSERT_FALSE(squares.findings.empty());
  EXPECT_FALSE(squares.smallest.known);
  EXPECT_TRUE(testing::contains(squares.findings.front().paste, "a right kernel for norm_b_1"))
      << squares.findings.front().paste;
  const Report sum = diagnose_run(planted("fp16_sum").make());
  EXPECT_EQ(sum.smallest.ops, Ops{"dense_1"});
  EXPECT_TRUE(testing::contains(sum.findings.front().paste, "autocast")) << sum.findings.front().paste;
}

/// Where torch's first scale is too small by far, the scale is looked for further up.
TEST(Diagnose, TheScaleIsLookedForAboveTorchsFirst) {
  Subject subject = planted("no_scaler").make();
  subject.options.rule.loss_weight = 1e-18;
  subject.options.rule.optimizer = {.name = "adam", .lr = 0.003};
  subject.steps = 10;
  const Report report = diagnose_run(subject);
  ASSERT_FALSE(report.findings.empty());
  const Finding& f = report.findings.front();
  EXPECT_EQ(f.cause, Cause::gradient_underflow);
  ASSERT_TRUE(f.cure.init_scale.has_value());
  EXPECT_GT(*f.cure.init_scale, 65536);
  EXPECT_TRUE(testing::contains(f.paste, "init_scale=2.0**")) << f.paste;
  EXPECT_TRUE(report.cured) << report.cure_tried;
}

/// A cure that is none: the gradient of one step is still infinite where that step is rightly skipped.
TEST(Diagnose, AChangeThatDoesNotCureIsNotSaidTo) {
  const Report report = diagnose_run(planted("first_gradient_alone").make());
  EXPECT_TRUE(report.tried_cure);
  EXPECT_FALSE(report.cured);
  EXPECT_EQ(report.cure_tried, "tried: the run is not well with it alone");
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
  ASSERT_EQ(causes().size(), 37u);
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
