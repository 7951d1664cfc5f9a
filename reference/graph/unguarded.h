// SPDX-License-Identifier: Apache-2.0
// Adjoints as the arithmetic alone gives them: 0 times an infinite input is NaN, also behind a `where`. Kernels
// multiply a masked gradient by what is infinite, or leave it out; where inputs are infinite, both are right.
#pragma once

#include <vector>

#include "reference/graph/formula.h"

namespace ampcheck::reference {

/// Graph::vjp() without a guard's zeros.
std::vector<Expr> vjp_unguarded(Graph& graph, const std::vector<Expr>& outputs, const std::vector<Expr>& cotangents,
                                const std::vector<Expr>& inputs);

/// record() with such adjoints.
Recording record_unguarded(const OpSignature& signature, const Form& form, const Attributes& attributes,
                           const CaseInputs& inputs);

}  // namespace ampcheck::reference
