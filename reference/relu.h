// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y = max(x, 0), with slope 0 at 0; NaN stays NaN.
inline Expr relu(Expr x) {
  const Expr zero = constant(*x.graph, 0.0);
  return where(less_equal(x, zero), zero, x);
}

}  // namespace ampcheck::reference
