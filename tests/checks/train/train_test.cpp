// SPDX-License-Identifier: Apache-2.0
// Training in mixed precision beside fp64: the graph's gradients, and the faults that the watch must find.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "checks/models/fp64_tape.h"
#include "checks/models/modules.h"
#include "checks/train/diagnosis.h"
#include "src/amp/autocast.h"
#include "src/parallel.h"
#include "src/random.h"
#include "src/rounding.h"
#include "tests/support/paths.h"

namespace ampcheck::checks::train {
namespace {

const std::string kData = tests::in_source("/tests/data");

/// Two linear layers with relu, MSE times `weight`: its gradients are as small as one likes.
Net small_net(double weight) {
  return {"small", 0.1, 0, [weight](models::Tape& t, std::int64_t batch) {
            std::vector<double> x(8 * 16), y(8 * 4);
            Random(3, "x").normals(static_cast<std::uint64_t>(batch) * 1000, x);
            Random(3, "y").normals(static_cast<std::uint64_t>(batch) * 1000, y);
            const models::Var h = models::unary(t, "relu", models::linear(t, "first", t.data({8, 16}, x), 16));
            t.add_loss(t.call("mse_loss", {{"x", models::linear(t, "second", h, 4)}, {"target", t.data({8, 4}, y)}}),
                       weight);
          }};
}

TrainOptions options_of(const Net& net, Dtype dtype, double scale) {
  TrainOptions options;
  options.own_net = net;
  options.dtype = dtype;
  options.scaler.enabled = scale > 0;
  options.scaler.init_scale = scale > 0 ? scale : 1;
  options.shadows = {.local = true, .carried = false};
  return options;
}

Diagnosis run(const TrainOptions& options, int steps) {
  Trainer trainer(options);
  std::vector<StepResult> results;
  for (int i = 0; i < steps; ++i) results.push_back(trainer.step());
  return diagnose(trainer, results);
}

TEST(Train, GradientsThatAreNotFiniteAreFoundWithAndWithoutNorms) {
  for (const double weight : {1.0, 1e9})
    for (const double clip : {0.0, 1.0})
      for (const bool norms : {false, true}) {
        TrainOptions options = options_of(small_net(weight), Dtype::fp16, 0);
        options.shadows = {};
        options.norms = norms;
        options.rule.clip_value = clip;
        Trainer trainer(options);
        const StepResult result = trainer.step();
        EXPECT_EQ(result.found_inf, weight > 1) << weight << " clip " << clip << " norms " << norms;
        EXPECT_EQ(result.norms.empty(), !norms && clip == 0);
      }
}

TEST(Train, GradientsOfTheKernelsAreThoseOfTheFormulas) {
  const struct {
    const char* model;
    std::int64_t batch;
  } cases[] = {{"mlp", 0}, {"conv", 0}, {"conv", 11}, {"transformer", 0}, {"transformer", 6}};
  for (const auto& [model, batch] : cases) {
    NetOptions options;
    options.model = model;
    options.batch = batch;
    options.data = kData;
    const Net net = make_net(options);
    ParameterSet parameters(net.name, 1);
    models::Recordings recordings;
    Graph graph(parameters, recordings, {});
    net.forward(graph, 3);
    graph.backward(1, 1);
    models::Parameters values(net.name);
    for (const Parameter& p : parameters.all()) values.values()[p.name] = to_doubles(p.value.view());
    models::Fp64Tape tape(values);
    net.forward(tape, 3);
    tape.backward();
    EXPECT_NEAR(graph.loss(), tape.record().loss, 1e-5 * std::fabs(tape.record().loss)) << model;
    const auto gradients = tape.gradients();
    ASSERT_EQ(gradients.size(), parameters.all().size()) << model;
    double largest = 0;
    for (const auto& [name, g] : gradients)
      for (const double v : g) largest = std::max(largest, std::fabs(v));
    for (const Parameter& p : parameters.all()) {
      ASSERT_TRUE(p.grad.defined()) << model << " " << p.name;
      const std::vector<double> got = to_doubles(p.grad.view()), &want = gradients.at(p.name);
      double error = 0, norm = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        norm += want[i] * want[i];
      }
      // Some hundreds of roundings of fp32, u = 6e-8, of random signs; a bias before a softmax has no gradient but
      // them.
      EXPECT_LE(std::sqrt(error), 1e-5 * std::sqrt(norm) + 1e-6 * largest) << model << " " << p.name;
    }
  }
}

/// A batch of n rows has the rows of n / k batches of k: its loss is their mean, in fp64 to the roundings of two sums
/// of as many terms as there are rows and outputs, and with the kernels in 16 bits to one rounding of each to that
/// format besides.
TEST(Train, ABatchHasTheRowsThatAreAskedFor) {
  const struct {
    const char* model;
    std::int64_t own, outputs;
  } cases[] = {{"mlp", 64, 10}, {"conv", 8, 64}, {"transformer", 4, 16 * 128}};
  for (const auto& [model, own, outputs] : cases) {
    const auto net_of = [model = model](std::int64_t batch) {
      return make_net({.model = model, .batch = batch, .data = kData});
    };
    const Net few = net_of(own), many = net_of(3 * own), as_it_is = net_of(0);
    models::Parameters values(few.name);
    const auto fp64 = [&](const Net& net, std::int64_t batch) {
      models::Fp64Tape tape(values);
      net.forward(tape, batch);
      return tape.record().loss;
    };
    const auto fp16 = [&](const Net& net, std::int64_t batch) {
      ParameterSet parameters(net.name, 1);
      models::Recordings recordings;
      Graph graph(parameters, recordings, {});
      const Autocast region(graph.device(), autocast_in(Dtype::fp16));
      net.forward(graph, batch);
      return static_cast<double>(graph.loss());
    };
    EXPECT_EQ(fp64(as_it_is, 1), fp64(few, 1)) << model;
    const double mean = (fp64(few, 3) + fp64(few, 4) + fp64(few, 5)) / 3,
                 low = (fp16(few, 3) + fp16(few, 4) + fp16(few, 5)) / 3;
    const double terms = static_cast<double>(3 * own * outputs);
    EXPECT_NEAR(fp64(many, 1), mean, 2 * terms * 0x1p-53 * mean) << model;
    EXPECT_NEAR(fp16(many, 1), low, (2 * terms * 0x1p-24 + 2 * kFp16.unit_roundoff()) * low) << model;
    EXPECT_GT(std::fabs(fp64(few, 3) - mean), 2 * terms * 0x1p-53 * mean) << model << ": the other rows count";
    EXPECT_NE(many.settings, few.settings);
    EXPECT_EQ(as_it_is.settings, few.settings) << "the net's own batch by its number";
  }
  for (const char* model : {"conv", "transformer", "tutorial"})
    EXPECT_THROW(make_net({.model = model, .loss = "mse", .data = kData}), Error) << model;
}

/// Layers as objects are the calls that they stand for.
TEST(Train, ModulesInSequenceAreTheirCalls) {
  using namespace models;
  const auto values = [](const std::function<Var(Tape&, Var)>& net) {
    Parameters parameters("modules");
    Fp64Tape tape(parameters);
    const Var x = tape.data({6}, {0, 2, 1, 1, 0, 2});
    return tape.record().values[static_cast<std::size_t>(net(tape, x).id)];
  };
  const Sequential blocks{Embedding{"e", 3, 8}, Residual{Sequential{LayerNorm{"n"}, CausalAttention{"a", 2, 3}}},
                          RmsNorm{"r"}, Linear{"l", 4}, Unary{"tanh"}};
  EXPECT_EQ(values(blocks), values([](Tape& t, Var x) {
              const Var e = t.call("embedding", {{"weight", t.weight("e.weight", {3, 8}, 4)}, {"index", x}});
              const Var h = add(t, e, causal_attention(t, "a", layer_norm(t, "n", e), 2, 3));
              return unary(t, "tanh", linear(t, "l", rms_norm(t, "r", h), 4));
            }));
  Parameters parameters("modules");
  Fp64Tape tape(parameters);
  EXPECT_THROW((CausalAttention{"a", 2, 4}(tape, tape.data({6, 8}, std::vector<double>(48)))), Error)
      << "6 rows are no passages of 4";
}

TEST(Train, AutocastRunsTheOpsInTheirDtypesAndGradientsArriveInTheParametersOwn) {
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    const Net net = small_net(1);
    ParameterSet parameters("small", 1);
    models::Recordings recordings;
    Graph graph(parameters, recordings, {});
    {
      const Autocast region(graph.device(), autocast_in(dtype));
      net.forward(graph, 0);
    }
    EXPECT_EQ(graph.view(graph.output_of("linear_1")).dtype, dtype);
    EXPECT_EQ(graph.view(graph.output_of("relu_1")).dtype, dtype) << "promote keeps it";
    EXPECT_EQ(graph.view(graph.output_of("mse_loss_1")).dtype, Dtype::fp32);
    graph.backward(1024, 1024);
    EXPECT_EQ(graph.grad(graph.output_of("linear_1")).dtype(), dtype) << "backward runs in the dtype of the forward";
    for (const Parameter& p : parameters.all()) {
      EXPECT_EQ(p.grad.dtype(), Dtype::fp32) << p.name;
      // It came out of a kernel in 16 bits: the widened values round to themselves.
      for (const double g : to_doubles(p.grad.view()))
        EXPECT_EQ(g, decode_scalar(format(dtype), encode_scalar(format(dtype), g))) << p.name;
    }
  }
}

