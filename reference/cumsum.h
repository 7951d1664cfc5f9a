// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y[i] = x[0] + ... + x[i] along the last axis: a primitive of the language, with dx[i] = g[i] + g[i+1] + ...
inline Expr cumsum_formula(Expr x) { return cumsum(x, -1); }

}  // namespace ampcheck::reference
