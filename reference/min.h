// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// y = the smallest of x along `axis`, which stays with extent 1; the first of equals has the gradient (torch.min with
/// a dimension).
inline Expr min_formula(Expr x, int axis) { return -max(-x, axis); }

}  // namespace ampcheck::reference
