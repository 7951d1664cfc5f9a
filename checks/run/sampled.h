// SPDX-License-Identifier: Apache-2.0
// Cases that are too large to be judged whole: the kernel runs at the full size, and sampled rows of what it writes are
// judged as a problem of their own. Where the formula's rows are independent, that is what the whole judge would say of
// them.
#pragma once

#include <cstdint>
#include <string>

#include "checks/run/runner.h"

namespace ampcheck::checks {

/// Why a case cannot be judged on sampled rows, in words; empty if it can: the contract names the rows, every input has
/// them in front or not at all, and they are at least 64.
std::string why_not_sampled(const OpDef& op, const OpCall& call);

/// About how many bytes run_sampled takes; a case that can be sampled.
std::int64_t sampled_need(const OpDef& op, const OpCall& call);

/// Judges the first, the last and some rows drawn between them, in forward and backward, every probe; guards, inputs
/// and unwritten elements are looked at over the whole tensors. What is not judged (other rows; what sums over the
/// rows, such as the gradient of a weight; what depends on their number) is counted in CheckResult::unjudged. SKIPPED
/// if nothing can be judged. No relations.
CaseResult run_sampled(const OpDef& op, const OpCall& call, const RunOptions& options);

}  // namespace ampcheck::checks
