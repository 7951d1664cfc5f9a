// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"
#include "reference/softmax.h"

namespace ampcheck::reference {

/// y = x - m - log(sum(exp(x - m))) along the last axis, m = max(x); the shift m cancels.
inline Expr log_softmax(Expr x) {
  const Expr shifted = x - stop_gradient(max(x, -1));
  return shifted - log(sum(exp(shifted), -1));
}

/// The form whose adjoint is the field's usual one: dx = g - exp(y) sum(g).
inline Expr log_softmax_usual_adjoint(Expr x) {
  const Expr y = log_softmax(x);
  return own_adjoint(y, {x}, [y](Expr g) { return std::vector<Expr>{g - exp(y) * sum(g, -1)}; });
}

/// The form y = x - lse, with the adjoint g - exp(x - lse) sum(g).
inline Expr log_softmax_by_lse(Expr x) { return x - log_sum_exp(x); }

}  // namespace ampcheck::reference