TEST(Train, VanishedGradientsAreNamedWithTheScalesThatKeepThem) {
  const Net net = small_net(0x1p-24);
  const Diagnosis bare = run(options_of(net, Dtype::fp16, 0), 3);
  ASSERT_FALSE(bare.vanished.empty());
  EXPECT_GT(bare.vanished_share, 0.5);
  EXPECT_EQ(bare.vanished.front().where.phase, Phase::backward);
  ASSERT_TRUE(bare.scale.known);
  EXPECT_GT(bare.scale.unscaled_share, 0.5);

  const Diagnosis scaled = run(options_of(net, Dtype::fp16, 65536), 3);
  EXPECT_LT(scaled.vanished_share, 0.01);
  EXPECT_FALSE(scaled.producer);
  // At the right scale the histograms see what scale 1 hides: all scales said to lose nothing do, a quarter of the
  // lowest does not.
  ASSERT_LE(scaled.scale.low, scaled.scale.high) << scaled.scale.best_share;
  ASSERT_GT(scaled.scale.low, 0);
  for (const int k : {scaled.scale.low, scaled.scale.high}) {
    const Diagnosis there = run(options_of(net, Dtype::fp16, std::ldexp(1, k)), 3);
    EXPECT_TRUE(there.vanished.empty()) << "2^" << k << " " << there.vanished.front().where.str();
    EXPECT_TRUE(there.skipped.empty()) << "2^" << k;
  }
  const Diagnosis below = run(options_of(net, Dtype::fp16, std::ldexp(1, scaled.scale.low - 2)), 3);
  EXPECT_FALSE(below.vanished.empty());

  const Diagnosis wide = run(options_of(net, Dtype::bf16, 0), 3);
  EXPECT_TRUE(wide.vanished.empty()) << "bf16 has fp32's range";
}

