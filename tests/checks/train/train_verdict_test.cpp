// SPDX-License-Identifier: Apache-2.0
// What a run's loss is held against: the spread of fp64 seeds, rounding alone where all seeds come to one loss, and
// nothing where no spread is known.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <optional>

#include "checks/models/bound_call.h"
#include "checks/models/modules.h"
#include "checks/train/diagnosis.h"
#include "checks/train/loss_rounding.h"
#include "src/random.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks::train {
namespace {

using ampcheck::testing::ampcheck;
using ampcheck::testing::contains;
using nlohmann::json;

/// One layer whose weights are the same for every seed: the spread of the fp64 runs is zero.
Net net_without_spread(std::int64_t outputs = 4) {
  return {"same", 0.05, 0, [outputs](models::Tape& t, std::int64_t batch) {
            std::vector<double> x(64 * 16), y(static_cast<std::size_t>(64 * outputs));
            Random(3, "x").normals(static_cast<std::uint64_t>(batch) * 2000, x);
            Random(3, "y").normals(static_cast<std::uint64_t>(batch) * 2000, y);
            const models::Var out = t.call("linear", {{"x", t.data({64, 16}, x)},
                                                      {"weight", t.parameter("w", {outputs, 16}, 0.25, 0)},
                                                      {"bias", t.parameter("b", {outputs}, 0, 0)}});
            t.add_loss(t.call("mse_loss", {{"x", out}, {"target", t.data({64, outputs}, y)}}), 1);
          }};
}

TrainOptions options_of(Dtype dtype) {
  TrainOptions options;
  options.own_net = net_without_spread();
  options.dtype = dtype;
  options.scaler.enabled = false;
  options.shadows = {.local = false, .carried = true};
  return options;
}

struct Course {
  std::optional<int> left;
  double spread = 0, apart = 0, rounding = 0;  ///< largest
};

Course run(const TrainOptions& options, int steps) {
  Trainer trainer(options);
  Course out;
  for (int i = 0; i < steps; ++i) {
    const StepResult s = trainer.step();
    if (s.left() && !out.left) out.left = i;
    out.spread = std::max(out.spread, s.spread.value_or(0));
    out.apart = std::max(out.apart, std::fabs(*s.apart));
    out.rounding = std::max(out.rounding, *s.rounding);
  }
  return out;
}

TEST(TrainVerdict, RoundingAloneIsNoDeparture) {
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16, Dtype::fp32}) {
    const Course course = run(options_of(dtype), 30);
    EXPECT_EQ(course.spread, 0) << "the seeds are all the same run";
    EXPECT_GT(course.apart, 0) << name(dtype);
    EXPECT_FALSE(course.left) << name(dtype) << ": " << course.apart << " apart, rounding " << course.rounding;
  }
}

/// Planted: an op that is off by more than its rounding, and gradients that vanish so that the run stands still while
/// fp64 learns.
TEST(TrainVerdict, WhatIsMoreThanRoundingIsADeparture) {
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16, Dtype::fp32}) {
    TrainOptions options = options_of(dtype);
    options.fault = [](const Event& e) {
      if (e.cast || e.phase != Phase::forward || e.op != "linear_1") return;
      std::vector<double> y = to_doubles(e.got);
      for (double& v : y) v *= 1 + 0x1p-6;
      from_doubles(y, e.got);
    };
    EXPECT_EQ(run(options, 2).left, 0) << name(dtype);
  }
  TrainOptions many =
      options_of(Dtype::fp32);  // a thousandth of a loss of 65536 outputs, less than as many roundings in a line
  many.own_net = net_without_spread(1024);
  EXPECT_FALSE(run(many, 2).left);
  many.fault = [](const Event& e) {
    if (e.phase == Phase::forward && e.op == "mse_loss_1")
      from_doubles(std::vector{to_doubles(e.got)[0] * (1 + 0x1p-10)}, e.got);
  };
  EXPECT_EQ(run(many, 2).left, 0);
  TrainOptions still = options_of(Dtype::fp16);
  still.rule.optimizer.name = "adam";
  still.rule.optimizer.lr = 0.01;
  still.rule.loss_weight = 1e-9;
  EXPECT_TRUE(run(still, 30).left);
}

