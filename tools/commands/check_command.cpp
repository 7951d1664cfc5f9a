// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "checks/run/sampled.h"
#include "src/error.h"
#include "src/parallel.h"
#include "tools/choose/device_choice.h"
#include "tools/choose/plugins.h"
#include "tools/choose/selection.h"
#include "tools/commands/commands.h"
#include "tools/report/left_out.h"
#include "tools/report/progress.h"
#include "tools/report/reports.h"
#include "tools/report/run_journal.h"
#include "tools/workers/interrupt.h"
#include "tools/workers/isolation.h"

namespace ampcheck::tools {

namespace {

/// Writes the results to standard output and to each file of -o; a failed one does not stop the others.
ExitCode write_results(const Options& options, const Report& report, const RunFacts& facts) {
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
  for (const ReportFile& file : options.reports)
    attempt([&] {
      using Format = ReportFile::Format;
      write_file(file.path, file.format == Format::json    ? json_report(report, facts)
                            : file.format == Format::junit ? junit_report(report, facts)
                                                           : lines_report(report, facts));
    });
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

/// Whether the cases are all that an op has: then what they leave unseen is nobody's choice.
bool takes_whole_ops(const Options& options) {
  const bool named = std::any_of(options.words.begin(), options.words.end(),
                                 [](const std::string& word) { return word.find('(') != std::string::npos; });
  return !named && options.inputs.empty() && options.shapes.kind == ShapeFilter::Kind::all &&
         options.real != RealTensors::only;
}

Report run(const Options& options, const Selection& selection, const std::atomic<bool>* cancel, Journal& journal) {
  ProgressLine progress;
  checks::RunOptions run;
  run.device = options.device;
  run.jobs = options.jobs;
  run.relations = options.relations;
  run.brief = true;
  run.aim = takes_whole_ops(options);
  run.memory = options.memory, run.time_budget = options.time_budget;
  run.cancel = cancel;
  run.run = isolated_run(options, cancel);
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
  Report report = checks::run_cases(selection.cases, run);
  if (lines) lines->end();
  // What an interrupted run did not reach is no result.
  std::erase_if(report.cases, [](const CaseResult& result) { return result.name.empty(); });
  std::erase_if(report.certificates, [](const Certificate& certificate) { return certificate.op.empty(); });
  std::erase_if(report.coverage, [](const auto& entry) { return entry.first.empty() || entry.second.empty(); });
  report.interrupted = report.interrupted || report.cases.size() < selection.cases.size();
  report.notes.insert(report.notes.end(), selection.notes.begin(), selection.notes.end());
  return report;
}

/// Drops the cases of a library's ops whose definitions are refused, each with a note; false if there are some. The
/// last one's error, where nothing is left.
bool drop_uncertified(Selection& selection) {
  std::map<const checks::OpDef*, std::string> refused;  // "" : certified
  for (const checks::Case& item : selection.cases) {
    if (item.op->plugin.empty() || refused.contains(item.op)) continue;
    try {
      refused[item.op].clear();
      require_certified(*item.op);
    } catch (const UsageError& error) {
      refused[item.op] = error.what();
    }
  }
  const auto is_refused = [&](const checks::OpDef* op) { return refused.contains(op) && !refused.at(op).empty(); };
  const checks::OpDef* const last = selection.cases.back().op;
  std::erase_if(selection.cases, [&](const checks::Case& item) { return is_refused(item.op); });
  if (selection.cases.empty()) throw UsageError(refused.at(last));
  std::vector<std::string> notes;
  for (const auto& [op, why] : refused)
    if (!why.empty()) notes.push_back("not judged, exit code 2: " + why);
  std::sort(notes.begin(), notes.end());  // the map's order is that of addresses
  selection.notes.insert(selection.notes.end(), notes.begin(), notes.end());
  return notes.empty();
}

/// Of the quick set always, of the standard one on request; nothing where cases are named or have a file's tensors.
void say_what_is_left_out(const Options& options, Selection& selection) {
  if (!takes_whole_ops(options) || !(options.verbose || options.set == checks::CaseSet::quick)) return;
  if (std::string text = left_out(selection.cases, options.set, options.first_seed); !text.empty())
    selection.notes.push_back(std::move(text));
}

}  // namespace

ExitCode check_command(const Options& options) {
  if (!options.dump.empty() || !options.formula.empty()) return check_dump_command(options);
  for (const ReportFile& file : options.reports) require_writable(file.path);
  RunFacts facts{.build = build_facts(),
                 .machine = {},
                 .device = options.device,
                 .device_text = {},
                 .verbose = options.verbose,
                 .data = options.data,
                 .inputs = options.inputs};
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
