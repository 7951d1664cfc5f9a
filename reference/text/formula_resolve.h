// SPDX-License-Identifier: Apache-2.0
// Only reference/formula_*.cpp include this.
#pragma once

#include "reference/text/formula_parse.h"
#include "src/op_signature.h"

namespace ampcheck::reference {

/// Throws FormulaError unless every name and function of the formula is known, every output and saved tensor is
/// defined, and nothing twice.
void resolve_formula(const ParsedFormula& formula, const OpSignature& signature);

}  // namespace ampcheck::reference
