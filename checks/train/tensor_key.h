// SPDX-License-Identifier: Apache-2.0
// The name of a tensor of a training step.
#pragma once

#include <compare>
#include <string>

#include "checks/train/event.h"

namespace ampcheck::checks::train {

/// Which tensor: "linear_1.backward dweight", "linear_1.backward cast of dx".
struct TensorKey {
  Phase phase = Phase::forward;
  bool cast = false;
  Dtype dtype = Dtype::fp32;
  std::string op, layer, tensor;

  std::string str() const;
  auto operator<=>(const TensorKey&) const = default;
};

}  // namespace ampcheck::checks::train
