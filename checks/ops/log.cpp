// SPDX-License-Identifier: Apache-2.0
#include "reference/log.h"

#include "checks/op_forms.h"
#include "checks/op_list.h"

namespace ampcheck::checks {

OpDef log_op() {
  OpDef op = unary_op("log", "y = log(x), the natural logarithm");
  op.signature.inputs[0].domain = Domain::positive;
  op.kernel = kernels::log_kernel();
  op.forms = {unary_form("log", "x", "y", reference::log_formula)};
  return op;
}

}  // namespace ampcheck::checks
