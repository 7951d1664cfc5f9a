// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y = limit - log(1 + exp(limit - x)), with dx = g sigmoid(limit - x).
inline Expr soft_clip(Expr x, Expr limit) {
  const Expr z = limit - x;
  const Expr y = limit - (maximum(z, constant(*x.graph, 0.0)) + log1p(exp(-abs(z))));
  return own_adjoint(y, {x}, [z](Expr g) { return std::vector<Expr>{g * sigmoid(z)}; });
}

}  // namespace ampcheck::reference
