// SPDX-License-Identifier: Apache-2.0
#include "checks/diagnose/raising_tape.h"

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
