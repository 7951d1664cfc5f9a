// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/mul.h"

#include "checks/define/op_forms.h"
#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef mul_op() {
  OpDef op = binary_op("mul", "z = x y");
  op.kernel = kernels::mul_kernel();
  op.forms = {binary_form("product", reference::mul)};
  return op;
}

}  // namespace ampcheck::checks
