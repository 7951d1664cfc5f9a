// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/tensor.h"

namespace ampcheck {

/// A trainable tensor and its gradient. Value and gradient are dense; fp32, fp64, fp16 or bf16.
struct Parameter {
  std::string name;
  Tensor value;
  Tensor grad;  ///< not defined: no gradient (torch's None)
  /// A sparse gradient (torch's COO with one sparse axis): grad is [n, ...] and belongs to these rows of the value.
  std::optional<std::vector<std::int64_t>> sparse_rows;
  int device = 0;  ///< index of the device that holds the gradient: found flags are kept per device

  void clear_grad() {
    grad = Tensor();
    sparse_rows.reset();
  }
};

/// Sums a sparse gradient's values of one row, in the order of their appearance, rounding each sum to the gradient's
/// dtype; rows ascend afterwards. Does nothing to a dense gradient.
void coalesce(Parameter& parameter);

}  // namespace ampcheck
