// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y = tanh(x): a primitive of the language, with dx = g (1 - y^2).
inline Expr tanh_formula(Expr x) { return tanh(x); }

/// The form whose adjoint is dx = g (1 - y) (1 + y).
inline Expr tanh_product_adjoint(Expr x) {
  const Expr y = tanh(x);
  return own_adjoint(y, {x}, [y](Expr g) { return std::vector<Expr>{g * ((1.0 - y) * (1.0 + y))}; });
}

/// The form tanh|x| = -e / (2 + e), e = expm1(-2|x|), which cannot overflow; dx = g (1 - y^2).
inline Expr tanh_by_expm1(Expr x) {
  const Expr e = expm1(-2.0 * abs(x)), size = -e / (2.0 + e);
  const Expr y = where(less(x, constant(*x.graph, 0.0)), -size, size);
  return own_adjoint(y, {x}, [y](Expr g) { return std::vector<Expr>{g * (1.0 - square(y))}; });
}

}  // namespace ampcheck::reference
