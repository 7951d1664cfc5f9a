// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/layer_norm.h"

#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef layer_norm_op() {
  OpDef op;
  op.signature = {
      .name = "layer_norm",
      .summary = "y = (x - mean) / sqrt(variance + eps) * weight + bias along the last axis",
      .inputs = {{.name = "x", .dims = "N D"},
                 {.name = "weight", .dims = "D", .role = Role::weight, .type = TypeRule::parameter, .optional = true},
                 {.name = "bias", .dims = "D", .role = Role::bias, .type = TypeRule::parameter, .optional = true}},
      .outputs = {{.name = "y"}},
      .saved = {{"mean", TypeRule::fp32}, {"inv_std", TypeRule::fp32}},
      .attributes = {{"eps", 1e-5, {1e-12, 1e-3, 0.1}}},
      .dims = {{"N", {5, 64, 2}}, {"D", {7, 129, 1025}}},
      .precision = {.math = own_math()},
      .launch = {.row_dim = "N", .row_independent = {"y", "dx"}},
      .torch_op = "layer_norm",
  };
  op.kernel = kernels::layer_norm_kernel();
  using reference::Expr;
  const auto form = [](Expr (*formula)(Expr, Expr, Expr, Expr)) {
    return [formula](reference::FormulaCall& call) {
      call.output("y", formula(call["x"], call["weight"], call["bias"], call.attribute("eps")));
    };
  };
  op.forms = {{"two passes", form(reference::layer_norm)},
              {"inv_std (g - mean g - n mean(g n))", form(reference::layer_norm_usual_adjoint)},
              {"one pass", form(reference::layer_norm_usual_adjoint), true}};  // Welford 1962
  op.tried_first = 1;
  return op;
}

}  // namespace ampcheck::checks
