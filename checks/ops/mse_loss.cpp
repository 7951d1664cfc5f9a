// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/mse_loss.h"

#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef mse_loss_op() {
  OpDef op;
  op.signature = {
      .name = "mse_loss",
      .summary = "loss = mean((x - target)^2) over all elements",
      .inputs = {{.name = "x", .dims = "N D"}, {.name = "target", .dims = "N D"}},
      .outputs = {{.name = "loss"}},
      .dims = {{"N", {5, 64, 2}}, {"D", {7, 129, 1025}}},
      .precision = {.math = own_math()},
      .launch = {.row_dim = "N", .row_independent = {"dx", "dtarget"}},
      .torch_op = "mse_loss",
  };
  op.kernel = kernels::mse_loss_kernel();
  op.forms = {{"mean of squares", [](reference::FormulaCall& call) {
                 call.output("loss", reference::mse_loss(call["x"], call["target"]));
               }}};
  return op;
}

}  // namespace ampcheck::checks
