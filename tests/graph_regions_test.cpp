// SPDX-License-Identifier: Apache-2.0
// Regions that a model opens while it runs: autocast in autocast, no_grad, inference mode, custom_fwd; and gradients kept in 16 bits.
#include <gtest/gtest.h>

#include "checks/models/fp64_tape.h"
#include "checks/models/layers.h"
#include "checks/train/trainer.h"
#include "src/amp/autocast.h"
#include "src/amp/error.h"
#include "src/amp/grad_mode.h"
#include "src/rounding.h"

namespace ampcheck::checks::train {
namespace {

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

TEST(GraphRegions, OpsRunInTheRegionThatIsOpen) {
  Step run;
  const Autocast outer(AutocastDevice::cpu, autocast_in(Dtype::bf16));
  const Var low = models::linear(run.graph, "a", input(run.graph), 8);
  EXPECT_EQ(run.dtype_of(low), Dtype::bf16);
  Var off, other;
  {
    const Autocast region(AutocastDevice::cpu, {.enabled = false});
    EXPECT_EQ(run.dtype_of(models::unary(run.graph, "relu", low)), Dtype::bf16) << "a region that is off leaves inputs as they are";
    off = models::linear(run.graph, "b", low, 8);
    EXPECT_EQ(run.dtype_of(off), Dtype::fp32) << "the wider of bf16 and the fp32 weight";
    {
      const Autocast inner(AutocastDevice::cpu, autocast_in(Dtype::fp16));
      other = models::linear(run.graph, "a", off, 8);
      EXPECT_EQ(run.dtype_of(other), Dtype::fp16) << "the weight's cast to bf16 is not taken for fp16";
    }
    EXPECT_EQ(run.dtype_of(models::linear(run.graph, "b", off, 8)), Dtype::fp32);
  }
  EXPECT_THROW(
      {
        const Autocast region(AutocastDevice::cpu, {.enabled = false});
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
  Step run;
  EXPECT_EQ(run.dtype_of(models::linear(run.graph, "a", input(run.graph), 8)), Dtype::fp32);
  const Autocast unknown(AutocastDevice::cpu, {.dtype = Dtype::fp32});
  EXPECT_FALSE(unknown.warning().empty());
  EXPECT_EQ(run.dtype_of(models::linear(run.graph, "a", input(run.graph), 8)), Dtype::fp32);
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

/// torch keeps a weight's cast that was made under no_grad for calls that want a gradient, which then never arrives.
TEST(GraphRegions, ACastMadeUnderNoGradIsNotServedToOthers) {
  Step run;
  const Autocast region(AutocastDevice::cpu, autocast_in(Dtype::bf16));
  {
    const NoGrad no_grad;
    models::linear(run.graph, "a", input(run.graph), 8);
  }
  run.add_mean(models::linear(run.graph, "a", input(run.graph), 8));
  run.graph.backward(1, 1);
  EXPECT_TRUE(run.grad("a.weight").defined());
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
    EXPECT_NE(std::string(error.what()).find("Inference tensors cannot be saved for backward"), std::string::npos) << error.what();
  }
  const NoGrad no_grad;
  EXPECT_NO_THROW(models::linear(run.graph, "b", h, 8));
}

TEST(GraphRegions, CustomFwdWithCastInputsRunsTheOpInThatDtypeAndItsBackwardToo) {
  for (const bool casts : {false, true}) {
    Step run;
    const Autocast region(AutocastDevice::cpu, autocast_in(Dtype::fp16));
    const Var low = models::linear(run.graph, "a", input(run.graph), 8);
    Var y;
    {
      const CustomForward forward(AutocastDevice::cpu, casts ? std::optional(Dtype::fp32) : std::nullopt);
      EXPECT_EQ(autocast_state(AutocastDevice::cpu).enabled, !casts);
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
    const Autocast region(AutocastDevice::cpu, autocast_in(Dtype::fp16));
    const Var h = models::layer_norm(run->graph, "n", models::linear(run->graph, "a", input(run->graph), 8));
    run->add_mean(models::unary(run->graph, "tanh", h));
    run->graph.backward(256, 256);
    return run;
  };
  const auto wide = gradients(false), low = gradients(true);
  EXPECT_EQ(wide->grad("a.weight").dtype(), Dtype::fp32);
  EXPECT_EQ(low->grad("a.weight").dtype(), Dtype::fp16);
  EXPECT_EQ(low->grad("n.weight").dtype(), Dtype::fp32) << "layer_norm ran in fp32, and its gradient never was in 16 bits";
  for (const char* name : {"a.weight", "a.bias", "n.weight"}) EXPECT_EQ(to_doubles(wide->grad(name).view()), to_doubles(low->grad(name).view())) << name << ": widening changes no value";
}

}  // namespace
}  // namespace ampcheck::checks::train
