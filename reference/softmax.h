// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y = exp(x - m) / sum(exp(x - m)) along the last axis, m = max(x).   Bridle 1990; the shift m cancels.
inline Expr softmax(Expr x) {
  const Expr e = exp(x - stop_gradient(max(x, -1)));
  return e / sum(e, -1);
}

/// lse = log(sum(exp(x))) along the last axis, shifted by the maximum; d lse / dx = softmax(x) as exp(x - lse).
inline Expr log_sum_exp(Expr x) {
  const Expr m = stop_gradient(max(x, -1));
  const Expr lse = m + log(sum(exp(x - m), -1));
  return own_adjoint(lse, {x, lse}, [x, lse](Expr g) { return std::vector<Expr>{g * exp(x - lse)}; });
}

/// The form y = exp(x - lse), with the adjoint y (g - sum(g y)).
inline Expr softmax_by_lse(Expr x) { return exp(x - log_sum_exp(x)); }

/// The form whose adjoint is the field's usual one: dx = y (g - sum(g y)).
inline Expr softmax_usual_adjoint(Expr x) {
  const Expr y = softmax(x);
  return own_adjoint(y, {x}, [y](Expr g) { return std::vector<Expr>{y * (g - sum(g * y, -1))}; });
}

}  // namespace ampcheck::reference
