// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/define/case_inputs.h"

namespace ampcheck::checks {

reference::CaseInputs case_inputs(const OpSignature& signature, const OpCall& call, const NamedValues& inputs) {
  reference::CaseInputs out;
  for (const TensorSpec& spec : signature.inputs) {
    if (!call.has(spec)) continue;
    const std::vector<double>& values = inputs.at(spec.name);
    if (is_float(call.dtype(spec)))
      out.shapes[spec.name] = call.shape(spec);
    else {
      out.integers[spec.name] = std::vector<std::int64_t>(values.begin(), values.end());
      out.integer_shapes[spec.name] = call.shape(spec);
    }
  }
  return out;
}

reference::Recording recorded(const OpDef& op, const OpCall& call, const NamedValues& inputs) {
  return reference::record(op.signature, op.forms.front(), call.attributes, case_inputs(op.signature, call, inputs));
}

}  // namespace ampcheck::checks
