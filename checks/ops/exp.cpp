// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/exp.h"

#include "checks/define/op_forms.h"
#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef exp_op() {
  OpDef op = unary_op("exp", "y = exp(x)");
  op.kernel = kernels::exp_kernel();
  op.forms = {unary_form("exp", "x", "y", reference::exp_formula)};
  return op;
}

}  // namespace ampcheck::checks
