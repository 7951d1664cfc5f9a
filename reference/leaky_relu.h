// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y = x where x > 0, else slope x.   Maas et al. 2013, section 2. At 0 the slope of the left side, as torch has it.
inline Expr leaky_relu(Expr x, Expr slope) {
  return x * where(less_equal(x, constant(*x.graph, 0.0)), slope, constant(*x.graph, 1.0));
}

}  // namespace ampcheck::reference
