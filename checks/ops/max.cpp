// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/max.h"

#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef max_op() {
  OpDef op;
  op.signature = {
      .name = "max",
      .summary = "y = max(x) along one axis",
      .inputs = {{.name = "x", .dims = "N D"}},
      .outputs = {{.name = "y"}},
      .attributes = {{"axis", -1.0, {0.0}, true}},
      .dims = {{"N", {5, 64, 2}}, {"D", {7, 129, 1025}}},
      .precision = {.math = own_math()},
      .launch = {.row_dim = "N", .row_independent = {"y", "dx"}, .row_axis = "axis"},
      .torch_op = "max",
      .valid =
          [](const Dims& dims, const Attributes& attributes) {
            const std::int64_t axis = attributes.integer("axis");
            return (axis == -1 && dims.at("D") > 0) || (axis == 0 && dims.at("N") > 0);
          },
  };
  op.kernel = kernels::max_kernel();
  op.forms = {{"max", [](reference::FormulaCall& call) {
                 call.output("y", reference::max_formula(call["x"], static_cast<int>(call.number("axis"))));
               }}};
  return op;
}

}  // namespace ampcheck::checks
