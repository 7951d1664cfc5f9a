// SPDX-License-Identifier: Apache-2.0
#include "checks/diagnose/raising_tape.h"

#include <algorithm>
#include <utility>

#include "src/amp/autocast.h"

namespace ampcheck::checks::diagnose {

models::Var RaisingTape::call(const std::string& op, const std::vector<std::pair<std::string, models::Var>>& inputs,
                              const std::vector<std::pair<std::string, double>>& attributes) {
  if (!raised_.contains(op + "_" + std::to_string(++counts_[op]))) return inner_.call(op, inputs, attributes);
  const Autocast off(inner_.device(), {.enabled = false});
  std::vector<std::pair<std::string, models::Var>> wide;
  for (const auto& [name, var] : inputs) wide.emplace_back(name, inner_.to(var, Dtype::fp32));
  return inner_.call(op, wide, attributes);
}

/// The second time has the names of the first.
models::Var RaisingTape::recompute(const std::function<models::Var(bool again)>& block) {
  const std::map<std::string, int> before = counts_;
  return inner_.recompute([&](bool again) {
    if (again) counts_ = before;
    return block(again);
  });
}

models::Var RaisingTape::infer(const std::function<models::Var()>& block) {
  std::map<std::string, int> before = std::exchange(counts_, {});
  const models::Var out = inner_.infer(block);
  counts_ = std::move(before);
  return out;
}

namespace {

class FiniteTape final : public models::ForwardingTape {
 public:
  FiniteTape(models::Tape& inner, double largest) : ForwardingTape(inner), largest_(largest) {}
  models::Var data(const Shape& shape, std::vector<double> values) override {
    for (double& value : values) value = std::clamp(value, -largest_, largest_);
    return inner_.data(shape, std::move(values));
  }
  models::Var recompute(const std::function<models::Var(bool again)>& block) override {
    return inner_.recompute(block);
  }

 private:
  double largest_;
};

}  // namespace

train::Net within(const train::Net& net, double largest) {
  train::Net out = net;
  out.forward = [forward = net.forward, largest](models::Tape& tape, std::int64_t batch) {
    FiniteTape finite(tape, largest);
    forward(finite, batch);
  };
  return out;
}

train::Net raised(const train::Net& net, const Ops& ops) {
  if (ops.empty()) return net;
  train::Net out = net;
  out.forward = [forward = net.forward, ops](models::Tape& tape, std::int64_t batch) {
    RaisingTape raising(tape, ops);
    forward(raising, batch);
  };
  return out;
}

}  // namespace ampcheck::checks::diagnose
