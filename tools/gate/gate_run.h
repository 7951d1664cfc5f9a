// SPDX-License-Identifier: Apache-2.0
// Cases that are judged as `ampcheck check` judges them, and of which the errors are profiled too.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checks/run/profile.h"
#include "checks/run/runner.h"
#include "src/finding.h"
#include "tools/choose/gate_options.h"
#include "tools/choose/selection.h"
#include "tools/report/variants.h"
#include "tools/workers/isolation.h"

namespace ampcheck::tools {

struct GatedOp {
  const checks::OpDef* op = nullptr;
  std::vector<OpCall> calls;
  std::map<std::string, checks::CaseProfile> cases;  ///< by name; none of a case that was not run whole
  std::vector<const CaseResult*> convicted;          ///< in GateRun::report
  std::size_t unprofiled = 0;                        ///< cases that ran without a profile
  std::size_t skipped = 0;                           ///< cases that did not run
  std::size_t empty = 0;                             ///< cases without an element
  std::vector<std::string> left_out = {};            ///< why cases were not judged (checks::is_left_out), one each
};

struct GateRun {
  Report report;
  std::vector<GatedOp> ops;  ///< in the order of the selection
  std::string arch;          ///< what computed the bits
};

/// Results and profiles that need not be made again, and where new ones go.
struct KnownRun {
  std::function<std::optional<CaseResult>(const checks::OpDef&, const std::string&, const checks::How&)> find = nullptr;
  std::function<void(const CaseResult&, const checks::How&)> keep = nullptr;
  std::map<std::string, checks::CaseProfile> profiles = {};  ///< by case
  bool part = false;                                         ///< single cases: nothing is said of whole ops
  /// isolated_run(workers_of()), where several runs share their workers; null: this one has its own.
  std::function<CaseResult(const checks::OpDef&, const OpCall&, const checks::How&)> workers = nullptr;
};

/// "cpu-x86_64", "cuda-sm_90".
std::string arch_of(Device device);

/// The workers of a run.
WorkerSetup workers_of(const KernelGateOptions& options, const Selection& selection);

/// Judges and profiles the selected cases. Kernels of a library are judged in workers; those cases that neither crash
/// nor hang run a second time here, for their tensors. `progress`: as checks::RunOptions.
GateRun gate_run(const KernelGateOptions& options, const Selection& selection, const std::atomic<bool>* cancel,
                 const std::function<void(std::size_t, std::size_t, const CaseResult&)>& progress,
                 const KnownRun& known = {});

/// The cases of a report once more here, for their tensors, by op. `run`: how the report's cases ran.
std::vector<GatedOp> profiled(const Selection& selection, const Report& report, const checks::RunOptions& run);

/// Which kernels of an op gave the same bits in every case: of ops with variants among them.
std::vector<VariantClasses> variant_classes(const std::vector<GatedOp>& ops);
/// UsageError where --variants was asked for and no op has any.
void require_variants(const CaseOptions& options, const Selection& selection);

}  // namespace ampcheck::tools
