// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/tanh.h"

#include "checks/define/op_forms.h"
#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef tanh_op() {
  OpDef op = unary_op("tanh", "y = tanh(x)");
  op.kernel = kernels::tanh_kernel();
  op.forms = {unary_form("g (1 - y^2)", "x", "y", reference::tanh_formula),
              unary_form("g (1 - y) (1 + y)", "x", "y", reference::tanh_product_adjoint),
              unary_form("by expm1", "x", "y", reference::tanh_by_expm1)};
  return op;
}

}  // namespace ampcheck::checks
