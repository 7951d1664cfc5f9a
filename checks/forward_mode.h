// SPDX-License-Identifier: Apache-2.0
// The launch of an op's forward mode, for the checks that judge it: by a formula (check_forward_mode() in checks/case_run.h), or where there is none
// by the op's own backward (checks/black_box.h).
#pragma once

#include "checks/case_run.h"

namespace ampcheck::checks {

/// Inputs and tangents by name, and what the forward saved; the tangents of the outputs are poisoned.
LaunchTensors jvp_tensors(const CaseRun& run, const NamedValues& inputs, const LaunchResult& forward, const NamedValues& tangents);

}  // namespace ampcheck::checks
