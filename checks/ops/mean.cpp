// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/mean.h"

#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef mean_op() {
  OpDef op;
  op.signature = {
      .name = "mean",
      .summary = "y = sum(x) / n along one axis",
      .inputs = {{.name = "x", .dims = "N D"}},
      .outputs = {{.name = "y"}},
      .attributes = {{"axis", -1.0, {0.0}, true}},
      .dims = {{"N", {5, 64, 2}}, {"D", {7, 129, 1025}}},
      .precision = {.math = own_math()},
      .launch = {.row_dim = "N", .row_independent = {"y", "dx"}, .row_axis = "axis"},
      .torch_op = "mean",
      .valid =
          [](const Dims&, const Attributes& attributes) {
            return attributes.integer("axis") == -1 || attributes.integer("axis") == 0;
          },
  };
  op.kernel = kernels::mean_kernel();
  op.forms = {{"mean", [](reference::FormulaCall& call) {
                 call.output("y", reference::mean_formula(call["x"], static_cast<int>(call.number("axis"))));
               }}};
  return op;
}

}  // namespace ampcheck::checks