TEST(Train, ANonFiniteValueIsTracedToItsProducer) {
  for (const bool backward : {false, true}) {
    TrainOptions options = options_of(small_net(1), Dtype::fp16, 0);
    options.fault = [backward](const Event& e) {
      if (e.step != 2 || e.cast || e.op != (backward ? "linear_2" : "relu_1") || e.tensor != (backward ? "dx" : "y"))
        return;
      static_cast<std::uint16_t*>(e.got.data)[5] = 0x7e00;  // NaN in fp16
    };
    const Diagnosis diagnosis = run(options, 4);
    ASSERT_TRUE(diagnosis.producer) << backward;
    EXPECT_EQ(diagnosis.producer->step, 2);
    EXPECT_EQ(diagnosis.producer->where.str(), backward ? "linear_2 (second) backward dx" : "relu_1 forward y");
  }
  EXPECT_FALSE(run(options_of(small_net(1), Dtype::fp16, 0), 4).producer);
}

/// An overflow that the scaler catches: the op is the producer, what comes after it passes on.
TEST(Train, WhatUnscalesAndMovesIsNoProducer) {
  TrainOptions options = options_of(small_net(1), Dtype::fp16, 65536);
  options.scaler.init_scale = 0x1p24;
  Trainer trainer(options);
  EXPECT_FALSE(trainer.step().stepped);
  ASSERT_FALSE(trainer.watch()->faults().empty());
  EXPECT_EQ(trainer.watch()->faults().front().role, FaultRole::producer);
  for (const FaultEvent& fault : trainer.watch()->faults())
    EXPECT_TRUE(fault.role != FaultRole::producer || fault.where.phase == Phase::backward) << fault.where.str();
}

