// SPDX-License-Identifier: Apache-2.0
// `ampcheck audit WHAT`: each kind has a file of its own.
#include "checks/scaler/library.h"
#include "tools/choose/plugins.h"
#include "tools/commands/audit_commands.h"
#include "tools/commands/audited_library.h"
#include "tools/commands/commands.h"
#include "tools/report/output.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

namespace {

/// -o is of the zoo and of logs.
void require_writer(const AuditOptions& options, const std::string& what) {
  if (!options.reports.empty() && what != "zoo" && (what != "scaler" || options.scaler.log.empty()))
    throw UsageError("[-o] got '" + options.reports.front().path +
                     "', want it with audit zoo or audit scaler --log alone");
}

void require_zoo(const AuditOptions& options, const std::string& what) {
  const char* const given = options.ranks               ? "--engine"
                            : !options.run_file.empty() ? "--run-file"
                            : options.no_times          ? "--no-times"
                                                        : nullptr;
  if (given != nullptr && what != "zoo")
    throw UsageError(std::string("[") + given + "] got it with audit " + what + ", want it with audit zoo alone");
  if (!options.run_file.empty() && !options.ranks)
    throw UsageError("[--run-file] got '" + options.run_file + "' without --engine mpi, want both: ranks share it");
}

/// A command that may run a library in a process of its own, with what is wrong with that library as its end.
ExitCode with_library_apart(const std::string& verb, const AuditOptions& options,
                            ExitCode (*command)(const AuditOptions&)) {
  try {
    return command(options);
  } catch (const LibraryEnded& error) {
    write_stderr("ampcheck: [" + verb + "] " + error.what() + "\n");
    return ExitCode::findings;
  } catch (const checks::scaler::LibraryError& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

ExitCode audit_command(const AuditOptions& options) {
  const std::string what = options.words.empty() ? "" : options.words.front();
  require_writer(options, what);
  require_zoo(options, what);
  if (what == "zoo") return audit_zoo_command(options);
  AuditOptions rest = options;
  if (!rest.words.empty()) rest.words.erase(rest.words.begin());
  if (what == "diagnose") return audit_diagnose_command(rest);
  if (what == "train") return audit_train_command(rest);
  if (what == "step") return with_library_apart("audit step", rest, audit_step_command);
  if (what == "autocast") return audit_autocast_command(std::move(rest));
  if (what == "gate") return audit_gate_command(std::move(rest));
  if (what == "scaler") return with_library_apart("audit scaler", rest, audit_scaler_command);
  throw UsageError("[audit] got '" + what + "', want zoo, gate, scaler, step, autocast, train or diagnose");
}

}  // namespace ampcheck::tools
