// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y = x^p: a primitive of the language, with dx = g (p x^(p-1)).
inline Expr pow_formula(Expr x, double, Expr exponent) { return pow(x, exponent); }

namespace detail {

/// x^p by products, quotients and roots, as kernels write the powers that have names; others by the function.
inline Expr named_power(Expr x, double p, Expr exponent) {
  if (p == 1) return x;
  if (p == 2) return square(x);
  if (p == 3) return square(x) * x;
  if (p == 0.5) return sqrt(x);
  if (p == -0.5) return rsqrt(x);
  if (p == -1) return 1.0 / x;
  if (p == -2) return 1.0 / square(x);
  return pow(x, exponent);
}

}  // namespace detail

/// The form whose powers are products, quotients and roots, in the adjoint too.
inline Expr pow_by_products(Expr x, double p, Expr exponent) {
  return own_adjoint(detail::named_power(x, p, exponent), {x}, [=](Expr g) {
    if (p == 0) return std::vector<Expr>{};
    return std::vector<Expr>{g * (exponent * detail::named_power(x, p - 1, exponent - 1.0))};
  });
}

}  // namespace ampcheck::reference
