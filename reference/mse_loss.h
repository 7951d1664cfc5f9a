// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// loss = mean((x - target)^2) over all elements: shape [1].
inline Expr mse_loss(Expr x, Expr target) {
  const Expr squares = square(x - target);
  return mean(reshape(squares, Shape{squares.shape().count()}), 0);
}

}  // namespace ampcheck::reference
