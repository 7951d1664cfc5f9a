// SPDX-License-Identifier: Apache-2.0
#include "reference/div.h"

#include "checks/op_list.h"

namespace ampcheck::checks {

OpDef div_op() {
  OpDef op;
  op.signature = {
      .name = "div",
      .summary = "z = x / y",
      .inputs = {{.name = "x", .dims = "N D"}, {.name = "y", .dims = "N D"}},
      .outputs = {{.name = "z"}},
      .dims = {{"N", {5, 64, 2}}, {"D", {7, 129, 1025}}},
      .precision = {.math = own_math()},
      .launch = {.row_dim = "N", .row_independent = {"z", "dx", "dy"}},
      .cast = CastPolicy::promote,
  };
  op.kernel = kernels::div_kernel();
  using reference::Expr;
  const auto form = [](Expr (*formula)(Expr, Expr)) {
    return [formula](reference::FormulaCall& call) { call.output("z", formula(call["x"], call["y"])); };
  };
  op.forms = {{"-g z / y", form(reference::div)},
              {"-g (z / y)", form(reference::div_by_slope)},
              {"-g x / y^2", form(reference::div_by_square)}};
  return op;
}

}  // namespace ampcheck::checks
