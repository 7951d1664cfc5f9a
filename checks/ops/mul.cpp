// SPDX-License-Identifier: Apache-2.0
#include "reference/mul.h"

#include "checks/op_list.h"

namespace ampcheck::checks {

OpDef mul_op() {
  OpDef op;
  op.signature = {
      .name = "mul",
      .summary = "z = x y",
      .inputs = {{.name = "x", .dims = "N D"}, {.name = "y", .dims = "N D"}},
      .outputs = {{.name = "z"}},
      .dims = {{"N", {5, 64, 2}}, {"D", {7, 129, 1025}}},
      .precision = {.math = own_math()},
      .launch = {.row_dim = "N", .row_independent = {"z", "dx", "dy"}},
      .cast = CastPolicy::promote,
  };
  op.kernel = kernels::mul_kernel();
  op.forms = {{"product", [](reference::FormulaCall& call) { call.output("z", reference::mul(call["x"], call["y"])); }}};
  return op;
}

}  // namespace ampcheck::checks
