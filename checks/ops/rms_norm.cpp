// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/rms_norm.h"

#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef rms_norm_op() {
  OpDef op;
  op.signature = {
      .name = "rms_norm",
      .summary = "y = x / sqrt(mean(x^2) + eps) * weight along the last axis",
      .inputs = {{.name = "x", .dims = "N D"},
                 {.name = "weight", .dims = "D", .role = Role::weight, .type = TypeRule::parameter, .optional = true}},
      .outputs = {{.name = "y"}},
      .saved = {{"inv_rms", TypeRule::fp32}},
      .attributes = {{"eps", 1e-6, {1e-12, 1e-3, 0.1}}},
      .dims = {{"N", {5, 64, 2}}, {"D", {7, 129, 1025}}},
      .precision = {.math = own_math()},
      .launch = {.row_dim = "N", .row_independent = {"y", "dx"}},
      .torch_op = "rms_norm",
  };
  op.kernel = kernels::rms_norm_kernel();
  using reference::Expr;
  const auto form = [](Expr (*formula)(Expr, Expr, Expr)) {
    return [formula](reference::FormulaCall& call) {
      call.output("y", formula(call["x"], call["weight"], call.attribute("eps")));
    };
  };
  op.forms = {{"derived", form(reference::rms_norm)},
              {"inv_rms (g - n mean(g n))", form(reference::rms_norm_usual_adjoint)},
              {"inv_rms g - x inv_rms^3 mean(g x)", form(reference::rms_norm_cubic_adjoint)}};
  op.tried_first = 1;
  return op;
}

}  // namespace ampcheck::checks
