// SPDX-License-Identifier: Apache-2.0
// `ampcheck audit zoo`: how often the verdicts are right, measured on kernels with planted defects and on correct ones.
// With --engine mpi, ranks of one job share the kernels (tools/commands/rank_parts.h).
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <mutex>

#include "tools/commands/audit_commands.h"
#include "tools/commands/audit_zoo_parts.h"
#include "tools/commands/rank_parts.h"
#include "tools/report/foreign_file.h"
#include "tools/report/output.h"
#include "tools/report/progress.h"
#include "tools/runs/run_file.h"
#include "tools/workers/interrupt.h"

namespace ampcheck::tools {

namespace {

using namespace checks::zoo;

checks::zoo::AuditOptions run_of(const AuditOptions& options) {
  checks::zoo::AuditOptions run;
  run.set = options.set;
  run.seeds = options.seeds;
  run.first_seed = options.first_seed;
  run.dtypes = options.dtypes;
  run.jobs = options.jobs;
  run.formula_alone = true;
  run.patterns.assign(options.words.begin() + 1, options.words.end());
  return run;
}

void show(const AuditOptions& options, ZooAudit audit) {
  if (options.no_times) {
    audit.seconds = 0;
    for (Trial& trial : audit.trials) trial.seconds = 0;
  }
  for (const ReportFile& report : options.reports) write_file(report.path, html_of(audit));
  write_stdout(options.json ? json_text(json_of(audit)) : text_of(audit, options.verbose));
}

ExitCode report(const AuditOptions& options, const ZooAudit& audit) {
  if (audit.trials.empty() && audit.cheats.empty()) {
    write_stderr("ampcheck: no kernel of the zoo has such a name (ampcheck list --planted shows the names)\n");
    return ExitCode::nothing_ran;
  }
  show(options, audit);
  return all_well(audit) ? ExitCode::passed : ExitCode::findings;
}

ExitCode audit_here(const AuditOptions& options) {
  checks::zoo::AuditOptions run = run_of(options);
  ProgressLine progress;
  run.progress = [&](std::size_t done, std::size_t all, const std::string& last) { progress.show(done, all, 0, last); };
  const auto start = std::chrono::steady_clock::now();
  std::vector<Trial> complete;
  std::mutex mutex;
  run.finished = [&](const Trial& trial) {
    const std::lock_guard lock(mutex);
    complete.push_back(trial);
  };
  const auto seconds = [start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const auto say = [&](const std::vector<Trial>& trials) {
    write_stderr(fmt::format("ampcheck: interrupted after {} runs{}\n", trials.size(),
                             trials.empty() ? "" : "; the score is of these"));
    if (!trials.empty()) show(options, {trials, {}, seconds()});
  };
  InterruptGuard guard([&] {  // a long case holds up the end
    const std::lock_guard lock(mutex);
    say(complete);
  });
  run.cancel = guard.flag();
  const std::vector<Trial> trials = audit(run);
  const std::vector<CheatTrial> cheats = audit_cheats(run);
  guard.finish();
  progress.clear();
  if (guard.interrupted()) {
    say(trials);
    end_by_signal();
  }
  return report(options, {trials, cheats, seconds()});
}

/// What was asked for: parts of one audit have the same.
std::string settings_of(const AuditOptions& options) {
  std::string out =
      fmt::format("regimes {}, seeds {} from {}", static_cast<int>(options.set), options.seeds, options.first_seed);
  for (const Dtype dtype : options.dtypes) out += std::string(", ") + name(dtype);
  for (const std::string& word : options.words) out += ", " + word;
  return out;
}

constexpr const char* kKind = "zoo";  ///< of the files of parts

ExitCode do_part(const AuditOptions& options, int part, int parts, int jobs) {
  checks::zoo::AuditOptions run = run_of(options);
  run.jobs = jobs;
  run.only = [part, parts](const std::string& name) { return shard_of(name, parts) == part; };
  InterruptGuard guard([] {});
  run.cancel = guard.flag();
  ZooAudit out;
  out.trials = audit(run);
  out.cheats = audit_cheats(run);
  guard.finish();
  if (guard.interrupted()) return ExitCode::incomplete;
  write_zoo_part(part_file(options.run_file, part, kKind), settings_of(options), out);
  return ExitCode::passed;
}

/// Rank 0: the score of all parts.
ExitCode report_all(const AuditOptions& options, int parts, std::chrono::steady_clock::time_point start) {
  ZooAudit all;
  int missing = 0;
  for (int part = 1; part <= parts; ++part) {
    const std::string path = part_file(options.run_file, part, kKind);
    if (!std::filesystem::exists(path)) {
      ++missing;
      continue;
    }
    read_zoo_part(path, settings_of(options), all);
  }
  if (missing == parts)
    throw ForeignFileError("[--engine] got no part of an audit zoo in '" + options.run_file +
                           "', want a folder of its own");
  sort_as_audited(all);
  all.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (missing > 0) write_stderr(fmt::format("ampcheck: incomplete: {} of {} parts are missing\n", missing, parts));
  const ExitCode code = report(options, all);
  return missing > 0 ? worse(code, ExitCode::incomplete) : code;
}

}  // namespace

ExitCode audit_zoo_command(const AuditOptions& options) {
  if (!options.ranks) return audit_here(options);
  const auto start = std::chrono::steady_clock::now();
  return share_parts({.folder = options.run_file,
                      .what_there = "",
                      .part = [&](int part, int parts, int jobs) { return do_part(options, part, parts, jobs); },
                      .report = [&](int parts, int) { return report_all(options, parts, start); }},
                     options.jobs);
}

}  // namespace ampcheck::tools
