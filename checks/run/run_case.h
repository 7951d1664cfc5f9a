// SPDX-License-Identifier: Apache-2.0
// One case: forward and backward, every element against its own interval, and every exact relation.
#pragma once

#include "checks/case/options.h"
#include "checks/define/case.h"
#include "src/finding.h"

namespace ampcheck::checks {

/// How notes begin of cases that are skipped since memory was missing, or a process of ours that is no kernel's ended.
inline constexpr const char *kForMemory = "[memory]", *kProcessLost = "[process]";
inline constexpr const char* kNoMemory = "[memory] its check took more than there is";
/// Whether a case was not judged for such a reason: a run with one is incomplete.
bool is_left_out(const CaseResult& result);
/// The note of a finding that stands without its cause, since there was no memory to look for one.
inline constexpr const char* kNotExplained = "[memory] not explained: that took more than there is";

/// Judges one case, without an explanation where there is no memory for one. Exceptions of the kernel become a CRASH
/// finding. `dump`, if given, receives the tensors of the first probe.
CaseResult run_case(const OpDef& op, const OpCall& call, const RunOptions& options, Dump* dump = nullptr);

/// As run_case(), for whoever concludes something from the verdict, be it a pass: std::bad_alloc where there is none
/// since memory was missing.
CaseResult verdict_of_case(const OpDef& op, const OpCall& call, const RunOptions& options);

/// Runs a case where and how it is to run: by options.run, on sampled rows, or here.
CaseResult run_one(const Case& item, const How& how, const RunOptions& options);

}  // namespace ampcheck::checks
