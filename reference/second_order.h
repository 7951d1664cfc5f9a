// SPDX-License-Identifier: Apache-2.0
// Backwards as functions of their own, with the gradients that kernels write for them: checks/define/second_order.h.
#pragma once

#include <vector>

#include "reference/graph/formula.h"
#include "reference/layer_norm.h"

namespace ampcheck::reference {

/// grad_x = P(dy weight), grad_weight = sum dy n, grad_bias = sum dy of layer_norm (`centred`) or rms_norm, P v = r (v
/// - mean(v) - n mean(v n)), without mean(v) for rms_norm. P is symmetric and the derivative of n; that of P h by x at
/// a fixed h is, of a cotangent c, -r (n mean(c P h) + mean(h n) P c + mean(c n) P h): by dr = -r n mean(n dx).
inline void norm_backward(FormulaCall& call, bool centred) {
  const Expr x = call["x"], weight = call["weight"], dy = call["dy"], eps = call.attribute("eps");
  Expr r, n;
  if (centred) {
    const detail::Normalized normal = detail::normalize(x, eps);
    n = normal.value;
    r = normal.inv_std;
  } else {
    r = stored("inv_rms", rsqrt(mean(square(x), -1) + eps));
    n = x * r;
  }
  const auto project = [=](Expr v) { return r * ((centred ? v - mean(v, -1) : v) - n * mean(v * n, -1)); };
  const Expr h = dy * weight, dx = project(h);
  call.output("grad_x", own_adjoint(dx, {x, h}, [=](Expr c) {
                const Expr q = project(c);
                return std::vector<Expr>{-(r * (n * mean(c * dx, -1) + mean(h * n, -1) * q + mean(c * n, -1) * dx)), q};
              }));
  const Expr normal = own_adjoint(n, {x}, [=](Expr c) { return std::vector<Expr>{project(c)}; });
  call.output("grad_weight", sum_to(dy * normal, weight.shape()));
  if (centred) call.output("grad_bias", sum_to(dy, weight.shape()));
}

/// grad_x = dy s, with the slope s and its derivative as given.
inline void activation_backward(FormulaCall& call, Expr slope, Expr derivative) {
  const Expr x = call["x"], dy = call["dy"];
  const Expr s = own_adjoint(slope, {x}, [=](Expr c) { return std::vector<Expr>{c * derivative}; });
  call.output("grad_x", dy * s);
}

}  // namespace ampcheck::reference
