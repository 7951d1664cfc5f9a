// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>

#include "checks/run/sampled.h"
#include "src/error.h"
#include "src/parallel.h"
#include "tools/choose/check_plan.h"
#include "tools/choose/device_choice.h"
#include "tools/choose/selection.h"
#include "tools/commands/commands.h"
#include "tools/report/progress.h"
#include "tools/report/reports.h"
#include "tools/report/run_journal.h"
#include "tools/workers/interrupt.h"
#include "tools/workers/isolation.h"

namespace ampcheck::tools {

namespace {

/// Writes the results to standard output and to each file of -o; a failed one does not stop the others.
ExitCode write_results(const CheckOptions& options, const Report& report, const RunFacts& facts) {
  ExitCode code = ExitCode::passed;
  const auto attempt = [&](auto write) {
    try {
      write();
    } catch (const WriteError& error) {
      write_stderr(fmt::format("ampcheck: {}\n", error.what()));
      code = ExitCode::not_written;
    }
  };
  attempt(
      [&] { write_stdout(options.json ? json_report(report, facts) : console_report(report, facts, stdout_style())); });
  for (const ReportFile& file : options.reports) attempt([&] { write_file(file.path, file.text(report, facts)); });
  return code;
}

/// The results so far, for the case that an interrupted run does not come back in time.
class Journal {
 public:
  Journal() : start_(std::chrono::steady_clock::now()) {}

  void add(const CaseResult& result) {
    const std::lock_guard lock(mutex_);
    report_.cases.push_back(result);
    failed_ += convicts(result.verdict);
  }
  std::size_t failed() const { return failed_; }

  Report interrupted() {
    const std::lock_guard lock(mutex_);
    Report report = report_;
    report.interrupted = true;
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    return report;
  }

 private:
  std::mutex mutex_;
  Report report_;
  std::size_t failed_ = 0;
  std::chrono::steady_clock::time_point start_;
};

Report run(const CheckOptions& options, const Selection& selection, const std::atomic<bool>* cancel, Journal& journal) {
  ProgressLine progress;
  checks::RunOptions run = run_options(options);
  run.cancel = cancel;
  run.run = isolated_run(worker_setup(options.plugin_ops, options, options.inputs), cancel);
  run.progress = [&](std::size_t done, std::size_t all, const CaseResult& last) {
    journal.add(last);
    progress.show(done, all, journal.failed(), last.op);
  };
  std::optional<RunJournal> lines;
  if (!options.journal.empty()) {
    lines.emplace(options.journal, selection.cases.size());
    run.run = [plain = run, &lines](const checks::OpDef& op, const OpCall& call, const checks::How& how) {
      lines->start(call.str(op.signature), op.plugin, how);
      CaseResult result = checks::run_one({&op, call}, how, plain);
      lines->done(result);
      return result;
    };
  }
  Report report = run_selection(selection, run);
  if (lines) lines->end();
  return report;
}

}  // namespace

ExitCode check_command(const CheckOptions& options) {
  if (!options.dump.empty() || !options.formula.empty()) return check_dump_command(options);
  for (const ReportFile& file : options.reports) require_writable(file.path);
  RunFacts facts{.build = build_facts(),
                 .machine = {},
                 .device = options.device,
                 .device_text = {},
                 .verbose = options.verbose,
                 .data = options.data,
                 .inputs = options.inputs,
                 .as_written = options.as_written};
  facts.device_text = require_device(options.device);
  if (options.jobs != 0) set_threads(options.jobs);
  facts.machine = machine_facts();
  if (options.words.empty() && options.plugin_ops.empty())
    facts.hint =
        "Next: see it catch a bug       ampcheck check softmax.dropped_tail\n"
        "      why trust the reference  ampcheck certify softmax\n";

  Journal journal;
  std::atomic<std::size_t> planned = 0;
  InterruptGuard guard([&, known = facts]() mutable {
    if (stderr_is_terminal()) write_stderr("\r\x1b[K");
    known.planned = planned;
    write_results(options, journal.interrupted(), known);
  });
  Selection selection = select_cases(options);
  planned = facts.planned = selection.cases.size();
  if (selection.cases.empty()) {
    write_stderr(nothing_selected(options));
    const ExitCode written =
        options.json || !options.reports.empty() ? write_results(options, Report{}, facts) : ExitCode::passed;
    return worse(ExitCode::nothing_ran, written);
  }
  const bool all_certified = drop_uncertified(selection);
  planned = facts.planned = selection.cases.size();
  say_what_is_left_out(options, selection);
  const Report report = run(options, selection, guard.flag(), journal);
  guard.finish();
  const ExitCode written = write_results(options, report, facts);
  if (guard.interrupted() && report.interrupted && written == ExitCode::passed) end_by_signal();
  return worse(worse(written, all_certified ? ExitCode::passed : ExitCode::usage), exit_code_of(report, facts.planned));
}

}  // namespace ampcheck::tools
