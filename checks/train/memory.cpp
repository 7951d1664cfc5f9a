// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/train/memory.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>

#include "checks/train/graph_entry.h"
#include "checks/train/optimizer_set.h"
#include "src/amp/autocast.h"

namespace ampcheck::checks::train {

namespace {

/// The host's memory, counted.
class CountedMemory final : public TensorMemory {
 public:
  std::shared_ptr<std::byte> allocate(std::size_t size) override {
    const Tensor own = [&] {
      const MemoryScope host(nullptr);
      return Tensor::uninitialized(Dtype::u8, {static_cast<std::int64_t>(size)});
    }();
    const std::int64_t now = *live_ += static_cast<std::int64_t>(size);
    peak_ = std::max(peak_, now);
    return {static_cast<std::byte*>(own.data()),
            [own, size, live = live_](std::byte*) { *live -= static_cast<std::int64_t>(size); }};
  }
  void wait() override {}
  std::int64_t live() const { return *live_; }
  std::int64_t peak() const { return peak_; }

 private:
  std::shared_ptr<std::atomic<std::int64_t>> live_ =
      std::make_shared<std::atomic<std::int64_t>>(0);  // memory may outlive this
  std::int64_t peak_ = 0;
};

/// How a net is trained.
struct Plan {
  std::string name;
  std::optional<Dtype> autocast = {};
  Weights weights = Weights::fp32;
  std::optional<Dtype> moments = {};
  bool keep_gradients = false;  ///< in the 16 bits that they were computed in
  bool upcast_at_once = false;  ///< the optimizer is handed fp32 gradients of all parameters
};

std::int64_t bytes_of(const Tensor& tensor) { return tensor.defined() ? tensor.count() * bytes(tensor.dtype()) : 0; }

/// Two steps, with what the second one holds between forward and backward and at the update: in the first there are no
/// moments yet.
class Measured {
 public:
  Measured(const Net& net, const StepRule& rule, const Plan& plan, std::uint64_t seed)
      : net_(net),
        plan_(plan),
        rule_(rule),
        parameters_(net.name, seed, plan.weights == Weights::fp32 ? Dtype::fp32 : *plan.autocast) {
    rule_.optimizer.weights = plan.weights;
    rule_.optimizer.moments = plan.moments;
    rule_.optimizer.fused |= plan.keep_gradients;
    use.strategy = plan.name;
    const MemoryScope scope(&memory_);
    for (int batch = 0; batch < 2; ++batch) step(batch);
  }
  MemoryUse use;

 private:
  void step(int batch) {
    parameters_.clear_grads();
    {
      GraphOptions options;
      options.keep_low_precision_grads = plan_.keep_gradients;
      options.memory = &memory_;
      Graph graph(parameters_, recordings_, options);
      const Autocast region(graph.device(), autocast_in(plan_.autocast.value_or(Dtype::fp32)));
      net_.forward(graph, batch);
      use.activations = graph.bytes_kept();
      use.live_after_forward = memory_.live();
      graph.backward(1, 1);
    }
    if (!optimizers_) optimizers_ = std::make_unique<OptimizerSet>(rule_, parameters_);
    std::vector<Tensor> low;  // what the fp32 gradients were made of
    for (Parameter* p : parameters_.pointers()) {
      if (!plan_.upcast_at_once || !p->grad.defined() || p->grad.dtype() == Dtype::fp32) continue;
      low.push_back(p->grad);
      p->grad = converted(p->grad.view(), Dtype::fp32);
    }
    optimizers_->step();
    count(low);
  }

  void count(const std::vector<Tensor>& low) {
    use.live_after_update = memory_.live();
    use.peak = memory_.peak();
    use.weights = use.masters = use.gradients = use.moments = 0;
    for (const Tensor& tensor : low) use.gradients += bytes_of(tensor);
    std::size_t index = 0;
    for (const Parameter& p : parameters_.all()) {
      use.weights += bytes_of(p.value);
      use.gradients += bytes_of(p.grad);
      for (const auto& [key, tensor] : optimizers_->state(index))
        (key == "master_param" ? use.masters : use.moments) += bytes_of(tensor);
      ++index;
    }
  }

  const Net& net_;
  const Plan& plan_;
  StepRule rule_;
  CountedMemory memory_;
  ParameterSet parameters_;
  models::Recordings recordings_;
  std::unique_ptr<OptimizerSet> optimizers_;
};

}  // namespace

ChunkedUpdate chunked_update(std::int64_t parameters, double share, Dtype low) {
  ChunkedUpdate out;
  out.parameters = parameters;
  out.chunk = std::clamp<std::int64_t>(std::llround(std::ceil(share * static_cast<double>(parameters) * (1 - 0x1p-50))),
                                       1, parameters);
  out.updates = (parameters + out.chunk - 1) / out.chunk;
  out.in_fp32 = parameters * bytes(Dtype::fp32);
  out.in_low = parameters * bytes(low);
  out.widened = out.chunk * bytes(Dtype::fp32);
  return out;
}

MemoryReport memory_of(const Net& net, const StepRule& rule, Dtype low, std::uint64_t seed) {
  const std::string type = name(low), kept = type + " weights, fp32 masters, " + type + " gradients";
  const std::vector<Plan> plans = {
      {.name = "fp32"},
      {.name = "autocast " + type + ", fp32 weights", .autocast = low},
      {.name = "autocast " + type + ", fp32 weights, " + type + " gradients", .autocast = low, .keep_gradients = true},
      {.name = kept + ", upcast all at once", .autocast = low, .weights = Weights::master, .upcast_at_once = true},
      {.name = kept + ", upcast by chunks", .autocast = low, .weights = Weights::master},
      {.name = kept + " and moments", .autocast = low, .weights = Weights::master, .moments = low},
      {.name = type + " throughout", .autocast = low, .weights = Weights::low, .moments = low}};
  MemoryReport report;
  for (const Plan& plan : plans) report.strategies.push_back(Measured(net, rule, plan, seed).use);
  report.parameters = report.strategies.front().weights / bytes(Dtype::fp32);
  return report;
}

}  // namespace ampcheck::checks::train
