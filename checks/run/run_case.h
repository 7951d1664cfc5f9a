// SPDX-License-Identifier: Apache-2.0
// One case: forward and backward, every element against its own interval, and every exact relation.
#pragma once

#include "checks/case/options.h"
#include "checks/define/case.h"
#include "src/finding.h"

namespace ampcheck::checks {

/// Judges one case. Exceptions of the kernel become a CRASH finding. `dump`, if given, receives the tensors of the
/// first probe.
CaseResult run_case(const OpDef& op, const OpCall& call, const RunOptions& options, Dump* dump = nullptr);

/// Runs a case where and how it is to run: by options.run, on sampled rows, or here.
CaseResult run_one(const Case& item, const How& how, const RunOptions& options);

}  // namespace ampcheck::checks
