// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/log_softmax.h"

#include "checks/define/op_forms.h"
#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef log_softmax_op() {
  OpDef op = unary_op("log_softmax", "y = x - log(sum(exp(x))) along the last axis");
  op.kernel = kernels::log_softmax_kernel();
  op.forms = {unary_form("x - m - log l", "x", "y", reference::log_softmax),
              unary_form("g - exp(y) sum g", "x", "y", reference::log_softmax_usual_adjoint),
              unary_form("x - lse", "x", "y", reference::log_softmax_by_lse),
              unary_form("one pass", "x", "y", reference::log_softmax_usual_adjoint)};
  op.forms.back().one_pass = true;
  return op;
}

}  // namespace ampcheck::checks
