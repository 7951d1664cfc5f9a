// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/leaky_relu.h"

#include "checks/define/op_forms.h"
#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef leaky_relu_op() {
  OpDef op = unary_op("leaky_relu", "y = x where x > 0, else negative_slope x");
  op.signature.attributes = {{"negative_slope", 0.01, {0.25, 0.0}}};
  op.signature.kinks = {{"x", 0.0, "slope negative_slope"}};
  op.kernel = kernels::leaky_relu_kernel();
  op.forms = {{"x times 1 or slope", [](reference::FormulaCall& call) {
                 call.output("y", reference::leaky_relu(call["x"], call.attribute("negative_slope")));
               }}};
  return op;
}

}  // namespace ampcheck::checks
