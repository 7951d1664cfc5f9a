// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// The definition of `add`: the template of all the others. To write an op of your own, copy the three files
// kernels/add.cu, reference/add.h and checks/ops/add.cpp, and put its word into AMPCHECK_OPS in CMakeLists.txt. Here
// everything is written out; mul, div and the functions of one tensor take the same definition from
// checks/define/op_forms.h.
#include "reference/add.h"

#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef add_op() {
  OpDef op;
  op.signature = {
      .name = "add",
      .summary = "z = x + y",
      // Each tensor: its name, its dimensions as symbols, what it means to the data generator (default: plain data).
      .inputs = {{.name = "x", .dims = "N D"}, {.name = "y", .dims = "N D"}},
      .outputs = {{.name = "z"}},
      // Each symbol with its extents in the three standard shapes.
      .dims = {{"N", {5, 64, 2}}, {"D", {7, 129, 1025}}},
      // What the kernel promises: fp32 compute (default), functions within the ulp bounds of kernels/math.h.
      .precision = {.math = own_math()},
      // Row i of the result depends on row i of the inputs only.
      .launch = {.row_dim = "N", .row_independent = {"z", "dx", "dy"}},
      // Autocast casts its inputs as torch's lists say of this operator; an op that torch does not have says .cast
      // instead.
      .torch_op = "add",
  };
  op.kernel = kernels::add_kernel();
  op.forms = {{"sum", [](reference::FormulaCall& call) { call.output("z", reference::add(call["x"], call["y"])); }}};
  return op;
}

}  // namespace ampcheck::checks
