// SPDX-License-Identifier: Apache-2.0
#include "checks/train/clip_and_decay.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/run_program.h"

namespace ampcheck::checks::train {
namespace {

using testing::ampcheck;
using testing::contains;

Parameter with_gradient(const std::vector<double>& values) {
  Parameter out;
  out.grad = Tensor(Dtype::fp32, {static_cast<std::int64_t>(values.size())});
  from_doubles(values, out.grad.view());
  return out;
}

std::vector<Clipping> clip_to(double norm, double value, const std::vector<Parameter*>& parameters) {
  StepRule rule;
  rule.clip_norm = norm;
  rule.clip_value = value;
  return clip(rule, parameters);
}

TEST(ClipAndDecay, ClippingSaysNormFactorAndElements) {
  Parameter a = with_gradient({3, 0}), b = with_gradient({0, 4});
  EXPECT_TRUE(clip_to(0, 0, {&a, &b}).empty());
  const Clipping small = clip_to(10, 0, {&a, &b}).at(0);
  EXPECT_EQ(small.norm, 5.0);
  EXPECT_EQ(small.factor, 1);
  EXPECT_FALSE(small.clipped());
  const Clipping large = clip_to(1, 0, {&a, &b}).at(0);
  EXPECT_NEAR(large.factor, 0.2, 1e-6);
  EXPECT_TRUE(large.clipped());
  EXPECT_NEAR(to_doubles(b.grad.view())[1], 0.8, 1e-6);
  Parameter c = with_gradient({-2, 0.5, 2, 7});
  const Clipping cut = clip_to(0, 2, {&c}).at(0);
  EXPECT_EQ(cut.elements, 1) << "what is as large as the value is not changed";
  EXPECT_FALSE(cut.norm);
  Parameter d = with_gradient({std::numeric_limits<double>::infinity()});
  EXPECT_EQ(clip_to(1, 0, {&d}).at(0).factor, 1) << "such a step is skipped";
}

TEST(ClipAndDecay, WhatAnOptimizerClipsAloneIsNoPartOfTheOthersNorm) {
  Parameter a = with_gradient({3}), b = with_gradient({4}), c = with_gradient({12});
  a.name = "body.weight";
  b.name = "head.weight";
  c.name = "body.bias";
  StepRule rule;
  rule.clip_norm = 1;
  rule.further = {{.layers = {"head"}, .clip_norm = 2}};
  const std::vector<Clipping> made = clip(rule, {&a, &b, &c});
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[0].optimizer, 0u);
  EXPECT_NEAR(*made[0].norm, std::hypot(3, 12), 1e-5);
  EXPECT_EQ(made[1].optimizer, 1u);
  EXPECT_EQ(made[1].norm, 4.0);
  EXPECT_NEAR(to_doubles(b.grad.view())[0], 2, 1e-5);
  rule.further[0].clip_norm = 0;  // not at all
  EXPECT_EQ(clip(rule, {&a, &b, &c}).size(), 1u);
  rule.further[0].clip_norm = -1;  // with the others
  EXPECT_EQ(clip(rule, {&a, &b, &c}).size(), 1u);
  EXPECT_EQ(rule.clipped_with("head.weight"), 0u);
}

// bf16 has 8 bits: neighbours of 1 are 2^-7 apart above it. Rates just above and below half of that.
TEST(ClipAndDecay, DecayIsLostBelowHalfTheSpacingOfAWeight) {
  Parameter p;
  p.value = Tensor(Dtype::bf16, {4});
  from_doubles(std::vector<double>{1, -1.875, 0, 0x1p-100}, p.value.view());
  EXPECT_EQ(decay_of({&p}, 1, 0x1.01p-8).lost, 0);
  const DecayCount some = decay_of({&p}, 0.5, 0x1.8p-8);  // 0.0029 of each: enough of 1.875, not of 1
  EXPECT_EQ(some.weights, 3);
  EXPECT_EQ(some.lost, 2);
  EXPECT_EQ(decay_of({&p}, 1e-3, 1e-2).lost, 3);
}

TEST(ClipAndDecay, TrainAndTraceCountThem) {
  const testing::TemporaryFolder folder;
  const std::string trace = folder.path() + "/run";
  const std::string run = "train --model mlp --steps 4 --spread-seeds 1 --judge none ";
  const auto clipped = ampcheck(run + "--clip-norm 0.01 --ring 0 --record " + trace);
  EXPECT_TRUE(contains(clipped.out, "  clipped 4 of 4 steps; gradients times 0.0")) << clipped.out;
  const auto text = ampcheck("trace " + trace);
  EXPECT_TRUE(contains(text.out, "Clipped: 4 of 4 steps; gradients times 0.0")) << text.out;
  const nlohmann::json steps = nlohmann::json::parse(ampcheck("trace --json " + trace).out).at("steps");
  EXPECT_GT(steps.at(3).at("norm"), 0.01);
  EXPECT_LT(steps.at(3).at("clip_factor"), 1);
  EXPECT_TRUE(steps.at(3).at("decayed").is_null());
  EXPECT_TRUE(contains(ampcheck(run + "--clip-norm 1e9").out, "  clipped 0 of 4 steps, their norm")) << "a loose norm";

  const std::string decays = run + "--dtype bf16 --weights low --optimizer adamw --weight-decay 0.01 ";
  const auto lost = ampcheck(decays + "--lr 0.001");
  EXPECT_TRUE(contains(lost.out, "  decay   of 100 % of the weights less than half their spacing")) << lost.out;
  EXPECT_FALSE(contains(lost.out, "clipped")) << lost.out;
  EXPECT_FALSE(contains(ampcheck(run + "--dtype bf16 --optimizer adamw --weight-decay 0.01").out, "  decay   "))
      << "fp32 weights keep it";
}

}  // namespace
}  // namespace ampcheck::checks::train
