// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/div.h"

#include "checks/define/op_forms.h"
#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef div_op() {
  OpDef op = binary_op("div", "z = x / y");
  op.kernel = kernels::div_kernel();
  op.forms = {binary_form("-g z / y", reference::div), binary_form("-g (z / y)", reference::div_by_slope),
              binary_form("-g x / y^2", reference::div_by_square)};
  return op;
}

}  // namespace ampcheck::checks
