// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// z = x / y, element by element; dy = -g z / y.
inline Expr div(Expr x, Expr y) { return x / y; }

/// The form whose adjoint is dy = -g (z / y), which overflows earlier than -g z / y.
inline Expr div_by_slope(Expr x, Expr y) {
  const Expr z = x / y;
  return own_adjoint(z, {x, y}, [z, y](Expr g) { return std::vector<Expr>{g / y, -g * (z / y)}; });
}

/// The form whose adjoint is dy = -g x / y^2.
inline Expr div_by_square(Expr x, Expr y) {
  return own_adjoint(x / y, {x, y}, [x, y](Expr g) { return std::vector<Expr>{g / y, -(g * x / square(y))}; });
}

}  // namespace ampcheck::reference
