// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y = log(1 + exp(beta x)) / beta, with dx = g sigmoid(beta x).   Dugas et al. 2001, eq. 4 (beta = 1). Written as
/// (max(z, 0) + log1p(exp(-|z|))) / beta, z = beta x, which is the same number and never leaves the range of a type.
inline Expr softplus(Expr x, Expr beta) {
  const Expr z = beta * x;
  const Expr y = (maximum(z, constant(*x.graph, 0.0)) + log1p(exp(-abs(z)))) / beta;
  return own_adjoint(y, {x}, [z](Expr g) { return std::vector<Expr>{g * sigmoid(z)}; });
}

/// The form of two branches, z + log1p(exp(-z)) where z > 0, else log1p(exp(z)), with the derivative of each branch:
/// g / (1 + exp(-z)), g exp(z) / (1 + exp(z)).
inline Expr softplus_by_branches(Expr x, Expr beta) {
  const Expr z = beta * x, positive = less(constant(*x.graph, 0.0), z);
  const Expr falling = exp(-z), rising = exp(z);
  const Expr y = where(positive, z + log1p(falling), log1p(rising)) / beta;
  return own_adjoint(y, {x}, [=](Expr g) {
    return std::vector<Expr>{where(positive, g / (1.0 + falling), g * rising / (1.0 + rising))};
  });
}

}  // namespace ampcheck::reference
