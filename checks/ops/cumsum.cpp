// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/cumsum.h"

#include "checks/define/op_forms.h"
#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef cumsum_op() {
  OpDef op = unary_op("cumsum", "y[i] = x[0] + ... + x[i] along the last axis");
  op.kernel = kernels::cumsum_kernel();
  op.forms = {unary_form("running sum", "x", "y", reference::cumsum_formula)};
  return op;
}

}  // namespace ampcheck::checks
