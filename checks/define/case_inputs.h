// SPDX-License-Identifier: Apache-2.0
// The inputs of a case as a formula is recorded at them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checks/define/op_def.h"
#include "src/op_call.h"

namespace ampcheck::checks {

using NamedValues = std::map<std::string, std::vector<double>>;

/// Shapes of floating inputs and values of integer inputs, from the exact values of all inputs of a case.
reference::CaseInputs case_inputs(const OpSignature& signature, const OpCall& call, const NamedValues& inputs);

/// The op's first form, recorded at the shapes of the call and the values of its integer inputs.
reference::Recording recorded(const OpDef& op, const OpCall& call, const NamedValues& inputs);

}  // namespace ampcheck::checks
