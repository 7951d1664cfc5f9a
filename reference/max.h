// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y = the largest of x along `axis`, which stays with extent 1; the first of equals has the gradient (torch.max with a
/// dimension).
inline Expr max_formula(Expr x, int axis) { return max(x, axis); }

}  // namespace ampcheck::reference
