// SPDX-License-Identifier: Apache-2.0
// Training on a device: the bits of the host, and the host never touches the device's memory without waiting. Here on a
// stream that defers its work and closes its memory meanwhile, where there is a GPU on it too.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "checks/case/case_reference.h"
#include "checks/case/interval.h"
#include "checks/models/layers.h"
#include "checks/models/real_data.h"
#include "checks/train/checkpoint.h"
#include "kernels/cublas.h"
#include "kernels/device.h"
#include "src/amp/autocast.h"
#include "src/error.h"
#include "src/random.h"
#include "tests/support/fake_device.h"

namespace ampcheck::checks::train {
namespace {

using StreamMaker = std::function<std::unique_ptr<kernels::Stream>()>;

std::unique_ptr<kernels::Stream> fake() { return std::make_unique<tests::FakeStream>(); }

TrainOptions options_of(const std::string& model, Dtype dtype, const std::string& optimizer = "sgd") {
  TrainOptions out;
  out.net.model = model;
  if (model == "tutorial") {
    out.net.width = 96;
    out.net.batch = 32;
  } else
    out.net.data = models::find_data("");
  if (model != "tutorial") out.net.batch = 8;
  out.dtype = dtype;
  out.scaler.enabled = dtype == Dtype::fp16;
  out.rule.optimizer.name = optimizer;
  if (optimizer != "sgd") out.rule.optimizer.lr = 0.003;
  return out;
}

/// The bits of all that a run has after some steps: losses, norms, weights, state.
struct Outcome {
  std::vector<double> numbers;
  std::vector<std::pair<std::string, std::vector<std::uint64_t>>> tensors;
  std::int64_t launches = 0;
  bool operator==(const Outcome& other) const {
    return numbers.size() == other.numbers.size() &&
           std::memcmp(numbers.data(), other.numbers.data(), numbers.size() * sizeof(double)) == 0 &&
           tensors == other.tensors;
  }
};

Outcome outcome_of(TrainOptions options, const StreamMaker& stream, int steps = 3) {
  options.stream = stream;
  options.norms = true;
  Trainer trainer(options);
  Outcome out;
  for (int i = 0; i < steps; ++i) {
    const StepResult r = trainer.step();
    for (const double v : {r.loss, r.scale, r.scale_after, r.stagnant_share, r.grad_norm.value_or(0)})
      out.numbers.push_back(v);
    out.numbers.insert(out.numbers.end(), r.norms.begin(), r.norms.end());
    for (double& v : out.numbers)
      v = std::isnan(v) ? std::nan("") : v;  // of a skipped step: a NaN's sign is the machine's
  }
  const auto keep = [&](const std::string& name, const Tensor& tensor) {
    auto& bits = out.tensors.emplace_back(name, std::vector<std::uint64_t>()).second;
    for (std::int64_t i = 0; i < tensor.count(); ++i) bits.push_back(bits_at(tensor.view(), i));
  };
  std::size_t index = 0;
  for (const Parameter& p : trainer.parameters().all()) {
    keep(p.name, p.value);
    for (const auto& [name, tensor] : trainer.optimizers().state(index)) keep(p.name + " " + name, tensor);
    ++index;
  }
  if (trainer.stream() != nullptr) out.launches = trainer.stream()->launches();
  return out;
}

TEST(TrainDevice, StepsHaveTheBitsOfTheHostAndTheHostWaits) {
  for (const std::string model : {"mlp", "conv", "transformer", "tutorial"})
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16, Dtype::fp32}) {
      const TrainOptions options = options_of(model, dtype, dtype == Dtype::bf16 ? "adamw" : "sgd");
      const Outcome host = outcome_of(options, nullptr), device = outcome_of(options, fake);
      EXPECT_TRUE(host == device) << model << " " << name(dtype);
      EXPECT_GT(device.launches, 30) << model;
    }
}

