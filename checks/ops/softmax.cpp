// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/softmax.h"

#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef softmax_op() {
  OpDef op;
  op.signature = {
      .name = "softmax",
      .summary = "y = exp(x) / sum(exp(x)) along the last axis",
      .inputs = {{.name = "x", .dims = "N D"}},
      .outputs = {{.name = "y"}},
      .dims = {{"N", {5, 64, 2}}, {"D", {7, 129, 1025}}},
      .precision = {.math = own_math()},
      .launch = {.row_dim = "N", .row_independent = {"y", "dx"}},
      .torch_op = "softmax",
  };
  op.kernel = kernels::softmax_kernel();
  const auto form = [](reference::Expr (*formula)(reference::Expr)) {
    return [formula](reference::FormulaCall& call) { call.output("y", formula(call["x"])); };
  };
  op.forms = {{"e/l", form(reference::softmax)},
              {"y (g - sum g y)", form(reference::softmax_usual_adjoint)},
              {"exp(x - lse)", form(reference::softmax_by_lse)},
              {"one pass", form(reference::softmax_usual_adjoint), true}};
  op.tried_first = 1;
  return op;
}

}  // namespace ampcheck::checks
