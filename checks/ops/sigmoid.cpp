// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/sigmoid.h"

#include "checks/define/op_forms.h"
#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef sigmoid_op() {
  OpDef op = unary_op("sigmoid", "y = 1 / (1 + exp(-x))");
  op.kernel = kernels::sigmoid_kernel();
  op.forms = {unary_form("direct", "x", "y", reference::sigmoid_formula),
              unary_form("by tanh", "x", "y", reference::sigmoid_by_tanh),
              unary_form("by tanh, g y (1 - y)", "x", "y", reference::sigmoid_by_tanh_usual_adjoint)};
  return op;
}

}  // namespace ampcheck::checks
