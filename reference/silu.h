// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y = x sigmoid(x).   Elfwing et al. 2017, eq. 3
inline Expr silu(Expr x) { return x * sigmoid(x); }

/// The form whose adjoint is the field's usual one: dx = g s (1 + x (1 - s)), s = sigmoid(x).
inline Expr silu_usual_adjoint(Expr x) {
  const Expr s = sigmoid(x);
  return own_adjoint(x * s, {x}, [x, s](Expr g) { return std::vector<Expr>{g * (s * (1.0 + x * (1.0 - s)))}; });
}

/// The form whose adjoint uses the output: dx = g (y + s (1 - y)).
inline Expr silu_output_adjoint(Expr x) {
  const Expr s = sigmoid(x), y = x * s;
  return own_adjoint(y, {x}, [s, y](Expr g) { return std::vector<Expr>{g * (y + s * (1.0 - y))}; });
}

/// The form y = x / (1 + exp(-x)), with the usual adjoint (the derived one is 0 inf where exp overflows).
inline Expr silu_by_exp(Expr x) {
  return own_adjoint(x / (1.0 + exp(-x)), {x}, [x](Expr g) {
    const Expr s = sigmoid(x);
    return std::vector<Expr>{g * (s + x * s * (1.0 - s))};
  });
}

}  // namespace ampcheck::reference
