// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y = sqrt(x): a primitive of the language, with dx = g / (2 y).
inline Expr sqrt_formula(Expr x) { return sqrt(x); }

/// The form dx = (g/2) rsqrt(x).
inline Expr sqrt_by_rsqrt(Expr x) {
  return own_adjoint(sqrt(x), {x}, [x](Expr g) { return std::vector<Expr>{0.5 * g * rsqrt(x)}; });
}

}  // namespace ampcheck::reference
