// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/swiglu.h"

#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef swiglu_op() {
  OpDef op;
  op.signature = {
      .name = "swiglu",
      .summary = "y = gate sigmoid(gate) up",
      .inputs = {{.name = "gate", .dims = "N D"}, {.name = "up", .dims = "N D"}},
      .outputs = {{.name = "y"}},
      .dims = {{"N", {5, 64, 2}}, {"D", {7, 129, 1025}}},
      .precision = {.math = own_math()},
      .launch = {.row_dim = "N", .row_independent = {"y", "dgate", "dup"}},
      .cast = CastPolicy::promote,
  };
  op.kernel = kernels::swiglu_kernel();
  using reference::Expr;
  const auto form = [](Expr (*silu)(Expr)) {
    return
        [silu](reference::FormulaCall& call) { call.output("y", reference::swiglu(call["gate"], call["up"], silu)); };
  };
  op.forms = {{"x s", form(reference::silu)},
              {"g s (1 + x (1 - s))", form(reference::silu_usual_adjoint)},
              {"g (y + s (1 - y))", form(reference::silu_output_adjoint)},
              {"x / (1 + exp(-x))", form(reference::silu_by_exp)}};
  return op;
}

}  // namespace ampcheck::checks
