// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y = low where x < low, high where x > high, else x; at either bound dx = g (torch.clamp). NaN stays NaN.
inline Expr clamp(Expr x, Expr low, Expr high) { return where(less(x, low), low, where(less(high, x), high, x)); }

}  // namespace ampcheck::reference