TEST(TrainDevice, EveryWayOfAStepIsSound) {
  const auto compare = [](TrainOptions options, const char* what) {
    const Outcome host = outcome_of(options, nullptr), device = outcome_of(options, fake);
    EXPECT_TRUE(host == device) << what;
  };
  for (const char* optimizer : {"adam", "adagrad", "rmsprop"})
    compare(options_of("mlp", Dtype::fp16, optimizer), optimizer);
  TrainOptions o = options_of("mlp", Dtype::fp16);
  o.rule.accumulate = 3;
  compare(o, "accumulation");
  o = options_of("mlp", Dtype::fp16);
  o.rule.clip_norm = 0.1;
  compare(o, "clipping by norm");
  o = options_of("mlp", Dtype::fp16);
  o.rule.clip_value = 0.001;
  compare(o, "clipping by value");
  o = options_of("mlp", Dtype::fp16);
  o.scaler.init_scale = 0x1p30;  // skipped steps
  compare(o, "skips");
  for (const char* model : {"mlp", "conv", "tutorial"}) {
    o = options_of(model, Dtype::fp16);
    o.rule.grad_penalty = 0.1;
    compare(o, "penalty");
  }
  for (const char* model : {"mlp", "transformer"}) {
    o = options_of(model, Dtype::fp16);
    o.shadows.local = true;
    o.shadows.carried = std::string(model) == "mlp";
    o.watched = true;
    o.gradient_errors = 1;
    compare(o, "watched");
  }
}

/// What a watch sees on a device is what it sees on the host.
TEST(TrainDevice, TheTraceIsThatOfTheHost) {
  std::vector<std::map<TensorKey, Tally>> seen;
  for (const StreamMaker& stream : {StreamMaker(), StreamMaker(fake)}) {
    TrainOptions options = options_of("mlp", Dtype::fp16);
    options.shadows.local = true;
    options.stream = stream;
    Trainer trainer(options);
    trainer.step();
    trainer.step();
    seen.push_back(trainer.watch()->of_run());
  }
  ASSERT_EQ(seen[0].size(), seen[1].size());
  for (auto a = seen[0].begin(), b = seen[1].begin(); a != seen[0].end(); ++a, ++b) {
    EXPECT_TRUE(a->first == b->first);
    EXPECT_EQ(a->second.error2, b->second.error2) << a->first.str();
    EXPECT_EQ(a->second.stagnant, b->second.stagnant) << a->first.str();
  }
}

TEST(TrainDevice, ACheckpointGoesOnWithTheSameBits) {
  TrainOptions options = options_of("mlp", Dtype::fp16, "adamw");
  options.stream = fake;
  Trainer whole(options), half(options), rest(options);
  half.step();
  half.step();
  resume(rest, checkpoint_bytes(half), "test");
  StepResult a, b;
  for (int i = 0; i < 4; ++i) a = whole.step();
  for (int i = 0; i < 2; ++i) b = rest.step();
  EXPECT_EQ(a.loss, b.loss);
  for (const Parameter& p : whole.parameters().all())
    EXPECT_EQ(to_doubles(p.value.view()), to_doubles(rest.parameters().find(p.name)->value.view())) << p.name;
}

TEST(TrainDevice, RanksAreRefused) {
  TrainOptions options = options_of("mlp", Dtype::fp16);
  options.stream = fake;
  options.rule.ranks = 2;
  EXPECT_THROW(Trainer trainer(options), Error);
}

/// The planted fault of the test above: a host that reads a tensor while the step's kernels are under way.
TEST(TrainDeviceDeathTest, AHostThatDoesNotWaitIsStopped) {
  const auto read_a_gradient = [](bool waits) {
    const std::unique_ptr<kernels::Stream> stream = fake();
    ParameterSet parameters("net", 1);
    models::Recordings recordings;
    GraphOptions options;
    options.stream = stream.get();
    Graph graph(parameters, recordings, options);
    const models::Var x = graph.data({4, 8}, std::vector<double>(32, 0.5));
    graph.add_loss(graph.call("mse_loss", {{"x", models::linear(graph, "layer", x, 8)}, {"target", x}}), 1);
    graph.backward(1, 1);
    if (waits) stream->wait();
    return parameters.find("layer.weight")->grad.span<float>()[0];
  };
  EXPECT_NE(read_a_gradient(true), 0.0f);
  EXPECT_DEATH(static_cast<void>(read_a_gradient(false)), "");
}

/// The products of a step of the MLP against the intervals of linear at the step's own inputs: what a library's order
/// of summation may give.
struct Products {
  std::map<std::string, Tensor> seen;  ///< "linear_1 x", "relu_1 y"
  int judged = 0;
  std::int64_t outside = 0;
};