/// By hand: a loss in fp32 of 64 x 4 outputs in 16 bits.
TEST(TrainVerdict, RoundingIsThatOfWhatTheLossReads) {
  Fp64Run fp64(net_without_spread(), {}, 1);
  fp64.step();
  const models::StepRecord& record = fp64.records().front();
  const auto at = [&](const char* call) { return static_cast<std::size_t>(record.find(call)->output); };
  const auto sum = [&](std::size_t id) {
    double out = 0;
    for (std::size_t i = 0; i < 256; ++i) out += std::fabs(record.cotangents[id][i] * record.values[id][i]);
    return out;
  };
  const double read = sum(at("linear_1")),
               target = sum(static_cast<std::size_t>(record.find("mse_loss_1")->inputs.back().second));
  const double own = kFp32.unit_roundoff() * ((64 + (256 - 64) / 32) * record.loss + target);  // the target is data
  EXPECT_NEAR(loss_rounding(record, Dtype::bf16), read * kBf16.unit_roundoff() + own, 1e-12);
  EXPECT_NEAR(loss_rounding(record, Dtype::fp16), read * kFp16.unit_roundoff() + own, 1e-12);
  EXPECT_NEAR(loss_rounding(record, Dtype::fp32), read * kFp32.unit_roundoff() + own, 1e-12);
}

/// A large term whose lane loses all that it adds, as one of 32 lanes may: within the bound, near to it; a sum in one
/// line loses ten times what it allows.
TEST(TrainVerdict, RoundingIsThatOfTheKernelsOrder) {
  constexpr std::int64_t kCount = 65536;
  std::vector<double> x(kCount, static_cast<double>(0.24f));
  x[0] = 0x1p22;
  float in_line = 0;
  double exact = 0;
  for (const double value : x) {
    in_line += static_cast<float>(value);
    exact += value;
  }
  std::string op = "mean";
  const Net net{"absorbed", 0.05, 0, [&](models::Tape& t, std::int64_t) {
                  const models::Var ones = t.parameter("w", {1, kCount}, 1, 0),
                                    terms = t.call("mul", {{"x", ones}, {"y", t.data({1, kCount}, x)}});
                  t.add_loss(t.call(op, {{"x", terms}}), 1);
                }};
  models::Parameters values(net.name);
  models::Fp64Tape tape(values);
  net.forward(tape, 0);
  tape.backward();
  ParameterSet parameters(net.name, 1);
  models::Recordings recordings;
  Graph graph(parameters, recordings, {});
  net.forward(graph, 0);
  const double bound = loss_rounding(tape.record(), Dtype::fp32), apart = std::fabs(graph.loss() - tape.record().loss);
  EXPECT_NEAR(tape.record().loss, exact / kCount, 1e-9);
  EXPECT_LE(apart, bound);
  EXPECT_GT(apart, bound / 2);
  EXPECT_GT(std::fabs(in_line / kCount - tape.record().loss), 10 * bound);
  static OpDef library = *find_op("mean");  // its order is not known
  op = library.signature.name = "mean_of_a_library";
  library.plugin = "library.so";
  models::use_op(library);
  models::Fp64Tape any_order(values);
  net.forward(any_order, 0);
  any_order.backward();
  EXPECT_LE(std::fabs(in_line / kCount - tape.record().loss), loss_rounding(any_order.record(), Dtype::fp32));
}

/// All seeds end at a net that says the same of every digit: 8e-6 apart beside a spread of 6e-6.
TEST(TrainVerdict, SeedsThatComeToOneLossAreNoAlarm) {
  for (const char* arguments : {"--lr 3 --seed 2", "--lr 3 --seed 5", "--lr 1 --seed 2"}) {
    const auto trained = ampcheck(std::string("train --steps 300 --shadow carried ") + arguments);
    EXPECT_EQ(trained.exit_code, 0) << arguments << trained.out.substr(trained.out.find("\n\n"));
  }
}

TEST(TrainVerdict, TheSentenceHasTheNumbersThatAreCompared) {
  for (const char* arguments : {"--lr 3 --seed 5 --steps 30", "--steps 12 --dtype bf16"}) {
    const json all = json::parse(ampcheck(std::string("train --shadow carried --json ") + arguments).out);
    double apart = 0, spread = 0;
    int steps = 0;  // of which that is the mean
    for (const json& s : all["steps"]) {
      if (std::fabs(s["apart"].get<double>()) <= apart) continue;
      apart = std::fabs(s["apart"].get<double>());
      spread = s["spread"].get<double>();
      steps = std::min(10, s["step"].get<int>() + 1);
    }
    const std::string text = ampcheck(std::string("train --shadow carried ") + arguments).out,
                      start = "never more than ";
    ASSERT_TRUE(contains(text, start) &&
                contains(text, " apart in the mean of " + std::to_string(steps) + " steps (spread of 5 fp64 seeds: "))
        << text;
    EXPECT_NEAR(std::strtod(text.c_str() + text.find(start) + start.size(), nullptr), apart, 0.06 * apart)
        << "two digits";
    EXPECT_NEAR(std::strtod(text.c_str() + text.find("seeds: ") + 7, nullptr), spread, 0.06 * spread);
  }
}

