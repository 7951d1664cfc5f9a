// SPDX-License-Identifier: Apache-2.0
#include "checks/train/memory.h"

#include "checks/train/graph.h"

namespace ampcheck::checks::train {

namespace {

/// One step, with what it holds between forward and backward and after.
struct Counted {
  MemoryUse use;
  std::int64_t elements = 0, moment_elements = 0, weight_casts = 0;
};

Counted measured(const Net& net, const OptimizerChoice& choice, std::optional<Dtype> autocast, std::uint64_t seed) {
  ParameterSet parameters(net.name, seed);
  models::Recordings recordings;
  GraphOptions options;
  options.autocast = autocast;
  Graph graph(parameters, recordings, options);
  net.forward(graph, 0);
  Counted counted;
  MemoryUse& out = counted.use;
  out.activations = graph.bytes_kept();
  counted.weight_casts = graph.bytes_of_weight_casts();
  graph.backward(1, 1);
  const auto optimizer = make_optimizer(choice, parameters.pointers());
  optimizer->step();
  std::size_t index = 0;
  for (const Parameter& p : parameters.all()) {
    counted.elements += p.value.count();
    out.weights += p.value.count() * bytes(p.value.dtype());
    if (p.grad.defined()) out.gradients += p.grad.count() * bytes(p.grad.dtype());
    for (const auto& [key, tensor] : optimizer->state(index)) {
      out.moments += tensor.count() * bytes(tensor.dtype());
      if (key != "step") counted.moment_elements += tensor.count();
    }
    ++index;
  }
  return counted;
}

}  // namespace

MemoryReport memory_of(const Net& net, const OptimizerChoice& choice, Dtype low, std::uint64_t seed) {
  const Counted wide = measured(net, choice, std::nullopt, seed), narrow = measured(net, choice, low, seed);
  MemoryUse fp32 = wide.use, autocast = narrow.use;
  MemoryReport report;
  report.parameters = wide.elements;
  const std::string type = name(low);
  fp32.strategy = "fp32";
  autocast.strategy = "autocast " + type + ", fp32 weights";
  const std::int64_t fp32_bytes = report.parameters * bytes(Dtype::fp32), low_bytes = report.parameters * bytes(low);
  MemoryUse masters = autocast;  // the ops read the copies, so no cast of a weight is kept
  const std::string kept = type + " weights, fp32 masters, " + type + " gradients";
  masters.strategy = kept + ", upcast by chunks";
  masters.weights = low_bytes, masters.masters = fp32_bytes, masters.gradients = low_bytes;
  masters.activations = autocast.activations - narrow.weight_casts;
  MemoryUse upcast = masters;  // an optimizer that is handed fp32 gradients of all parameters
  upcast.strategy = kept + ", upcast all at once";
  upcast.gradients = low_bytes + fp32_bytes;
  MemoryUse moments = masters;
  moments.strategy = kept + " and moments";
  moments.moments = narrow.moment_elements * bytes(low);
  MemoryUse pure = moments;
  pure.strategy = type + " throughout";
  pure.masters = 0;
  report.strategies = {fp32, autocast, upcast, masters, moments, pure};
  return report;
}

}  // namespace ampcheck::checks::train