Products products_of(Dtype dtype, const StreamMaker& make, const std::string& spoiled = "") {
  const std::unique_ptr<kernels::Stream> stream = make ? make() : nullptr;
  ParameterSet parameters("net", 1);
  models::Recordings recordings;
  Products out;
  GraphOptions options;
  options.stream = stream.get();
  options.fault = [&](const Event& e) {
    if (e.phase != Phase::forward) return;
    if (spoiled == e.op && !e.cast) {
      std::vector<double> values = to_doubles(e.got);
      values[5] *= 1.05;
      from_doubles(values, e.got);
    }
    Tensor& kept = out.seen[std::string(e.op) + " " + std::string(e.tensor)] = Tensor(e.got.dtype, e.got.shape);
    std::memcpy(kept.data(), e.got.data, static_cast<std::size_t>(e.got.count() * bytes(e.got.dtype)));
  };
  Graph graph(parameters, recordings, options);
  std::optional<Autocast> region(std::in_place, graph.device(), autocast_in(dtype));
  std::vector<double> x(64 * 48), y(64 * 16);
  Random(3, "x").normals(0, x);
  Random(3, "y").normals(0, y);
  models::Var h = graph.data({64, 48}, x);
  std::vector<double> rounded_x = x;
  for (double& v : rounded_x) v = static_cast<double>(static_cast<float>(v));
  h = models::unary(graph, "relu", models::linear(graph, "layer0", h, 72));
  h = models::linear(graph, "layer1", h, 16);
  graph.add_loss(graph.call("mse_loss", {{"x", h}, {"target", graph.data({64, 16}, y)}}), 1);
  region.reset();
  graph.backward(1, 1);
  if (stream) stream->wait();
  const OpDef& op = models::op_of_call("linear");
  for (const char* const call : {"linear_1", "linear_2"}) {
    const bool second = call[7] == '2';
    OpCall linear = default_call(op.signature, dtype);
    linear.dims = {{"N", 64}, {"K", second ? 72 : 48}, {"M", second ? 16 : 72}};
    const std::string layer = second ? "layer1." : "layer0.";
    const auto read = [&](const char* name, const std::vector<double>& otherwise) {
      const auto found = out.seen.find(std::string(call) + " " + name);
      return found == out.seen.end() ? otherwise : to_doubles(found->second.view());
    };
    const NamedValues inputs = {{"x", second ? to_doubles(out.seen.at("relu_1 y").view()) : read("x", rounded_x)},
                                {"weight", read("weight", to_doubles(parameters.find(layer + "weight")->value.view()))},
                                {"bias", read("bias", to_doubles(parameters.find(layer + "bias")->value.view()))}};
    CaseReference reference(op, linear, inputs, Device::cuda);
    const Comparison comparison = checks::compare(to_doubles(out.seen.at(std::string(call) + " y").view()),
                                                  reference.interval(0, Pass::forward, "y", dtype));
    out.judged += static_cast<int>(comparison.compared);
    out.outside += std::ssize(comparison.outside);
  }
  return out;
}

TEST(TrainDevice, ProductsOfAStepLieInTheirIntervals) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    const Products right = products_of(dtype, fake), wrong = products_of(dtype, fake, "linear_1");
    EXPECT_EQ(right.judged, 64 * (72 + 16));
    EXPECT_EQ(right.outside, 0) << name(dtype);
    EXPECT_EQ(wrong.outside, 1) << name(dtype) << ": one element that is five per cent too large";
  }
}

/// On the GPU with the plain products: every bit of three steps. With cuBLAS: every product in its interval.
TEST(TrainDevice, CudaStepsHaveTheBitsOfTheHostAndItsProductsTheirIntervals) {
  std::string why;
  if (!kernels::cuda_available(&why)) GTEST_SKIP() << why;
  kernels::use_cublas(false);
  for (const std::string model : {"mlp", "conv", "transformer"})
    for (const Dtype dtype : {Dtype::fp16, Dtype::bf16, Dtype::fp32}) {
      const TrainOptions options = options_of(model, dtype, dtype == Dtype::bf16 ? "adamw" : "sgd");
      EXPECT_TRUE(outcome_of(options, nullptr) == outcome_of(options, kernels::make_cuda_stream))
          << model << " " << name(dtype);
    }
  kernels::use_cublas(true);
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    const Products products = products_of(dtype, kernels::make_cuda_stream);
    EXPECT_EQ(products.outside, 0) << name(dtype);
    EXPECT_EQ(products.judged, 64 * (72 + 16));
  }
}

}  // namespace
}  // namespace ampcheck::checks::train
