// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y = x/2 (1 + erf(x / sqrt(2))).   Hendrycks & Gimpel 2016, eq. 1-2
inline Expr gelu(Expr x) { return 0.5 * x * (1.0 + erf(x * named_constant(*x.graph, "1/sqrt(2)"))); }

/// The form y = x/2 erfc(-x / sqrt(2)), which keeps its digits where erf is near -1.
inline Expr gelu_by_erfc(Expr x) { return 0.5 * x * erfc(-(x * named_constant(*x.graph, "1/sqrt(2)"))); }

namespace detail {

/// exp(-x^2/2) / sqrt(2 pi); 2/sqrt(pi) * sqrt(1/2) / 2 = 1/sqrt(2 pi).
inline Expr normal_density(Expr x) {
  const Expr scale = named_constant(*x.graph, "1/sqrt(2 pi)");
  return exp(-0.5 * square(x)) * scale;
}

/// y with dx = g (cdf + x pdf) of the normal distribution.
inline Expr gelu_usual_adjoint(Expr y, Expr x, Expr cdf) {
  return own_adjoint(y, {x}, [x, cdf](Expr g) { return std::vector<Expr>{g * (cdf + x * normal_density(x))}; });
}

}  // namespace detail

/// The form whose adjoint is the field's usual one, dx = g (cdf + x pdf), cdf = (1 + erf(x / sqrt(2))) / 2.
inline Expr gelu_usual_adjoint(Expr x) {
  const Expr cdf = 0.5 * (1.0 + erf(x * named_constant(*x.graph, "1/sqrt(2)")));
  return detail::gelu_usual_adjoint(x * cdf, x, cdf);
}

/// The same with cdf = erfc(-x / sqrt(2)) / 2.
inline Expr gelu_usual_adjoint_by_erfc(Expr x) {
  const Expr cdf = 0.5 * erfc(-(x * named_constant(*x.graph, "1/sqrt(2)")));
  return detail::gelu_usual_adjoint(x * cdf, x, cdf);
}

}  // namespace ampcheck::reference
