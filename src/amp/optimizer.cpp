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

void Optimizer::zero_grad() {
  for (Parameter* parameter : parameters_) parameter->clear_grad();
}

}  // namespace ampcheck
