// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/elu.h"

#include "checks/define/op_forms.h"
#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef elu_op() {
  OpDef op = unary_op("elu", "y = x where x > 0, else alpha (exp(x) - 1)");
  op.signature.attributes = {{"alpha", 1.0, {0.5, 1.7}}};
  op.signature.kinks = {{"x", 0.0, "slope alpha"}};  // smooth where alpha is 1
  op.kernel = kernels::elu_kernel();
  using reference::Expr;
  const auto form = [](Expr (*formula)(Expr, Expr)) {
    return [formula](reference::FormulaCall& call) { call.output("y", formula(call["x"], call.attribute("alpha"))); };
  };
  op.forms = {{"g alpha exp(x)", form(reference::elu)}, {"g (y + alpha)", form(reference::elu_output_adjoint)}};
  return op;
}

}  // namespace ampcheck::checks
