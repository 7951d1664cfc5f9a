// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/gelu_tanh.h"

#include "checks/define/op_forms.h"
#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef gelu_tanh_op() {
  OpDef op = unary_op("gelu_tanh", "y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))", "gelu");
  op.kernel = kernels::gelu_tanh_kernel();
  op.forms = {unary_form("tanh", "x", "y", reference::gelu_tanh),
              unary_form("tanh, usual adjoint", "x", "y", reference::gelu_tanh_usual_adjoint),
              unary_form("x sigmoid(2u)", "x", "y", reference::gelu_tanh_by_sigmoid),
              unary_form("tanh by expm1", "x", "y", reference::gelu_tanh_by_expm1)};
  return op;
}

}  // namespace ampcheck::checks
