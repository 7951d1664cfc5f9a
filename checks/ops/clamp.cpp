// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/clamp.h"

#include "checks/define/op_forms.h"
#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef clamp_op() {
  OpDef op = unary_op("clamp", "y = x held between min and max");
  op.signature.attributes = {{"min", -1.0, {-0.3, 0.0}}, {"max", 1.0, {0.1, 2.5}}};
  op.signature.valid = [](const Dims&, const Attributes& attributes) {
    return attributes.number("min") <= attributes.number("max");
  };
  op.signature.kinks = {{"x", -1.0, "gradient dy at min"}, {"x", 1.0, "gradient dy at max"}};
  op.kernel = kernels::clamp_kernel();
  op.forms = {{"where", [](reference::FormulaCall& call) {
                 call.output("y", reference::clamp(call["x"], call.attribute("min"), call.attribute("max")));
               }}};
  return op;
}

}  // namespace ampcheck::checks
