// SPDX-License-Identifier: Apache-2.0
// The usual rules by which kernels are compared with a reference, as their projects state them, to be measured on the
// zoo beside our own. Each gets the exact reference, more than it has in practice.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "checks/audit/gate_rules.h"
#include "checks/define/op_def.h"
#include "src/op_call.h"

namespace ampcheck::checks::zoo {

struct Gate {
  const char* name;
  const char* rule;
};
std::span<const Gate> usual_gates();

/// Whether a gate rejects one tensor.
bool rejects(std::size_t gate, const Compared& tensor);

/// For each gate whether it rejects some output or gradient of this case. `built_in`: the op that the kernel is to
/// compute.
std::vector<char> rejected_by_gates(const OpDef& op, const OpDef& built_in, const OpCall& call);

}  // namespace ampcheck::checks::zoo
