// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/linear.h"

#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef linear_op() {
  OpDef op;
  op.signature = {
      .name = "linear",
      .summary = "y = x weight^T + bias",
      .inputs = {{.name = "x", .dims = "N K"},
                 {.name = "weight", .dims = "M K", .role = Role::weight},
                 {.name = "bias", .dims = "M", .role = Role::bias, .optional = true}},
      .outputs = {{.name = "y"}},
      .dims = {{"N", {5, 33, 2}}, {"K", {7, 65, 1025}}, {"M", {3, 129, 17}}},
      .precision = {.cublas = true, .math = own_math()},
      .launch = {.row_dim = "N", .row_independent = {"y", "dx"}},
      .torch_op = "linear",
  };
  op.kernel = kernels::linear_kernel();
  op.forms = {{"product", [](reference::FormulaCall& call) {
                 call.output("y", reference::linear(call["x"], call["weight"], call["bias"]));
               }}};
  return op;
}

}  // namespace ampcheck::checks
