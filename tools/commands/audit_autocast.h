// SPDX-License-Identifier: Apache-2.0
// The parts of `audit autocast`.
#pragma once

#include <string>
#include <vector>

#include "checks/autocast/net_audit.h"
#include "checks/autocast/policy_check.h"
#include "tools/choose/options.h"
#include "tools/commands/autocast_lists.h"
#include "tools/report/exit_code.h"
#include "tools/report/json.h"

namespace ampcheck::tools {

/// Lists of ops against one another: a user's file against torch's, or two of torch's.
ExitCode audit_op_lists(const AuditOptions& options, const std::vector<std::string>& words);
/// A trace of a training run.
ExitCode audit_autocast_trace(const AuditOptions& options, const std::string& path);

/// A line for each of A1 to A14.
std::string results_text(const checks::autocast::Results& results);
/// "RIGHT: 'mlp' ...; 9 passed, 2 weak, 0 failed, 3 not asked."
std::string verdict_text(const checks::autocast::Results& results, const std::string& what);
Json results_json(const checks::autocast::Results& results);
/// What every JSON of A1 to A14 begins with; `kind`: "rules", "net" or "trace".
Json head_json(const checks::autocast::Results& results, const std::string& kind, const std::string& target,
               const std::string& list);
/// The table of ops, and the same as JSON.
std::string rows_text(const std::vector<checks::autocast::OpRow>& rows);
Json rows_json(const std::vector<checks::autocast::OpRow>& rows);

}  // namespace ampcheck::tools
