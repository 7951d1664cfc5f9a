// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/sqrt.h"

#include "checks/define/op_forms.h"
#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef sqrt_op() {
  OpDef op = unary_op("sqrt", "y = sqrt(x)");
  op.signature.inputs[0].domain = Domain::positive;
  op.kernel = kernels::sqrt_kernel();
  op.forms = {unary_form("g / (2 y)", "x", "y", reference::sqrt_formula),
              unary_form("g/2 rsqrt(x)", "x", "y", reference::sqrt_by_rsqrt)};
  return op;
}

}  // namespace ampcheck::checks
