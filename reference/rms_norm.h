// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y = x / sqrt(mean(x^2) + eps) * weight, along the last axis; `weight` may be undefined.   Zhang & Sennrich 2019, eq.
/// 4
inline Expr rms_norm(Expr x, Expr weight, Expr eps) {
  const Expr inv_rms = stored("inv_rms", rsqrt(mean(square(x), -1) + eps));
  const Expr n = x * inv_rms;
  return weight.defined() ? n * weight : n;
}

/// The form whose adjoint is the field's usual one: with n = x inv_rms, dx = inv_rms (g - n mean(g n)).
inline Expr rms_norm_usual_adjoint(Expr x, Expr weight, Expr eps) {
  const Expr inv_rms = stored("inv_rms", rsqrt(mean(square(x), -1) + eps)), n = x * inv_rms;
  const Expr value =
      own_adjoint(n, {x}, [n, inv_rms](Expr g) { return std::vector<Expr>{inv_rms * (g - n * mean(g * n, -1))}; });
  return weight.defined() ? value * weight : value;
}

/// The form dx = inv_rms g - x inv_rms^3 mean(g x).
inline Expr rms_norm_cubic_adjoint(Expr x, Expr weight, Expr eps) {
  const Expr inv_rms = stored("inv_rms", rsqrt(mean(square(x), -1) + eps));
  const Expr value = own_adjoint(x * inv_rms, {x}, [x, inv_rms](Expr g) {
    return std::vector<Expr>{inv_rms * g - x * (inv_rms * inv_rms * inv_rms * mean(g * x, -1))};
  });
  return weight.defined() ? value * weight : value;
}

}  // namespace ampcheck::reference
