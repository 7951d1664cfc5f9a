// SPDX-License-Identifier: Apache-2.0
// A gate whose results are partly known.
#pragma once

#include "tools/choose/gate_options.h"
#include "tools/gate/gate_run.h"
#include "tools/report/exit_code.h"

namespace ampcheck::tools {

/// Which cases a run was asked for, in words: where these are the same, so are the cases of an op.
std::string settings_of(const KernelGateOptions& options);

/// As the command says.
ExitCode gate_with(const KernelGateOptions& options, const KnownRun& known);

/// `gate --engine mpi`: this rank's parts, and of rank 0 the gate.
ExitCode gate_in_ranks(const KernelGateOptions& options);

}  // namespace ampcheck::tools
