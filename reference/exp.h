// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y = exp(x): a primitive of the language, with dx = g y.
inline Expr exp_formula(Expr x) { return exp(x); }

}  // namespace ampcheck::reference
