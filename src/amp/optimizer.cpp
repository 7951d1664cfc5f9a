// SPDX-License-Identifier: Apache-2.0
#include "src/amp/optimizer.h"

namespace ampcheck {

std::optional<double> Optimizer::step(const Closure& closure) {
  std::optional<double> loss;
  if (closure) loss = closure();
  if (update()) ++updates_;
  ++step_calls_;
  return loss;
}

std::int64_t Optimizer::state_bytes() const {
  std::int64_t total = 0;
  for (const OptimizerState& held : state_)
    for (const auto& [name, tensor] : held) total += tensor.count() * bytes(tensor.dtype());
  return total;
}

void Optimizer::zero_grad() {
  for (Parameter* parameter : parameters_) parameter->clear_grad();
}

}  // namespace ampcheck
