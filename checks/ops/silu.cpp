// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/silu.h"

#include "checks/define/op_forms.h"
#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef silu_op() {
  OpDef op = unary_op("silu", "y = x sigmoid(x)");
  op.kernel = kernels::silu_kernel();
  op.forms = {unary_form("x s", "x", "y", reference::silu),
              unary_form("g s (1 + x (1 - s))", "x", "y", reference::silu_usual_adjoint),
              unary_form("g (y + s (1 - y))", "x", "y", reference::silu_output_adjoint),
              unary_form("x / (1 + exp(-x))", "x", "y", reference::silu_by_exp)};
  return op;
}

}  // namespace ampcheck::checks
