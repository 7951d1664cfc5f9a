// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"
#include "reference/tanh.h"

namespace ampcheck::reference {

namespace detail {

inline constexpr double kGeluScale = 0.79788456080286535588;  // sqrt(2/pi)
inline constexpr double kGeluCubic = 0.044715;

/// u = sqrt(2/pi) (x + 0.044715 x^3).
inline Expr gelu_argument(Expr x) { return kGeluScale * (x + kGeluCubic * (x * x * x)); }

/// y with dx = g ((1 + t)/2 + x/2 (1 - t^2) u'), t = tanh(u).
inline Expr gelu_tanh_adjoint(Expr y, Expr x, Expr t) {
  return own_adjoint(y, {x}, [x, t](Expr g) {
    const Expr slope = kGeluScale * (1.0 + 3.0 * constant(*x.graph, kGeluCubic) * square(x));
    return std::vector<Expr>{g * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - square(t)) * slope)};
  });
}

}  // namespace detail

/// y = x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3).   Hendrycks & Gimpel 2016, section 2
inline Expr gelu_tanh(Expr x) { return 0.5 * x * (1.0 + tanh(detail::gelu_argument(x))); }

/// The form whose adjoint is the field's usual one.
inline Expr gelu_tanh_usual_adjoint(Expr x) {
  const Expr t = tanh(detail::gelu_argument(x));
  return detail::gelu_tanh_adjoint(0.5 * x * (1.0 + t), x, t);
}

/// The form with tanh by expm1 and the usual adjoint.
inline Expr gelu_tanh_by_expm1(Expr x) {
  const Expr t = tanh_by_expm1(detail::gelu_argument(x));
  return detail::gelu_tanh_adjoint(0.5 * x * (1.0 + t), x, t);
}

/// The form y = x sigmoid(2u), which keeps its digits where tanh is near -1.
inline Expr gelu_tanh_by_sigmoid(Expr x) { return x * sigmoid(2.0 * detail::gelu_argument(x)); }

}  // namespace ampcheck::reference
