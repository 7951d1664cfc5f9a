// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y = sum of x along `axis`, which stays with extent 1: a primitive of the language, with dx = g.
inline Expr sum_formula(Expr x, int axis) { return sum(x, axis); }

}  // namespace ampcheck::reference
