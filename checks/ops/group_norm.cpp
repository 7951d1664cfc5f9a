// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/group_norm.h"

#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef group_norm_op() {
  OpDef op;
  op.signature = {
      .name = "group_norm",
      .summary = "y = (x - mean) / sqrt(variance + eps) * weight + bias over the channels of a group and all places",
      .inputs = {{.name = "x", .dims = "N C L"},
                 {.name = "weight", .dims = "C", .role = Role::weight, .type = TypeRule::parameter, .optional = true},
                 {.name = "bias", .dims = "C", .role = Role::bias, .type = TypeRule::parameter, .optional = true}},
      .outputs = {{.name = "y"}},
      .saved = {{"mean", TypeRule::fp32}, {"inv_std", TypeRule::fp32}},
      .attributes = {{"groups", 2.0, {1.0, 4.0}, true}, {"eps", 1e-5, {1e-3, 0.1}}},
      .dims = {{"N", {3, 16, 2}}, {"C", {4, 8, 12}}, {"L", {5, 33, 129}}},
      .precision = {.math = own_math()},
      .launch = {.row_dim = "N", .row_independent = {"y", "dx"}},
      .torch_op = "group_norm",
      .valid =
          [](const Dims& dims, const Attributes& attributes) {
            const std::int64_t groups = attributes.integer("groups");
            return groups > 0 && dims.at("C") % groups == 0;
          },
  };
  op.kernel = kernels::group_norm_kernel();
  using reference::Expr;
  const auto form = [](Expr (*formula)(Expr, Expr, Expr, Expr, std::int64_t)) {
    return [formula](reference::FormulaCall& call) {
      call.output("y", formula(call["x"], call["weight"], call["bias"], call.attribute("eps"),
                               static_cast<std::int64_t>(call.number("groups"))));
    };
  };
  op.forms = {{"two passes", form(reference::group_norm)},
              {"inv_std (g - mean g - n mean(g n))", form(reference::group_norm_usual_adjoint)},
              {"one pass", form(reference::group_norm_usual_adjoint), true}};  // Welford 1962
  op.tried_first = 1;
  return op;
}

}  // namespace ampcheck::checks
