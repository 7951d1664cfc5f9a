// SPDX-License-Identifier: Apache-2.0
// What a run is compared with, if it is no folder of baselines: another build, or the record of a run.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "tools/gate/baseline.h"
#include "tools/gate/gate_run.h"
#include "tools/gate/ladder.h"

namespace ampcheck::tools {

/// What a run found out of each op, without what anybody accepted.
std::vector<Baseline> states_of(const GateRun& run, const std::string& settings);

/// ampcheck.record/1, and back. BaselineError for a file that is none.
std::string record_text(const std::vector<Baseline>& states);
std::vector<Baseline> read_record(const std::string& path);

/// --base: runs the same cases with the library's ops of the same names, or reads a record. UsageError for a library
/// that has not these ops or has other signatures.
std::vector<Baseline> base_states(const KernelGateOptions& options, const Selection& selection,
                                  const std::string& settings, const std::atomic<bool>* cancel);

/// The speed of each op beside the library of --base, which has it; with --strict-perf one that is slower fails.
void add_speeds(const KernelGateOptions& options, std::vector<OpGate>& gates, const std::atomic<bool>* cancel);

}  // namespace ampcheck::tools
