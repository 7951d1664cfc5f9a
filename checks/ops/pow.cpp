// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/pow.h"

#include "checks/define/op_forms.h"
#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef pow_op() {
  OpDef op = unary_op("pow", "y = x^exponent");
  op.signature.attributes = {{"exponent", 2, {3, -1, 0.5}}};
  op.kernel = kernels::pow_kernel();
  using reference::Expr;
  const auto form = [](Expr (*formula)(Expr, double, Expr)) {
    return [formula](reference::FormulaCall& call) {
      call.output("y", formula(call["x"], call.number("exponent"), call.attribute("exponent")));
    };
  };
  op.forms = {{"x^p", form(reference::pow_formula)}, {"products and roots", form(reference::pow_by_products)}};
  return op;
}

}  // namespace ampcheck::checks
