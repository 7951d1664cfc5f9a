// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/gelu.h"

#include "checks/define/op_forms.h"
#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef gelu_op() {
  OpDef op = unary_op("gelu", "y = x/2 (1 + erf(x / sqrt(2)))");
  op.kernel = kernels::gelu_kernel();
  op.forms = {unary_form("erf", "x", "y", reference::gelu),
              unary_form("erf, g (cdf + x pdf)", "x", "y", reference::gelu_usual_adjoint),
              unary_form("erfc", "x", "y", reference::gelu_by_erfc),
              unary_form("erfc, g (cdf + x pdf)", "x", "y", reference::gelu_usual_adjoint_by_erfc)};
  op.tried_first = 1;
  return op;
}

}  // namespace ampcheck::checks
