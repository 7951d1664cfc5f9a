// SPDX-License-Identifier: Apache-2.0
// Regions that a model opens while it runs: autocast in autocast, no_grad, inference mode, custom_fwd; and gradients
// kept in 16 bits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checks/models/fp64_tape.h"
#include "checks/models/layers.h"
#include "checks/train/trainer.h"
#include "src/amp/autocast.h"
#include "src/amp/error.h"
#include "src/amp/grad_mode.h"
#include "src/rounding.h"

namespace ampcheck::checks::train {
namespace {

constexpr AutocastDevice kList = AutocastDevice::cuda;  // whose regions a graph follows unless told otherwise

using models::Tape;
using models::Var;

Var input(Tape& t) {
  std::vector<double> x;
  for (int i = 0; i < 32; ++i) x.push_back(0.25 * (i % 7) - 0.6);
  return t.data({4, 8}, x);
}

/// A graph with its own parameters.
struct Step {
  explicit Step(GraphOptions options = {}) : graph(parameters, recordings, options) {}
  ParameterSet parameters{"regions", 1};
  models::Recordings recordings;
  Graph graph;

  Dtype dtype_of(Var x) const { return graph.dtype(x); }
  const Tensor& grad(const char* name) { return parameters.find(name)->grad; }
  void add_mean(Var y) { graph.add_loss(models::mean_all(graph, graph.to(y, Dtype::fp32)), 1); }
};

/// How often a weight was cast.
class Casts final : public Observer {
 public:
  bool wants(std::string_view) const override { return true; }
  bool wants_exact(std::string_view) const override { return false; }
  Seen see(const Event& e) override {
    weights += e.cast && e.phase == Phase::forward && e.tensor == "weight" ? 1 : 0;
    return {all_finite(e.got)};
  }
  int weights = 0;
};

TEST(GraphRegions, OpsRunInTheRegionThatIsOpen) {
  Step run;
  const Autocast outer(kList, autocast_in(Dtype::bf16));
  const Var low = models::linear(run.graph, "a", input(run.graph), 8);
  EXPECT_EQ(run.dtype_of(low), Dtype::bf16);
  Var off, other;
  {
    const Autocast region(kList, {.enabled = false});
    EXPECT_EQ(run.dtype_of(models::unary(run.graph, "relu", low)), Dtype::bf16)
        << "a region that is off leaves inputs as they are";
    off = models::linear(run.graph, "b", low, 8);
    EXPECT_EQ(run.dtype_of(off), Dtype::fp32) << "the wider of bf16 and the fp32 weight";
    {
      const Autocast inner(kList, autocast_in(Dtype::fp16));
      other = models::linear(run.graph, "a", off, 8);
      EXPECT_EQ(run.dtype_of(other), Dtype::fp16) << "the weight's cast to bf16 is not taken for fp16";
    }
    EXPECT_EQ(run.dtype_of(models::linear(run.graph, "b", off, 8)), Dtype::fp32);
  }
  EXPECT_THROW(
      {
        const Autocast region(kList, {.enabled = false});
        models::mul(run.graph, low, run.graph.reshape(low, {8, 4}));
      },
      Error);
  EXPECT_EQ(run.dtype_of(models::linear(run.graph, "b", off, 8)), Dtype::bf16) << "restored, also by an exception";
  run.add_mean(other);
  run.graph.backward(1, 1);
  EXPECT_EQ(run.graph.grad(other).dtype(), Dtype::fp16);
  EXPECT_EQ(run.graph.grad(low).dtype(), Dtype::bf16) << "backward runs in the dtypes of the forward";
  EXPECT_EQ(run.grad("a.weight").dtype(), Dtype::fp32);
}

TEST(GraphRegions, WithoutARegionEverythingIsFp32) {
  Step run({.autocast = AutocastDevice::cpu});
  EXPECT_EQ(run.dtype_of(models::linear(run.graph, "a", input(run.graph), 8)), Dtype::fp32);
  const Autocast unknown(AutocastDevice::cpu, {.dtype = Dtype::fp32});
  EXPECT_FALSE(unknown.warning().empty());
  const Autocast of_others(kList, autocast_in(Dtype::fp16));
  EXPECT_EQ(run.dtype_of(models::linear(run.graph, "a", input(run.graph), 8)), Dtype::fp32)
      << "this graph follows CPU's regions";
  EXPECT_FALSE(run.graph.used_autocast());
}

TEST(GraphRegions, NoGradKeepsNothingAndStopsGradients) {
  const auto bytes_kept = [](bool no_grad) {
    Step run;
    std::optional<NoGrad> region;
    if (no_grad) region.emplace();
    models::layer_norm(run.graph, "n", models::linear(run.graph, "a", input(run.graph), 8));
    return run.graph.bytes_kept();
  };
  EXPECT_EQ(bytes_kept(false) - bytes_kept(true), 2 * 4 * 4) << "layer_norm saves two numbers a row";
  Step run;
  models::Parameters values("regions");
  models::Fp64Tape tape(values);
  for (Tape* const t : {static_cast<Tape*>(&run.graph), static_cast<Tape*>(&tape)}) {
    Var h;
    {
      const NoGrad region;
      EXPECT_FALSE(grad_enabled());
      h = models::linear(*t, "frozen", input(*t), 8);
    }
    EXPECT_TRUE(grad_enabled());
    t->add_loss(models::mean_all(*t, models::linear(*t, "trained", models::unary(*t, "tanh", h), 8)), 1);
  }
  run.graph.backward(1, 1);
  tape.backward();
  EXPECT_FALSE(run.grad("frozen.weight").defined());
  ASSERT_TRUE(run.grad("trained.weight").defined());
  const auto exact = tape.gradients();
  EXPECT_FALSE(exact.contains("frozen.weight")) << "the fp64 run stops there too";
  ASSERT_TRUE(exact.contains("trained.weight"));
  const std::vector<double> got = to_doubles(run.grad("trained.weight").view());
  // Sums of 4 products of numbers up to 1, over 32, in fp32.
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], exact.at("trained.weight")[i], 8 * 0x1p-24) << i;
}