TEST(TrainVerdict, WithoutSeedsThereIsNoSpreadAndItIsSaid) {
  const json five = json::parse(ampcheck("train --steps 4 --json --shadow carried").out);
  for (const char* alone : {"--spread-seeds 1", "--spread-seeds 0"}) {
    const json one = json::parse(ampcheck(std::string("train --steps 4 --json --shadow carried ") + alone).out);
    EXPECT_EQ(one["steps"][3]["fp64_loss"], five["steps"][3]["fp64_loss"]);
    EXPECT_FALSE(one["steps"][3].contains("spread"));
    const auto text = ampcheck(std::string("train --steps 4 --shadow both ") + alone);
    EXPECT_EQ(text.exit_code, 0);
    EXPECT_TRUE(contains(
        text.out,
        "No spread of seeds is known (--spread-seeds 5), so only a loss that is not finite counts as diverged."))
        << text.out;
  }
  EXPECT_EQ(ampcheck("train --steps 4 --lr 1e9 --spread-seeds 1").exit_code, 1) << "NaN";
  const json three = json::parse(ampcheck("train --steps 4 --json --shadow carried --spread-seeds 3").out);
  EXPECT_LE(three["steps"][3]["spread"].get<double>(), five["steps"][3]["spread"].get<double>());
  EXPECT_TRUE(contains(ampcheck("train --steps 4 --shadow carried --spread-seeds 3").out, "spread of 3 fp64 seeds"));
  for (const char* wrong : {"--spread-seeds -1", "--spread-seeds 2.5", "--spread-seeds 1001", "--spread-seeds x",
                            "--spread-seeds 3 --shadow off", "--spread-seeds 3 --shadow local"}) {
    const auto refused = ampcheck(std::string("train --steps 1 ") + wrong);
    EXPECT_EQ(refused.exit_code, 2) << wrong;
    EXPECT_TRUE(contains(refused.err, "--spread-seeds")) << refused.err;
  }
}

TEST(TrainVerdict, ALossThatIsNotFiniteIsNotPutDownToTheSeed) {
  const std::string wild = "train --steps 6 --scaler none --lr 1000 --shadow ", seed = "a seed or two more",
                    beside = "--shadow both: it names the op";
  const std::string alone = ampcheck(wild + "off").out, both = ampcheck(wild + "both").out;
  EXPECT_TRUE(contains(alone, "is NaN from step 2 on") && contains(alone, beside) && !contains(alone, seed)) << alone;
  EXPECT_TRUE(contains(both, "a smaller --lr") && !contains(both, beside) && !contains(both, seed)) << both;
}

TEST(TrainVerdict, ACheckpointGoesOnWithItsSeedsAlone) {
  const ampcheck::testing::TemporaryFolder folder;
  const std::string at = folder.path() + "/", common = "train --shadow carried --batch 8 ";
  ASSERT_EQ(ampcheck(common + "--spread-seeds 2 --steps 6 --save " + at + "whole.st").exit_code, 0);
  ASSERT_EQ(ampcheck(common + "--spread-seeds 2 --steps 3 --save " + at + "half.st").exit_code, 0);
  ASSERT_EQ(
      ampcheck(common + "--spread-seeds 2 --steps 6 --resume " + at + "half.st --save " + at + "rest.st").exit_code, 0);
  EXPECT_TRUE(ampcheck::testing::read_text(at + "whole.st") == ampcheck::testing::read_text(at + "rest.st"));
  const auto other = ampcheck(common + "--steps 6 --resume " + at + "half.st");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_TRUE(contains(other.err, "spread_seeds 2")) << other.err;
}

/// A loss so small that torch's first scale keeps nothing: a scaler alone is no help, one that begins higher is.
TEST(TrainAdvice, AScalerThatHasToBeginAboveTorchsFirstScale) {
  const std::string out = ampcheck("train mlp --scaler none --loss-weight 1e-12 --lr 1e11 --steps 12").out;
  EXPECT_TRUE(contains(out, "try     --scaler torch --init-scale ")) << out;
  EXPECT_TRUE(contains(out, "lose nothing  (tried for 12 steps: loss ")) << out;
}

}  // namespace
}  // namespace ampcheck::checks::train
