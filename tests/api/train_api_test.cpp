// SPDX-License-Identifier: Apache-2.0
// ampcheck/train.h: the same numbers as the trainer behind it, misuse as exceptions, records and checkpoints.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "checks/models/modules.h"
#include "checks/train/trainer.h"
#include "src/amp/autocast.h"
#include "src/api/ampcheck/train.h"
#include "src/random.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::train {
namespace {

using testing::contains;

constexpr std::uint64_t kBatch = 1000;

Net small_net() {
  Net net;
  net.name = "small";
  net.rate = 0.05;
  net.forward = [](Tape& t, std::int64_t batch) {
    const std::uint64_t first = static_cast<std::uint64_t>(batch) * kBatch;
    const Var x = t.data({8, 16}, normals(1, "x", first, 8 * 16)), y = t.data({8, 4}, normals(1, "y", first, 8 * 4));
    Var h = Sequential{Linear{"in", 16}, Unary{"gelu"}, Residual{Linear{"middle", 16}}}(t, x);
    {
      const Autocast off(t, {.enabled = false});
      h = layer_norm(t, "norm", t.to(h, Dtype::fp32));
    }
    t.add_loss(t.call("mse_loss", {{"x", linear(t, "out", h, 4)}, {"target", y}}));
  };
  return net;
}

/// The same net written against what the public one stands for.
checks::train::Net inner_net() {
  namespace models = checks::models;
  checks::train::Net net;
  net.name = "small";
  net.rate = 0.05;
  net.forward = [](models::Tape& t, std::int64_t batch) {
    std::vector<double> x(8 * 16), y(8 * 4);
    Random(1, "x").normals(static_cast<std::uint64_t>(batch) * kBatch, x);
    Random(1, "y").normals(static_cast<std::uint64_t>(batch) * kBatch, y);
    const models::Sequential body{models::Linear{"in", 16}, models::Unary{"gelu"},
                                  models::Residual{models::Linear{"middle", 16}}};
    models::Var h = body(t, t.data({8, 16}, x));
    {
      const ampcheck::Autocast off(t.device(), {.enabled = false});
      h = models::layer_norm(t, "norm", t.to(h, ampcheck::Dtype::fp32));
    }
    t.add_loss(t.call("mse_loss", {{"x", models::linear(t, "out", h, 4)}, {"target", t.data({8, 4}, y)}}), 1);
  };
  return net;
}

template <class F>
std::string usage_error_of(F work) {
  try {
    work();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

Net with(std::function<void(Tape&)> forward) {
  Net net;
  net.name = "one";
  net.forward = [forward = std::move(forward)](Tape& t, std::int64_t) { forward(t); };
  return net;
}

std::string refused(std::function<void(Tape&)> forward, Options options = {}) {
  return usage_error_of([&] { Trainer(with(forward), options).step(); });
}

TEST(TrainApi, TheSameRunAsBehindIt) {
  Options options;
  options.accumulate = 2;
  options.norms = true;
  options.optimizer.name = "adam";
  options.optimizer.lr = 0.01;
  Trainer trainer(small_net(), options);
  checks::train::TrainOptions inner;
  inner.own_net = inner_net();
  inner.dtype = ampcheck::Dtype::fp16;
  inner.scaler.enabled = true;
  inner.shadows = {.local = true, .carried = true};
  inner.rule.accumulate = 2;
  inner.norms = true;
  inner.rule.optimizer.name = "adam";
  inner.rule.optimizer.lr = 0.01;
  checks::train::Trainer behind(inner);
  for (int i = 0; i < 4; ++i) {
    const StepResult a = trainer.step();
    const checks::train::StepResult b = behind.step();
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.fp64_loss, b.fp64_loss);
    EXPECT_EQ(a.spread, b.spread);
    EXPECT_EQ(a.apart, b.apart);
    EXPECT_EQ(a.allowed, b.allowed());
    EXPECT_EQ(a.norms, b.norms);
    EXPECT_EQ(a.scale, b.scale);
    EXPECT_EQ(a.step, i);
  }
  EXPECT_EQ(trainer.steps(), 4);
  EXPECT_EQ(trainer.results().size(), 4u);
  EXPECT_EQ(trainer.parameters(), (std::vector<std::string>{"in.weight", "in.bias", "middle.weight", "middle.bias",
                                                            "norm.weight", "norm.bias", "out.weight", "out.bias"}));
  EXPECT_EQ(trainer.parameter_shape("out.weight"), (Shape{4, 16}));
  EXPECT_EQ(trainer.parameter("out.weight"), to_doubles(behind.parameters().find("out.weight")->value.view()));
  EXPECT_EQ(trainer.gradient("out.bias"), to_doubles(behind.parameters().find("out.bias")->grad.view()));
  const Diagnosis diagnosis = trainer.diagnosis();
  EXPECT_FALSE(diagnosis.left_at);
  ASSERT_TRUE(diagnosis.worst);
  EXPECT_FALSE(diagnosis.worst->text.empty());
  EXPECT_GT(diagnosis.least_exact.size(), 3u);
}

TEST(TrainApi, ARunThatLeavesSaysSo) {
  Net net = small_net();
  net.rate = 1e6;
  Trainer trainer(net, Options{});
  for (int i = 0; i < 10; ++i) trainer.step();
  EXPECT_TRUE(trainer.diagnosis().left_at);
}

TEST(TrainApi, LayersAndRegionsOnTheTape) {
  Trainer(with([](Tape& t) {
            const Var x = t.data({2, 3}, {1, 2, 3, 4, 5, 6});
            EXPECT_EQ(t.shape(x), (Shape{2, 3}));
            EXPECT_EQ(t.shape(t.reshape(x, {3, 2})), (Shape{3, 2}));
            EXPECT_EQ(t.shape(t.take(x, {0, 0, 5, 5}, {4})), (Shape{4}));
            const Var table = embedding(t, "table", t.data({2}, {0, 3}), 4, 6);
            EXPECT_EQ(t.shape(table), (Shape{2, 6}));
            const Var a = causal_attention(t, "attention", table, 2, 2);
            const Var c = conv3x3(t, "window", t.reshape(a, {1, 1, 2, 6}), 2);
            EXPECT_EQ(t.shape(c), (Shape{1, 2, 2, 6}));
            const Var h = rms_norm(t, "norm", mul(t, t.reshape(c, {4, 6}), t.reshape(c, {4, 6})));
            Var fixed;
            {
              const NoGrad off;
              fixed = linear(t, "fixed", h, 2);
            }
            t.add_loss(mean_all(t, t.to(add(t, linear(t, "trained", h, 2), fixed), Dtype::fp32)), 0.5);
          }),
          Options{})
      .step();
}

TEST(TrainApi, MisuseIsAnException) {
  EXPECT_TRUE(contains(usage_error_of([] { Trainer(Net{}, Options{}); }), "got none"));
  Options options;
  options.scaler.rule = "tourch";
  EXPECT_TRUE(contains(usage_error_of([&] { Trainer(small_net(), options); }), "tourch"));
  options = {};
  options.optimizer.name = "adamm";
  EXPECT_TRUE(contains(usage_error_of([&] { Trainer(small_net(), options).step(); }), "adamm"));
  options = {};
  options.dtype = Dtype::i64;
  EXPECT_TRUE(contains(usage_error_of([&] { Trainer(small_net(), options); }), "got i64"));
  options = {};
  options.accumulate = 0;
  EXPECT_TRUE(contains(usage_error_of([&] { Trainer(small_net(), options); }), "accumulate"));
  EXPECT_TRUE(contains(refused([](Tape& t) { t.data({2, 2}, {1}); }), "got 1 values, want [2,2]"));
  EXPECT_TRUE(contains(refused([](Tape& t) { t.reshape(t.data({2}, {1, 2}), {3}); }), "want the elements of [2]"));
  EXPECT_TRUE(contains(refused([](Tape& t) { t.take(t.data({2}, {1, 2}), {2}, {1}); }), "got index 2"));
  EXPECT_TRUE(contains(refused([](Tape& t) { t.shape(Var{}); }), "got no tensor"));
  EXPECT_TRUE(contains(refused([](Tape& t) { t.data(Shape(9, 1), {1}); }), "9 dimensions"));
  EXPECT_TRUE(contains(refused([](Tape& t) { t.call("relu", {{"z", t.data({1, 2}, {1, 2})}}); }), "got input 'z'"));
  EXPECT_TRUE(contains(refused([](Tape& t) { t.call("relu", {}); }), "x"));
  EXPECT_TRUE(contains(refused([](Tape& t) { t.call("rulu", {{"x", t.data({1, 2}, {1, 2})}}); }), "unknown op 'rulu'"));
  EXPECT_TRUE(contains(refused([](Tape& t) {
                         t.call("relu", {{"x", t.data({1, 2}, {1, 2})}}, {{"eps", 1}});
                       }),
                       "got attribute 'eps'"));
  EXPECT_TRUE(contains(refused([](Tape& t) { t.add_loss(t.data({2}, {1, 2})); }), "one element"));
  EXPECT_THROW(use_library("./no_such_library.so"), EnvironmentError);
  Trainer trainer(small_net(), Options{});
  trainer.step();
  EXPECT_TRUE(contains(usage_error_of([&] { trainer.parameter("inn.weight"); }), "want one of in.weight"));
}

/// What a net's own code throws is its own affair.
TEST(TrainApi, ExceptionsOfTheNetPassThrough) {
  struct Mine {};
  EXPECT_THROW(Trainer(with([](Tape&) { throw Mine{}; }), Options{}).step(), Mine);
}

TEST(TrainApi, ACheckpointGoesOnBitForBit) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/run.safetensors";
  Trainer whole(small_net(), Options{});
  for (int i = 0; i < 3; ++i) whole.step();
  whole.save(path);
  Trainer resumed(small_net(), Options{});
  resumed.resume(path);
  EXPECT_EQ(resumed.steps(), 3);
  EXPECT_EQ(resumed.step().loss, whole.step().loss);
  Options other;
  other.dtype = Dtype::bf16;
  Trainer stranger(small_net(), other);
  EXPECT_THROW(stranger.resume(path), UsageError);
  EXPECT_THROW(stranger.resume(folder.path() + "/none"), EnvironmentError);
}

TEST(TrainApi, ARecordIsATraceThatTheProgramReads) {
  const testing::TemporaryFolder folder;
  Options options;
  options.record = folder.path() + "/run.trace";
  options.planned_steps = 2;
  {
    Trainer trainer(small_net(), options);
    trainer.step();
    trainer.step();
  }
  const testing::ProgramResult read = testing::ampcheck("trace " + options.record);
  EXPECT_EQ(read.exit_code, 0) << read.err;
  EXPECT_TRUE(contains(read.out, "linear_1")) << read.out;
  options.record = folder.path() + "/no/such/folder/run.trace";
  Trainer lost(small_net(), options);
  EXPECT_THROW(lost.step(), EnvironmentError);
}

TEST(TrainApi, AnOpOfALibraryTrains) {
  const std::vector<std::string> ops = use_library(tests::in_build("/custom_ops/my_rms_norm.so"));
  ASSERT_EQ(ops, (std::vector<std::string>{"my_rms_norm"}));
  Trainer trainer(with([](Tape& t) {
                    const Var x = linear(t, "in", t.data({4, 8}, normals(1, "x", 0, 32)), 8);
                    const Var y = t.call("my_rms_norm", {{"x", x}, {"weight", t.constant_start("norm.weight", {8}, 1)}},
                                         {{"eps", 1e-3}});
                    t.add_loss(mean_all(t, t.to(mul(t, y, y), Dtype::fp32)));
                  }),
                  Options{});
  trainer.step();
  EXPECT_FALSE(trainer.gradient("norm.weight").empty());
}

TEST(TrainApi, StartValuesCanBeGiven) {
  Options options;
  options.optimizer.lr = 0;
  Trainer trainer(small_net(), options);
  trainer.set_parameter("out.bias", {4}, {1, 2, 3, 4});
  trainer.step();
  EXPECT_EQ(trainer.parameter("out.bias"), (std::vector<double>{1, 2, 3, 4}));
}

TEST(TrainApi, TwoTrainersAtTheSameTime) {
  const auto losses = [](Dtype dtype) {
    Options options;
    options.dtype = dtype;
    Trainer trainer(small_net(), options);
    std::vector<double> out;
    for (int i = 0; i < 3; ++i) out.push_back(trainer.step().loss);
    return out;
  };
  const std::vector<double> fp16 = losses(Dtype::fp16), bf16 = losses(Dtype::bf16);
  EXPECT_NE(fp16, bf16);
  std::vector<double> second;
  std::thread other([&] { second = losses(Dtype::bf16); });
  EXPECT_EQ(losses(Dtype::fp16), fp16);
  other.join();
  EXPECT_EQ(second, bf16);
}

TEST(TrainApi, NormalsAreOneStream) {
  const std::vector<double> all = normals(3, "x", 0, 10), tail = normals(3, "x", 4, 6);
  EXPECT_EQ(std::vector<double>(all.begin() + 4, all.end()), tail);
}

/// Two losses, an optimizer for each layer, each with clipping of its own: as the trainer behind it.
TEST(TrainApi, SeveralOptimizersAndLosses) {
  Net net;
  net.name = "two";
  net.rate = 0.05;
  net.losses = {"near", "far"};
  net.forward = [](Tape& t, std::int64_t batch) {
    const std::uint64_t first = static_cast<std::uint64_t>(batch) * kBatch;
    const Var h = linear(t, "body", t.data({8, 16}, normals(1, "x", first, 8 * 16)), 16);
    const auto loss = [&](const char* name) {
      const Var y = t.data({8, 4}, normals(1, name, first, 8 * 4));
      return t.call("mse_loss", {{"x", linear(t, name, h, 4)}, {"target", y}});
    };
    t.add_loss(loss("near"));
    t.add_loss(loss("far"), 0.5);
  };
  Options options;
  options.optimizer = {.name = "sgd", .lr = 0.05};
  options.further = {{.layers = {"near"}, .name = "adam", .lr = 0.003, .clip_norm = 0.01},
                     {.layers = {"far"}, .lr = 0.02}};
  options.backward_each = true;
  options.clip_norm = 0.1;
  options.scaler.init_scale = 1 << 24;
  Trainer trainer(net, options);
  bool skipped = false;
  for (int i = 0; i < 12; ++i) {
    const StepResult got = trainer.step();
    ASSERT_EQ(got.losses.size(), 2u);
    EXPECT_NEAR(got.loss, got.losses[0] + 0.5 * got.losses[1], 1e-6 * got.loss);
    ASSERT_EQ(got.optimizers.size(), 3u);
    EXPECT_EQ(got.optimizers[1].lr, 0.003);
    EXPECT_TRUE(got.clipped_norm.has_value());
    ASSERT_TRUE(got.optimizers[1].clipped_norm.has_value());
    EXPECT_FALSE(got.optimizers[2].clipped_norm.has_value()) << "clipped with the first one's";
    skipped |= !got.stepped;
    if (std::isfinite(*got.optimizers[1].clipped_norm)) {
      EXPECT_LT(got.optimizers[1].clip_factor, 1);
    }
  }
  EXPECT_TRUE(skipped) << "a scale of 2^24 comes down first";
  EXPECT_EQ(trainer.results().back().optimizers[1].skips > 0, true);
  options.further[0].layers = {};
  EXPECT_TRUE(contains(usage_error_of([&] { Trainer(net, options); }), "[further] layers, got none"));
  options.further[0].layers = {"nothing"};
  EXPECT_TRUE(contains(usage_error_of([&] { Trainer(net, options).step(); }), "got layers nothing"));
}

/// One moment alone in 16 bits trains another net than both do.
TEST(TrainApi, MomentsOneByOne) {
  const auto last = [](std::optional<Dtype> first, std::optional<Dtype> second) {
    Options options;
    options.dtype = Dtype::bf16;
    options.optimizer = {.name = "adam", .lr = 0.003, .moments = first, .second_moment = second};
    Trainer trainer(small_net(), options);
    for (int i = 0; i < 8; ++i) trainer.step();
    return trainer.results().back().loss;
  };
  const double none = last(Dtype::fp32, {}), first = last(Dtype::bf16, Dtype::fp32), both = last(Dtype::bf16, {});
  EXPECT_NE(first, none);
  EXPECT_NE(first, both);
}

}  // namespace
}  // namespace ampcheck::train