/// A cast of a weight under no_grad serves calls that want a gradient, which arrives.
TEST(GraphRegions, AWeightCastFirstUnderNoGradHasItsGradient) {
  Casts seen;
  Step run({.observer = &seen});
  const Autocast region(kList, autocast_in(Dtype::bf16));
  {
    const NoGrad no_grad;
    models::linear(run.graph, "a", input(run.graph), 8);
  }
  EXPECT_EQ(seen.weights, 1);
  run.add_mean(models::linear(run.graph, "a", input(run.graph), 8));
  EXPECT_EQ(seen.weights, 1);
  run.graph.backward(1, 1);
  EXPECT_TRUE(run.grad("a.weight").defined());
}

/// autocast's cache: what it keeps of a graph's casts, and until when.
TEST(GraphRegions, CastsOfWeightsLiveAsLongAsTheOutermostRegion) {
  Casts seen;
  Step run({.observer = &seen});
  const auto linear = [&] { return models::linear(run.graph, "a", input(run.graph), 8); };
  {
    const Autocast outer(kList, autocast_in(Dtype::bf16));
    linear();
    {
      const Autocast inner(kList, autocast_in(Dtype::bf16));
      linear();
    }
    run.add_mean(linear());
    EXPECT_EQ(seen.weights, 1) << "an inner region ends, and the cast is kept";
    EXPECT_EQ(cached_casts(), 2u) << "weight and bias";
    {
      const Autocast uncached(kList, {.dtype = Dtype::bf16, .cache_enabled = false});
      linear();
    }
    EXPECT_EQ(seen.weights, 2);
    const InferenceMode inference;
    linear();
    EXPECT_EQ(seen.weights, 3) << "what is made there cannot serve others";
  }
  EXPECT_EQ(cached_casts(), 0u);
  run.parameters.find("a.weight")->value.span<float>()[0] = 8;
  const Autocast next(kList, autocast_in(Dtype::bf16));
  const Var y = linear();
  run.add_mean(y);
  EXPECT_EQ(seen.weights, 4) << "another region, another cast, also in one graph";
  run.graph.backward(1, 1);
  EXPECT_NE(to_doubles(run.graph.view(y)), to_doubles(run.graph.view(run.graph.output_of("linear_1"))))
      << "it sees the update between the regions";
  EXPECT_TRUE(run.grad("a.weight").defined());
}

TEST(GraphRegions, ACastThatIsAskedForIsNotKept) {
  Casts seen;
  Step run({.observer = &seen});
  const Autocast region(kList, autocast_in(Dtype::bf16));
  const Var w = run.graph.parameter("a.weight", {8, 8}, 0, 1);
  EXPECT_NE(run.graph.to(w, Dtype::bf16).id, run.graph.to(w, Dtype::bf16).id);
  EXPECT_EQ(cached_casts(), 0u);
}

