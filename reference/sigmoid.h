// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y = 1 / (1 + exp(-x)): a primitive of the language, with dx = g y (1 - y).
inline Expr sigmoid_formula(Expr x) { return sigmoid(x); }

/// The form y = (1 + tanh(x/2)) / 2, with dx = g/4 (1 - tanh^2).
inline Expr sigmoid_by_tanh(Expr x) { return 0.5 * (1.0 + tanh(0.5 * x)); }

/// The same with dx = g y (1 - y).
inline Expr sigmoid_by_tanh_usual_adjoint(Expr x) {
  const Expr y = sigmoid_by_tanh(x);
  return own_adjoint(y, {x}, [y](Expr g) { return std::vector<Expr>{g * (y * (1.0 - y))}; });
}

}  // namespace ampcheck::reference