/// Many steps that the scaler skips while it comes down do not hide the op that ends the run behind them.
TEST(Train, TheProducerBehindManySkippedStepsIsNamed) {
  TrainOptions options = options_of(small_net(1), Dtype::fp16, 65536);
  options.scaler.init_scale = 0x1p110F;
  int fault_at = -1, step = 0;
  options.fault = [&](const Event& e) {
    if (e.step == fault_at && e.op == "relu_1" && e.tensor == "y" && !e.cast)
      static_cast<std::uint16_t*>(e.got.data)[3] = 0x7c00;
  };
  Trainer trainer(options);
  std::vector<StepResult> steps;
  do {
    steps.push_back(trainer.step());
    ASSERT_LT(++step, 120);
  } while (!steps.back().stepped);
  ASSERT_GT(step, 70) << "enough to fill what is kept of faults";
  fault_at = step;
  steps.push_back(trainer.step());
  const Diagnosis d = diagnose(trainer, steps);
  ASSERT_TRUE(d.producer);
  EXPECT_EQ(d.producer->step, fault_at);
  EXPECT_EQ(d.producer->where.str(), "relu_1 forward y");
  ASSERT_TRUE(d.caught);
  EXPECT_EQ(d.caught->step, 0);
}

TEST(Train, AnOpThatHidesANonFiniteValueIsNamed) {
  TrainOptions options = options_of(small_net(1), Dtype::fp16, 0);
  // The gradient of an element that relu had cut off: its backward writes 0 there.
  std::vector<double> hidden;
  options.fault = [&hidden](const Event& e) {
    if (e.op == "relu_1" && e.tensor == "y") hidden = to_doubles(e.got);
    if (e.op != "linear_2" || e.cast || e.tensor != "dx") return;
    const auto cut = static_cast<std::size_t>(std::find(hidden.begin(), hidden.end(), 0.0) - hidden.begin());
    static_cast<std::uint16_t*>(e.got.data)[cut] = 0x7c00;
  };
  const Diagnosis diagnosis = run(options, 1);
  ASSERT_TRUE(diagnosis.killer);
  EXPECT_EQ(diagnosis.killer->where.str(), "relu_1 backward dx");
}

TEST(Train, AnOverflowOfTheForwardPassIsTheProducer) {
  Net net = small_net(1);
  net.forward = [](models::Tape& t, std::int64_t) {
    const models::Var h = models::linear(t, "first", t.data({2, 16}, std::vector<double>(32, 2e3)), 16);
    t.add_loss(
        t.call("mse_loss", {{"x", models::mul(t, h, h)}, {"target", t.data({2, 16}, std::vector<double>(32, 0.0))}}),
        1);
  };
  const Diagnosis fp16 = run(options_of(net, Dtype::fp16, 65536), 2);
  ASSERT_TRUE(fp16.producer);
  EXPECT_EQ(fp16.producer->where.str(), "mul_1 forward z");
  EXPECT_FALSE(run(options_of(net, Dtype::bf16, 0), 1).producer);
}

