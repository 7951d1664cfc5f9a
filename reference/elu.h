// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

namespace detail {

/// y = x where x > 0, else alpha expm1(x), and where the second branch holds.
struct Elu {
  Expr value, left;
};
inline Elu elu(Expr x, Expr alpha) {
  const Expr left = less_equal(x, constant(*x.graph, 0.0));
  return {where(left, alpha * expm1(x), x), left};
}

}  // namespace detail

/// y = x where x > 0, else alpha (exp(x) - 1).   Clevert et al. 2015, eq. 15. At 0 the slope of the left side.
/// The derivative of the left branch is written as g (alpha exp(x)): the derived one, alpha (expm1(x) + 1), cancels.
inline Expr elu(Expr x, Expr alpha) {
  const auto [value, left] = detail::elu(x, alpha);
  return own_adjoint(
      value, {x}, [x, alpha, left = left](Expr g) { return std::vector<Expr>{where(left, g * (alpha * exp(x)), g)}; });
}

/// The form whose adjoint uses the output: dx = g (y + alpha) on the left.
inline Expr elu_output_adjoint(Expr x, Expr alpha) {
  const auto [value, left] = detail::elu(x, alpha);
  return own_adjoint(value, {x}, [value = value, alpha, left = left](Expr g) {
    return std::vector<Expr>{where(left, g * (value + alpha), g)};
  });
}

}  // namespace ampcheck::reference
