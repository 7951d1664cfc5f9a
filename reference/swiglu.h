// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"
#include "reference/silu.h"

namespace ampcheck::reference {

/// y = silu(gate) up, where `silu` is any form of silu.   Shazeer 2020, eq. 6
inline Expr swiglu(Expr gate, Expr up, Expr (*silu_form)(Expr) = silu) { return silu_form(gate) * up; }

}  // namespace ampcheck::reference
