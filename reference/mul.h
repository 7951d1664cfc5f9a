// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// z = x y, element by element.
inline Expr mul(Expr x, Expr y) { return x * y; }

}  // namespace ampcheck::reference
