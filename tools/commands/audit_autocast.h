// SPDX-License-Identifier: Apache-2.0
// The parts of `audit autocast`.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checks/autocast/net_audit.h"
#include "checks/autocast/policy_check.h"
#include "tools/choose/options.h"
#include "tools/commands/autocast_lists.h"
#include "tools/report/exit_code.h"
#include "tools/report/json.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::tools {

/// Lists of ops against one another: a user's file against torch's, or two of torch's.
ExitCode audit_op_lists(const AuditOptions& options, const std::vector<std::string>& words);
/// A trace of a training run; `net`: the net that was trained, by name or TOML file; empty: what the trace says.
ExitCode audit_autocast_trace(const AuditOptions& options, const std::string& path, const std::string& net);

/// A net's audit, with the rules of ampcheck's own autocast. UsageError for a net that cannot be run.
checks::autocast::NetAudit audit_net_and_rules(const checks::autocast::NetSubject& subject);

/// The net of a recorded run, taken up again.
struct NetAgain {
  std::string net;                                  ///< its name or TOML file; empty: not known
  int batches = 0;                                  ///< that were run
  std::optional<checks::autocast::NetAudit> audit;  ///< none: it was not run
  std::string why;                                  ///< it was not run
};
/// `net`: as the user says it; empty: as the trace does. `suspects`: ops that went wrong in the run. UsageError for
/// what the user says wrong.
NetAgain net_of_trace(const AuditOptions& options, const Trace& trace, const std::string& net,
                      const std::vector<checks::autocast::OpRow>& rows, const std::set<std::string>& suspects);

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
/// What changes of a net's policy came to, and of its custom ops.
std::string advice_text(const checks::autocast::NetAudit& audit);
std::string custom_text(const checks::autocast::NetAudit& audit);
/// Adds the same to a JSON, and what the net's numbers were.
void add_net_json(Json& out, const checks::autocast::NetAudit& audit, int batches);

}  // namespace ampcheck::tools
