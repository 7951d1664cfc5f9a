// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y = log(x), the natural logarithm: a primitive of the language, with dx = g / x.
inline Expr log_formula(Expr x) { return log(x); }

}  // namespace ampcheck::reference
