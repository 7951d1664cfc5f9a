// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/softplus.h"

#include "checks/define/op_forms.h"
#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef softplus_op() {
  OpDef op = unary_op("softplus", "y = log(1 + exp(beta x)) / beta");
  op.signature.attributes = {{"beta", 1.0, {0.5, 3.0}}};
  op.signature.valid = [](const Dims&, const Attributes& attributes) { return attributes.number("beta") > 0; };
  op.kernel = kernels::softplus_kernel();
  using reference::Expr;
  const auto form = [](Expr (*formula)(Expr, Expr)) {
    return [formula](reference::FormulaCall& call) { call.output("y", formula(call["x"], call.attribute("beta"))); };
  };
  op.forms = {{"max(z, 0) + log1p(exp(-|z|))", form(reference::softplus)},
              {"branches at z = 0", form(reference::softplus_by_branches)}};
  return op;
}

}  // namespace ampcheck::checks
