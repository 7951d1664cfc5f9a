// SPDX-License-Identifier: Apache-2.0
// Cases that are judged as `ampcheck check` judges them, and of which the errors are profiled too.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checks/run/profile.h"
#include "src/finding.h"
#include "tools/choose/gate_options.h"
#include "tools/choose/selection.h"

namespace ampcheck::tools {

struct GatedOp {
  const checks::OpDef* op = nullptr;
  std::vector<OpCall> calls;
  std::map<std::string, checks::CaseProfile> cases;  ///< by name; none of a case that was not run whole
  std::vector<const CaseResult*> convicted;          ///< in GateRun::report
  std::size_t unprofiled = 0;                        ///< cases that ran without a profile
};

struct GateRun {
  Report report;
  std::vector<GatedOp> ops;  ///< in the order of the selection
  std::string arch;          ///< what computed the bits
};

/// "cpu-x86_64", "cuda-sm_90".
std::string arch_of(Device device);

/// Judges and profiles the selected cases. Kernels of a library are judged in workers; those cases that neither crash
/// nor hang run a second time here, for their tensors. `progress`: as checks::RunOptions.
GateRun gate_run(const KernelGateOptions& options, const Selection& selection, const std::atomic<bool>* cancel,
                 const std::function<void(std::size_t, std::size_t, const CaseResult&)>& progress);

}  // namespace ampcheck::tools
