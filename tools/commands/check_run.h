// SPDX-License-Identifier: Apache-2.0
// A check whose results are partly known: `check`, and `merge` of its parts.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "checks/case/options.h"
#include "checks/define/op_def.h"
#include "tools/choose/options.h"
#include "tools/choose/selection.h"
#include "tools/report/exit_code.h"
#include "tools/runs/run_file.h"

namespace ampcheck::tools {

/// What several run files hold of one check.
struct MergedRun {
  KeptResults kept;
  RunHeader header;
};

/// Of several checks of one process: their cases in the same workers. Null: each has its own.
using SharedWorkers = std::function<CaseResult(const checks::OpDef&, const OpCall&, const checks::How&)>;

/// What several checks of one process need once: the parts of a rank.
struct SharedRun {
  SharedWorkers workers;
  std::optional<Selection> selection = {};            ///< of all parts; the first check says it
  std::vector<const checks::OpDef*> plugin_ops = {};  ///< that it is of
};

/// `check --engine mpi`: this rank's parts, and of rank 0 the report.
ExitCode check_in_ranks(const CheckOptions& options);

/// As the command says; `merged`: results that need not run again. Cases that are in none of the files make it
/// incomplete.
ExitCode check_with(const CheckOptions& options, const MergedRun* merged, SharedRun* shared = nullptr);

}  // namespace ampcheck::tools