TEST(Train, TheSameBitsForAnyNumberOfThreads) {
  std::vector<std::uint32_t> bits[2];
  for (int i = 0; i < 2; ++i) {
    set_threads(i == 0 ? 1 : 4);
    TrainOptions options;
    options.net = {.model = "transformer", .data = kData};
    options.dtype = Dtype::bf16;
    options.shadows = {.local = false, .carried = i == 1};
    Trainer trainer(options);
    for (int step = 0; step < 3; ++step)
      bits[i].push_back(std::bit_cast<std::uint32_t>(static_cast<float>(trainer.step().loss)));
    for (const Parameter& p : trainer.parameters().all())
      for (const float v : p.value.span<float>()) bits[i].push_back(std::bit_cast<std::uint32_t>(v));
  }
  set_threads(0);
  EXPECT_EQ(bits[0], bits[1]);
}

TEST(GradientRange, FlushAndOverflowAreThoseOfTheFormat) {
  // Half of the smallest subnormal of fp16 is 2^-25; it ties to zero, what is larger does not.
  const double above = std::nextafter(0x1p-25, 1), overflow = 65520, below = std::nextafter(65520.0, 0);
  GradientRange range;
  const std::vector<double> values = {0x1p-25, above, 0, -0x1p-26, below};
  range.add(values, 1);
  EXPECT_EQ(range.nonzero(), 4);
  EXPECT_EQ(range.flushed(0), 2);
  EXPECT_EQ(range.flushed(1), 1);
  EXPECT_EQ(range.flushed(2), 0);
  EXPECT_FALSE(range.overflows(0));
  EXPECT_TRUE(range.overflows(1));
  range.add(std::vector<double>{overflow * 4}, 4);
  EXPECT_TRUE(range.overflows(0));
  for (const double v : values) {
    const double stored = decode_scalar(kFp16, encode_scalar(kFp16, v));
    EXPECT_EQ(v != 0 && stored == 0, v == 0x1p-25 || v == -0x1p-26) << v;
  }
}

/// The net of the AMP tutorials at their batches, small: beside fp64 its loss errs by less than one rounding to 16
/// bits, and the bits do not follow from the threads.
TEST(Training, TutorialNetTakesEveryBatch) {
  for (const std::int64_t batch : {100, 128, 256, 513})
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16, Dtype::fp32}) {
      TrainOptions options;
      options.net.model = "tutorial";
      options.net.width = 24;
      options.net.batch = batch;
      options.dtype = dtype;
      options.scaler.enabled = dtype == Dtype::fp16;
      const auto losses = [&](int threads) {
        set_threads(threads);
        Trainer trainer(options);
        Fp64Run fp64(trainer.net(), trainer.options().rule, options.seed);
        trainer.prepare();
        fp64.start_from(trainer.parameters());
        std::vector<double> out;
        for (int i = 0; i < 2; ++i) {
          const StepResult step = trainer.step();
          EXPECT_TRUE(step.stepped) << batch << " " << name(dtype);
          EXPECT_NEAR(step.loss, fp64.step(), (dtype == Dtype::bf16 ? kBf16 : kFp16).unit_roundoff() * step.loss)
              << batch << " " << name(dtype);
          out.push_back(step.loss);
        }
        set_threads(0);
        return out;
      };
      const std::vector<double> one = losses(1);
      EXPECT_NE(one[0], one[1]);
      EXPECT_EQ(one, losses(2)) << batch << " " << name(dtype);
    }
}

}  // namespace
}  // namespace ampcheck::checks::train
