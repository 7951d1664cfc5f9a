// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/min.h"

#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef min_op() {
  OpDef op;
  op.signature = {
      .name = "min",
      .summary = "y = min(x) along one axis",
      .inputs = {{.name = "x", .dims = "N D"}},
      .outputs = {{.name = "y"}},
      .attributes = {{"axis", -1.0, {0.0}, true}},
      .dims = {{"N", {5, 64, 2}}, {"D", {7, 129, 1025}}},
      .precision = {.math = own_math()},
      .launch = {.row_dim = "N", .row_independent = {"y", "dx"}, .row_axis = "axis"},
      .torch_op = "min",
      .valid =
          [](const Dims& dims, const Attributes& attributes) {
            const std::int64_t axis = attributes.integer("axis");
            return (axis == -1 && dims.at("D") > 0) || (axis == 0 && dims.at("N") > 0);
          },
  };
  op.kernel = kernels::min_kernel();
  op.forms = {{"min", [](reference::FormulaCall& call) {
                 call.output("y", reference::min_formula(call["x"], static_cast<int>(call.number("axis"))));
               }}};
  return op;
}

}  // namespace ampcheck::checks
