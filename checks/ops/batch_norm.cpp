// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/batch_norm.h"

#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef batch_norm_op() {
  OpDef op;
  op.signature = {
      .name = "batch_norm",
      .summary = "y = (x - mean) / sqrt(variance + eps) * weight + bias over a channel, and new running statistics",
      .inputs = {{.name = "x", .dims = "N C L"},
                 {.name = "weight", .dims = "C", .role = Role::weight, .type = TypeRule::parameter, .optional = true},
                 {.name = "bias", .dims = "C", .role = Role::bias, .type = TypeRule::parameter, .optional = true},
                 {.name = "running_mean", .dims = "C", .type = TypeRule::fp32, .differentiable = false},
                 {.name = "running_var",
                  .dims = "C",
                  .type = TypeRule::fp32,
                  .differentiable = false,
                  .domain = Domain::positive}},
      .outputs = {{.name = "y"},
                  {.name = "new_running_mean", .type = TypeRule::fp32},
                  {.name = "new_running_var", .type = TypeRule::fp32}},
      .saved = {{"mean", TypeRule::fp32}, {"inv_std", TypeRule::fp32}},
      .attributes = {{"momentum", 0.1, {0.25, 1.0}}, {"eps", 1e-5, {1e-3, 0.1}}},
      .dims = {{"N", {5, 16, 2}}, {"C", {3, 7, 12}}, {"L", {4, 33, 129}}},
      .precision = {.math = own_math()},
      .torch_op = "batch_norm",
      // torch refuses one value a channel in training mode: its variance over n - 1 is none.
      .valid = [](const Dims& dims, const Attributes&) { return dims.at("N") * dims.at("L") > 1; },
  };
  op.kernel = kernels::batch_norm_kernel();
  const auto form = [](bool usual_adjoint) {
    return [usual_adjoint](reference::FormulaCall& call) {
      const reference::BatchNorm out =
          reference::batch_norm(call["x"], call["weight"], call["bias"], call["running_mean"], call["running_var"],
                                call.attribute("eps"), call.attribute("momentum"), usual_adjoint);
      call.output("y", out.y);
      call.output("new_running_mean", out.running_mean);
      call.output("new_running_var", out.running_var);
    };
  };
  op.forms = {{"two passes", form(false)},
              {"inv_std (g - mean g - n mean(g n))", form(true)},
              {"one pass", form(true), true}};  // Welford 1962
  op.tried_first = 1;
  return op;
}

}  // namespace ampcheck::checks