/// As torch: an update inside a region is not seen until it ends, in no graph.
TEST(GraphRegions, TheCacheIsOneForAllGraphs) {
  ParameterSet parameters("regions", 1);
  models::Recordings recordings;
  Casts seen;
  const auto forward = [&] {
    Graph graph(parameters, recordings, {.observer = &seen});
    const Var y = models::linear(graph, "a", input(graph), 8);
    graph.add_loss(models::mean_all(graph, graph.to(y, Dtype::fp32)), 1);
    graph.backward(1, 1);
    return to_doubles(graph.view(y));
  };
  std::vector<double> first;
  {
    const Autocast region(kList, autocast_in(Dtype::bf16));
    first = forward();
    parameters.find("a.weight")->value.span<float>()[0] = 8;
    parameters.clear_grads();
    EXPECT_EQ(forward(), first);
    EXPECT_EQ(seen.weights, 1) << "a cast that the cache had was not written, and nobody is told that it was";
    EXPECT_TRUE(parameters.find("a.weight")->grad.defined()) << "the second graph has its own way back to the weight";
    EXPECT_EQ(stale_casts(), 1u);
  }
  const Autocast region(kList, autocast_in(Dtype::bf16));
  EXPECT_NE(forward(), first);
}

TEST(GraphRegions, InferenceTensorsAreRefusedWhereABackwardWouldNeedThem) {
  Step run;
  Var h;
  {
    const InferenceMode region;
    EXPECT_TRUE(inference_mode());
    h = models::linear(run.graph, "a", input(run.graph), 8);
    models::unary(run.graph, "relu", h);
  }
  EXPECT_FALSE(inference_mode());
  try {
    models::linear(run.graph, "b", h, 8);
    FAIL() << "want an error";
  } catch (const AmpError& error) {
    EXPECT_NE(std::string(error.what()).find("Inference tensors cannot be saved for backward"), std::string::npos)
        << error.what();
  }
  const NoGrad no_grad;
  EXPECT_NO_THROW(models::linear(run.graph, "b", h, 8));
}

TEST(GraphRegions, CustomFwdWithCastInputsRunsTheOpInThatDtypeAndItsBackwardToo) {
  for (const bool casts : {false, true}) {
    Step run;
    const Autocast region(kList, autocast_in(Dtype::fp16));
    const Var low = models::linear(run.graph, "a", input(run.graph), 8);
    Var y;
    {
      const CustomForward forward(kList, casts ? std::optional(Dtype::fp32) : std::nullopt);
      EXPECT_EQ(autocast_state(kList).enabled, !casts);
      y = models::unary(run.graph, "gelu", run.graph.to(low, forward.input_dtype(run.dtype_of(low))));
    }
    EXPECT_EQ(run.dtype_of(y), casts ? Dtype::fp32 : Dtype::fp16);
    run.add_mean(y);
    run.graph.backward(1024, 1024);
    EXPECT_EQ(run.graph.grad(y).dtype(), run.dtype_of(y));
    EXPECT_EQ(run.graph.grad(low).dtype(), Dtype::fp16);
  }
}

TEST(GraphRegions, GradientsStayInLowPrecisionOnRequest) {
  const auto gradients = [](bool keep) {
    GraphOptions options;
    options.keep_low_precision_grads = keep;
    auto run = std::make_unique<Step>(options);
    const Autocast region(kList, autocast_in(Dtype::fp16));
    const Var h = models::layer_norm(run->graph, "n", models::linear(run->graph, "a", input(run->graph), 8));
    run->add_mean(models::unary(run->graph, "tanh", h));
    run->graph.backward(256, 256);
    return run;
  };
  const auto wide = gradients(false), low = gradients(true);
  EXPECT_EQ(wide->grad("a.weight").dtype(), Dtype::fp32);
  EXPECT_EQ(low->grad("a.weight").dtype(), Dtype::fp16);
  EXPECT_EQ(low->grad("n.weight").dtype(), Dtype::fp32)
      << "layer_norm ran in fp32, and its gradient never was in 16 bits";
  for (const char* name : {"a.weight", "a.bias", "n.weight"})
    EXPECT_EQ(to_doubles(wide->grad(name).view()), to_doubles(low->grad(name).view()))
        << name << ": widening changes no value";
}

TEST(GraphRegions, WhatIsCastIsMeasuredInOnePass) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const struct {
    std::vector<float> values;
    double largest;
    bool finite;
  } kAll[] = {{{0.5f, -3, 2}, 3, true},
              {{}, 0, true},
              {{-0.0f, 0}, 0, true},
              {{1, -inf, 7}, 7, false},
              {{nan, -2, 1}, 2, false},
              {{0x1p-149f, -0x1p-148f}, 0x1p-148, true},
              {{-0x1.fffffep127f}, 0x1.fffffep127, true}};
  for (const auto& [values, largest, finite] : kAll)
    for (const Dtype dtype : {Dtype::fp32, Dtype::fp64}) {
      Tensor x(dtype, {std::ssize(values)});
      from_doubles(std::vector<double>(values.begin(), values.end()), x.view());
      EXPECT_EQ(magnitudes(x.view()).largest_finite, largest) << ::testing::PrintToString(values);
      EXPECT_EQ(magnitudes(x.view()).all_finite, finite) << ::testing::PrintToString(values);
      EXPECT_EQ(all_finite(x.view()), finite) << ::testing::PrintToString(values);
    }
}

