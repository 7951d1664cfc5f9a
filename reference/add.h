// SPDX-License-Identifier: Apache-2.0
// The formula of `add`: the template of all the others. A formula is a function over Expr that reads like the paper's
// equation; running it records a graph, from which the reference value, the interval and the adjoint all follow.
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// z = x + y, element by element.
inline Expr add(Expr x, Expr y) { return x + y; }

}  // namespace ampcheck::reference
