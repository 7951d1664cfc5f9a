// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y = x weight^T + bias: x [N, K], weight [M, K], bias [M] or undefined.
inline Expr linear(Expr x, Expr weight, Expr bias) {
  const Expr product = matmul(x, weight, false, true);
  return bias.defined() ? product + bias : product;
}

}  // namespace ampcheck::reference