/// Of a cast the observer is told what was measured of its source: a number that is not finite in it, too.
TEST(GraphRegions, ACastSaysWhatItsSourceHolds) {
  struct Sizes final : Observer {
    bool wants(std::string_view) const override { return true; }
    bool wants_exact(std::string_view) const override { return false; }
    Seen see(const Event& e) override {
      if (!e.cast || e.phase != Phase::forward) return {all_finite(e.got)};
      ++casts;
      const std::vector<double> exact = to_doubles(e.exact);
      double largest = 0;
      bool finite = true;
      for (const double x : exact) {
        finite &= std::isfinite(x);
        if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
      }
      EXPECT_EQ(e.largest_exact.value_or(largest), largest) << e.tensor;
      EXPECT_EQ(e.inputs_finite, finite) << e.tensor;
      measured += e.largest_exact.has_value();
      wild += !finite;
      return {all_finite(e.got)};
    }
    int casts = 0, measured = 0, wild = 0;
  } seen;
  Step run({.observer = &seen});
  const Autocast region(kList, autocast_in(Dtype::fp16));
  run.graph.parameter("a.weight", {8, 8}, 0, 1);
  run.parameters.find("a.weight")->value.span<float>()[3] = std::numeric_limits<float>::infinity();
  for (const char* layer : {"a", "b"}) models::linear(run.graph, layer, input(run.graph), 8);
  EXPECT_EQ(seen.casts, 6) << "input, weight and bias of each";
  EXPECT_EQ(seen.measured, 6);
  EXPECT_EQ(seen.wild, 1);
}

/// Of a gradient that is a sum nobody has looked at, a cast gets no statistics: those of the first summand are not its
/// own.
TEST(GraphRegions, StatisticsOfAGradientGoWithItsNumbers) {
  struct Stats final : Observer {
    bool wants(std::string_view) const override { return true; }
    bool wants_exact(std::string_view) const override { return false; }
    Seen see(const Event& e) override {
      if (e.cast && e.phase == Phase::backward && e.got.dtype == Dtype::fp32)
        ++(e.narrow_stats != nullptr ? with : without);
      if (e.narrow_stats != nullptr) {
        EXPECT_EQ(*e.narrow_stats, tensor_stats(e.narrow)) << e.op << " " << e.tensor;
      }
      return {all_finite(e.got),
              e.got.dtype == Dtype::fp16 ? std::make_shared<const TensorStats>(tensor_stats(e.got)) : nullptr};
    }
    int with = 0, without = 0;
  } seen;
  Step run({.observer = &seen});
  const Autocast region(kList, autocast_in(Dtype::fp16));
  const Var once = models::linear(run.graph, "a", input(run.graph), 8);
  const Var twice = models::linear(run.graph, "a", models::unary(run.graph, "relu", once), 8);  // the same weight again
  run.add_mean(models::linear(run.graph, "b", twice, 8));
  for (int pass = 0; pass < 2; ++pass) run.graph.backward(256, 256, true);
  EXPECT_EQ(seen.with, 4) << "b's weight and bias, in each pass";
  EXPECT_EQ(seen.without, 4) << "a's, of which two calls have a share";
}

/// What a watch derives for a cast is what the cast's own numbers give.
TEST(GraphRegions, StatisticsOfAWidenedGradientAreItsOwn) {
  TrainOptions options;
  options.net.model = "tutorial";
  options.net.width = 96;
  options.dtype = Dtype::fp16;
  options.watched = true;
  Trainer trainer(options);
  trainer.prepare();
  int derived = 0, seen = 0;
  trainer.watch()->listen([&](const Event& e, const TensorKey& key, const Tally&, FaultRole, const TensorStats& stats) {
    ++seen;
    EXPECT_EQ(stats, tensor_stats(e.got)) << key.str();
    if (e.narrow_stats == nullptr) return;
    derived += widened_stats(*e.narrow_stats, e.narrow).has_value();
    EXPECT_EQ(*e.narrow_stats, tensor_stats(e.narrow)) << key.str();
  });
  for (int step = 0; step < 3; ++step) trainer.step();
  EXPECT_GT(derived, 3);
  EXPECT_GT(seen, 60);
}

}  // namespace
}  // namespace ampcheck::checks::train
