// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/log.h"

#include "checks/define/op_forms.h"
#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef log_op() {
  OpDef op = unary_op("log", "y = log(x), the natural logarithm");
  op.signature.inputs[0].domain = Domain::positive;
  op.kernel = kernels::log_kernel();
  op.forms = {unary_form("log", "x", "y", reference::log_formula)};
  return op;
}

}  // namespace ampcheck::checks
