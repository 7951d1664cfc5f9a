// SPDX-License-Identifier: Apache-2.0
// Forward mode, judged by a formula; where there is none, by the op's own backward (checks/judge/black_box.h).
#pragma once

#include "checks/case/case_run.h"
#include "checks/explain/notes.h"

namespace ampcheck::checks {

/// Inputs and tangents by name, and what the forward saved; the tangents of the outputs are poisoned.
LaunchTensors jvp_tensors(const CaseRun& run, const NamedValues& inputs, const LaunchResult& forward,
                          const NamedValues& tangents);

/// Forward mode: <v, J u> = <J^T v, u> for every cotangent v, since J u is judged element by element against the
/// interval of the formula's own jvp, which is the adjoint of its gradients by their cotangents. Nothing for an op
/// without one.
void check_forward_mode(CaseRun& run, const LaunchResult& forward, Dump* dump, Notes& notes);

}  // namespace ampcheck::checks
