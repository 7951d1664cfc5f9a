// SPDX-License-Identifier: Apache-2.0
// What a run says of itself beside the distance of its loss: each check with a planted fault that it catches, and runs
// without one that it passes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

#include "checks/audit/train_audit.h"
#include "checks/define/op_def.h"
#include "checks/train/loss_course.h"
#include "checks/train/trainer.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks::train {
namespace {

using ampcheck::testing::ampcheck;
using ampcheck::testing::contains;
using ampcheck::testing::ProgramResult;
using nlohmann::json;

TrainOptions checked(const char* net, Dtype dtype) {
  TrainOptions o;
  o.net.model = net;
  o.net.data = models::find_data("");
  o.dtype = dtype;
  o.scaler.enabled = dtype == Dtype::fp16;
  o.judge = JudgeMode::sampled;
  o.check_steps = true;
  return o;
}

std::vector<RunFinding> findings_of(const TrainOptions& options, int steps) {
  Trainer trainer(options);
  for (int i = 0; i < steps; ++i) trainer.step();
  return trainer.findings();
}

bool has(const std::vector<RunFinding>& findings, RunCode code) {
  return std::any_of(findings.begin(), findings.end(), [&](const RunFinding& f) { return f.code == code; });
}

std::string text(const std::vector<RunFinding>& findings) {
  std::string out;
  for (const RunFinding& f : findings) out += std::string(text_of(f.code).name) + " " + f.where + ": " + f.what + "\n";
  return out;
}

/// Changes all gradients.
std::function<void(Stage, ParameterSet&, double)> times(Stage stage, double factor) {
  return [=](Stage now, ParameterSet& parameters, double) {
    if (now != stage) return;
    for (Parameter& p : parameters.all()) {
      if (!p.grad.defined()) continue;
      std::vector<double> values = to_doubles(p.grad.view());
      for (double& v : values) v *= factor;
      Tensor fresh = Tensor::uninitialized(p.grad.dtype(), p.grad.shape());
      from_doubles(values, fresh.view());
      p.grad = fresh;
    }
  };
}

TEST(RunVerdict, AWrongOpIsNamedAtTheTensorsThatItMet) {
  TrainOptions o = checked("mlp", Dtype::fp16);
  o.kernels_of["relu"] = find_op("relu.cotangent_sign");
  const std::vector<RunFinding> found = findings_of(o, 2);
  ASSERT_TRUE(has(found, RunCode::op)) << text(found);
  EXPECT_TRUE(contains(found.front().where, "relu_")) << text(found);
  EXPECT_TRUE(contains(found.front().where, "backward dx")) << text(found);
  EXPECT_TRUE(contains(found.front().what, "BUG AC")) << text(found);
  EXPECT_EQ(found.front().step, 0);
}

/// Numbers that follow no rule have no likely cause: the finding says how many they are, and the worst.
TEST(RunVerdict, AWrongOpWithoutAKnownCauseIsDescribedByItsNumbers) {
  OpDef odd = *find_op("linear");
  const kernels::Kernel right = odd.kernel;
  odd.kernel.backward = [right](const kernels::KernelCall& call) {
    right.backward(call);
    std::vector<double> dw = to_doubles(call.at("dweight"));
    for (std::size_t i = 0; i < dw.size(); ++i) dw[i] *= 1 + 0.01 * static_cast<double>(i * i * 7919 % 13);
    from_doubles(dw, call.at("dweight"));
  };
  TrainOptions o = checked("mlp", Dtype::fp16);
  o.kernels_of["linear"] = &odd;
  const std::vector<RunFinding> found = findings_of(o, 1);
  ASSERT_TRUE(has(found, RunCode::op)) << text(found);
  EXPECT_TRUE(contains(found.front().what, " elements, the worst is ")) << text(found);
  EXPECT_TRUE(contains(found.front().what, ", want ")) << text(found);
}

TEST(RunVerdict, HealthyStepsOfAllOptimizersAreWithinTheirRule) {
  for (const char* optimizer : {"sgd", "adam", "adamw", "adagrad", "rmsprop"})
    for (const bool fused : {false, true}) {
      TrainOptions o = checked("mlp", Dtype::bf16);
      o.judge = JudgeMode::none;
      o.rule.optimizer.name = optimizer;
      o.rule.optimizer.fused = fused;
      o.rule.optimizer.weight_decay = 0.01;
      o.rule.schedule = "warmup:3:20";
      o.rule.clip_norm = 0.5;
      o.rule.accumulate = 2;
      EXPECT_EQ(text(findings_of(o, 5)), "") << optimizer << fused;
    }
}

/// torch rounds the norms and the factor to the gradients' 16 bits; a fifth of these runs were called wrong before.
TEST(RunVerdict, ClippingOfShortGradientsRoundsAsTorchDoesAndNoMore) {
  for (const std::uint64_t seed : {9u, 14u, 22u, 38u})
    for (const char* optimizer : {"sgd", "adam"}) {
      TrainOptions o = checked("mlp", Dtype::bf16);
      o.judge = JudgeMode::none;
      o.seed = seed;
      o.net.batch = 16;
      o.rule.optimizer.name = optimizer;
      o.rule.optimizer.weights = Weights::low;
      o.rule.clip_norm = 0.5;
      EXPECT_EQ(text(findings_of(o, 4)), "") << seed << optimizer;
      o.plant = times(Stage::clipped, 1.05);
      EXPECT_TRUE(has(findings_of(o, 2), RunCode::clip)) << seed << optimizer;
    }
}

TEST(RunVerdict, AnotherRateALostDecayAndALostMomentumAreUpdatesThatTheRuleDoesNotGive) {
  for (const int kind : {0, 1, 2}) {
    TrainOptions o = checked("mlp", Dtype::fp16);
    o.judge = JudgeMode::none;
    o.rule.optimizer.lr = 0.1;
    o.rule.optimizer.momentum = 0.9;
    o.rule.optimizer.weight_decay = 0.01;
    o.planted_optimizer = o.rule.optimizer;
    if (kind == 0) o.planted_optimizer->lr = 0.08;
    if (kind == 1) o.planted_optimizer->weight_decay = 0;
    if (kind == 2) o.planted_optimizer->momentum = 0;
    EXPECT_TRUE(has(findings_of(o, 3), RunCode::update)) << kind;
  }
}

/// Later on one step in seven is looked at as a whole, and what goes wrong stays wrong.
TEST(RunVerdict, AStepThatBecomesWrongLateIsFoundWithinSeven) {
  TrainOptions o = checked("mlp", Dtype::fp16);
  EXPECT_TRUE(findings_of(o, 48).empty());
  constexpr int kFrom = 30;
  o.plant = [steps = 0, wrong = times(Stage::unscaled, 1.25)](Stage stage, ParameterSet& p, double scale) mutable {
    if (stage == Stage::unscaled && steps++ >= kFrom) wrong(stage, p, scale);
  };
  const std::vector<RunFinding> late = findings_of(o, kFrom + 8);
  ASSERT_TRUE(has(late, RunCode::unscale)) << text(late);
  for (const RunFinding& f : late) {
    if (f.code != RunCode::unscale) continue;
    EXPECT_GE(f.step, kFrom);
    EXPECT_LT(f.step, kFrom + 7);
  }
  o.judge = JudgeMode::all;
  const std::vector<RunFinding> all = findings_of(o, kFrom + 1);
  ASSERT_TRUE(has(all, RunCode::unscale)) << "every step is looked at: " << text(all);
}

TEST(RunVerdict, AScaleThatIsNeverDividedOutIsNamed) {
  TrainOptions o = checked("mlp", Dtype::fp16);
  o.judge = JudgeMode::none;
  o.scaler.init_scale = 1024;
  o.plant = times(Stage::unscaled, 1024);
  const std::vector<RunFinding> found = findings_of(o, 1);
  ASSERT_TRUE(has(found, RunCode::unscale)) << text(found);
  EXPECT_TRUE(contains(text(found), "the scale was never divided out")) << text(found);
  o.plant = nullptr;
  EXPECT_EQ(text(findings_of(o, 2)), "");
}

TEST(RunVerdict, SumsOverMicroBatchesAreHeldToFp32) {
  TrainOptions o = checked("mlp", Dtype::fp16);
  o.judge = JudgeMode::none;
  o.rule.accumulate = 4;
  EXPECT_EQ(text(findings_of(o, 2)), "");
  o.plant = times(Stage::accumulated, 1 + 0x1p-11);
  EXPECT_TRUE(has(findings_of(o, 1), RunCode::sum));
}

TEST(RunVerdict, ACastThatIsNotRoundingIsFound) {
  TrainOptions o = checked("mlp", Dtype::fp16);
  o.fault = [](const Event& e) {
    if (!e.cast || e.phase != Phase::backward || e.got.dtype != Dtype::fp32) return;
    std::vector<double> values = to_doubles(e.got);
    for (double& v : values) v *= 0.8;
    from_doubles(values, e.got);
  };
  EXPECT_TRUE(has(findings_of(o, 1), RunCode::cast));
}

TEST(RunVerdict, ABranchWhoseGradientIsLostIsADepartureFromFp64AtTheSameWeights) {
  TrainOptions o = checked("mlp", Dtype::bf16);
  o.shadows.carried = true;
  o.spread_seeds = 1;
  EXPECT_EQ(text(findings_of(o, 8)), "");
  o.judge = JudgeMode::none;
  o.kernels_of["relu"] = find_op("relu.cotangent_sign");
  EXPECT_TRUE(has(findings_of(o, 8), RunCode::gradient));
}

TEST(RunVerdict, RunsThatDidNothingAreNoPass) {
  const auto codes = [](const std::string& arguments) {
    const ProgramResult run = ampcheck("train --spread-seeds 1 --judge sampled --json " + arguments);
    EXPECT_EQ(run.exit_code, 1) << arguments << run.out << run.err;
    std::string out;
    const json j = json::parse(run.out);
    for (const json& f : j["findings"]) out += f["code"].get<std::string>() + " ";
    return out;
  };
  EXPECT_TRUE(contains(codes("--init-scale 1e30 --steps 3"), "TR201"));
  EXPECT_TRUE(contains(codes("--scaler none --loss-weight 1e-9 --steps 3"), "TR202"));

  Progress still;
  still.steps = still.updates = 3;
  still.parameters = {{"w", true, true, 30, 0}, {"b", true, true, 3, 0}};
  EXPECT_TRUE(has(still.findings(), RunCode::not_moved));
  still.parameters[0].moved = 1;
  EXPECT_TRUE(has(still.findings(), RunCode::one_not_moved));
  still.parameters[1].moved = 1;
  EXPECT_EQ(text(still.findings()), "");
}

/// fp64 goes the same way: no pass, and precision is not why. A hump that the run comes down from is none.
TEST(RunVerdict, ALossThatGrowsInFp64TooIsNoPass) {
  TrainOptions o = checked("mlp", Dtype::bf16);
  o.shadows.carried = true;
  o.spread_seeds = 5;
  o.rule.optimizer = {.name = "sgd", .lr = 1000, .momentum = 0.9};
  const std::vector<RunFinding> grows = findings_of(o, 4);
  ASSERT_TRUE(has(grows, RunCode::not_finite)) << text(grows);
  EXPECT_TRUE(contains(grows.back().what, "precision is not why")) << text(grows);
  o.rule.optimizer.lr = 0.05;
  EXPECT_FALSE(has(findings_of(o, 12), RunCode::not_finite));
  EXPECT_EQ(leaves(std::vector<double>{0.3, 0.7, 1.3, 0.9, 0.4, 0.3, 0.3}), -1);
  EXPECT_EQ(leaves(std::vector<double>{0.3, 0.7, 1.3, 1.9, 0.4, 2.3}), 2);
  EXPECT_EQ(leaves(std::vector<double>{0.3, 0.7, NAN, 0.3, 0.3, 0.3}), 2);
}

TEST(RunVerdict, TheTensorsOfAWrongCallAreJudgedAgainByCheck) {
  const ampcheck::testing::TemporaryFolder folder;
  const std::string net = folder.path() + "/net.toml";
  std::ofstream(net) << "data = \"digits\"\n[[layers]]\ntype = \"linear\"\noutputs = 24\n[[layers]]\ntype = \"op\"\n"
                        "op = \"rms_norm.normal_term_missing\"\n[[layers]]\ntype = \"linear\"\n";
  const ProgramResult run =
      ampcheck("train " + net + " --steps 2 --spread-seeds 1 --save-case " + folder.path() + "/cases");
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  const std::size_t at = run.out.find("ampcheck check --dump");
  ASSERT_NE(at, std::string::npos) << run.out;
  const std::string again = run.out.substr(at + 9, run.out.find('\n', at) - at - 9);
  const ProgramResult check = ampcheck(again);
  EXPECT_EQ(check.exit_code, 1) << again << check.out << check.err;
  EXPECT_TRUE(contains(check.out, "backward dx")) << check.out;
}

/// A kernel that takes fp8 alone is in no net of 16 bits, and so neither found nor an alarm.
TEST(RunVerdict, TheAuditPlantsWhatTakesTheNetsTypesAlone) {
  EXPECT_TRUE(train_audit::audit({.patterns = {"mul.product_in_fp16"}}).empty());
  const std::vector<train_audit::Trial> trials = train_audit::audit({.patterns = {"rms_norm.normal_term_missing"}});
  ASSERT_FALSE(trials.empty());
  for (const train_audit::Trial& t : trials) EXPECT_TRUE(t.found && t.named) << t.net << " " << t.what;
}

TEST(RunVerdict, ASampleOfTheAuditMeetsItsGoals) {
  const std::vector<train_audit::Trial> trials = train_audit::audit({.quick = true});
  const train_audit::Score kernels = score(trials, train_audit::Part::kernel),
                           steps = score(trials, train_audit::Part::step);
  EXPECT_GE(kernels.trials, 5);
  EXPECT_GE(kernels.found, train_audit::kKernelGoal * kernels.trials);
  EXPECT_GE(steps.trials, 5);
  EXPECT_EQ(steps.found, steps.trials);
  EXPECT_EQ(score(trials, train_audit::Part::variant).found, 0);
  EXPECT_EQ(score(trials, train_audit::Part::healthy).found, 0);
}

}  // namespace
}  // namespace ampcheck::checks::train
