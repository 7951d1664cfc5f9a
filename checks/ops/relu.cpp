// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/relu.h"

#include "checks/define/op_forms.h"
#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef relu_op() {
  OpDef op = unary_op("relu", "y = max(x, 0)");
  op.kernel = kernels::relu_kernel();
  op.forms = {unary_form("where", "x", "y", reference::relu)};
  return op;
}

}  // namespace ampcheck::checks
