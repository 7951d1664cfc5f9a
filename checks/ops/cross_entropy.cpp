// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/cross_entropy.h"

#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef cross_entropy_op() {
  OpDef op;
  op.signature = {
      .name = "cross_entropy",
      .summary = "loss = -sum(q log(softmax(x))) along the last axis, q one-hot with label smoothing",
      .inputs = {{.name = "x", .dims = "N C"},
                 {.name = "target", .dims = "N", .role = Role::target, .type = TypeRule::i64, .index_dim = "C"}},
      .outputs = {{.name = "loss", .type = TypeRule::fp32}},
      .attributes = {{"label_smoothing", 0.0, {0.1, 0.5}}, {"ignore_index", -100.0, {1.0}, true}},
      .dims = {{"N", {5, 64, 2}}, {"C", {7, 129, 1025}}},
      .precision = {.math = own_math()},
      .launch = {.row_dim = "N", .row_independent = {"loss", "dx"}},
      .torch_op = "cross_entropy_loss",
      .valid = [](const Dims& dims, const Attributes&) { return dims.at("C") > 0 || dims.at("N") == 0; },
  };
  op.kernel = kernels::cross_entropy_kernel();
  using reference::Expr;
  const auto form = [](Expr (*formula)(Expr, const reference::Targets&)) {
    return [formula](reference::FormulaCall& call) {
      call.output("loss", formula(call["x"], {.target = call.integers("target"),
                                              .ignore_index = static_cast<std::int64_t>(call.number("ignore_index")),
                                              .label_smoothing = call.number("label_smoothing")}));
    };
  };
  op.forms = {{"log l - q z", form(reference::cross_entropy)},
              {"g (e/l - q)", form(reference::cross_entropy_usual_adjoint)},
              {"lse - q x", form(reference::cross_entropy_by_lse)},
              {"nll(log_softmax)", form(reference::cross_entropy_of_log_softmax)},
              {"g (exp(y) - q)", form(reference::cross_entropy_fused_adjoint)},
              {"one pass", form(reference::cross_entropy_usual_adjoint), true}};
  return op;
}

}  // namespace ampcheck::checks
