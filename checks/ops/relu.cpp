// SPDX-License-Identifier: Apache-2.0
#include "reference/relu.h"

#include "checks/op_forms.h"
#include "checks/op_list.h"

namespace ampcheck::checks {

OpDef relu_op() {
  OpDef op = unary_op("relu", "y = max(x, 0)");
  op.kernel = kernels::relu_kernel();
  op.forms = {unary_form("where", "x", "y", reference::relu)};
  return op;
}

}  // namespace ampcheck::checks
