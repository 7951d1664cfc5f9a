// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>

#include "checks/run/sampled.h"
#include "src/error.h"
#include "src/parallel.h"
#include "tools/choose/check_plan.h"
#include "tools/choose/cores_choice.h"
#include "tools/choose/device_choice.h"
#include "tools/choose/selection.h"
#include "tools/commands/check_run.h"
#include "tools/commands/commands.h"
#include "tools/commands/run_facts.h"
#include "tools/gate/gate_run.h"
#include "tools/report/foreign_file.h"
#include "tools/report/progress.h"
#include "tools/report/reports.h"
#include "tools/report/run_journal.h"
#include "tools/report/shell_word.h"
#include "tools/workers/interrupt.h"
#include "tools/workers/isolation.h"
#include "tools/workers/runner.h"

namespace ampcheck::tools {

namespace {

/// Runs it, and says where it cannot write: that loses nothing else.
template <class Write>
ExitCode written_by(Write write) {
  try {
    write();
    return ExitCode::passed;
  } catch (const WriteError& error) {
    write_stderr(fmt::format("ampcheck: {}\n", error.what()));
    return ExitCode::not_written;
  }
}

/// Writes the results to standard output and to each file of -o; a failed one does not stop the others.
ExitCode write_results(const CheckOptions& options, const Report& report, const RunFacts& facts) {
  ExitCode code = ExitCode::passed;
  if (options.silent) return code;
  const auto attempt = [&](auto write) { code = worse(code, written_by(write)); };
  const auto shown = [&] {
    return options.json ? json_report(report, facts)
                        : console_report(report, facts, stdout_style()) + variants_text(facts.variants);
  };
  std::vector<std::string> texts(1 + options.reports.size());
  parallel_for(static_cast<std::int64_t>(texts.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
      texts[i] = i == 0 ? shown() : options.reports[i - 1].text(report, facts);
  });
  attempt([&] { write_stdout(texts.front()); });
  for (std::size_t i = 0; i < options.reports.size(); ++i)
    attempt([&] { write_file(options.reports[i].path, texts[i + 1]); });
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
  std::vector<CaseResult> take() {
    const std::lock_guard lock(mutex_);
    return report_.cases;
  }

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

/// A hook that asks `kept` first; what is not there runs, and `run_file` keeps it.
void keep_results(checks::RunOptions& run, const KeptResults* kept, RunFile* run_file) {
  if (kept == nullptr && run_file == nullptr) return;
  run.run = [plain = run, kept, run_file](const checks::OpDef& op, const OpCall& call, const checks::How& how) {
    const std::string name = call.str(op.signature);
    if (kept != nullptr)
      if (auto known = kept->find(op, name, how)) return std::move(*known);
    CaseResult result = checks::run_one({&op, call}, how, plain);
    if (run_file != nullptr) run_file->add(result, how);
    return result;
  };
}

/// The results of single cases alone, in the order of the selection: a part of a run says nothing of whole ops.
Report single_results(const Selection& selection, const Report& ended, std::vector<CaseResult> results) {
  std::map<std::string, CaseResult*> by_name;
  for (CaseResult& result : results) by_name[result.plugin + " " + result.name] = &result;
  Report out;
  for (const checks::Case& item : selection.cases)
    if (const auto at = by_name.find(item.op->plugin + " " + item.call.str(item.op->signature)); at != by_name.end())
      out.cases.push_back(std::move(*at->second));
  out.notes = selection.notes;
  out.interrupted = ended.interrupted;
  out.refused = ended.refused;
  out.seconds = ended.seconds;
  out.certificates = ended.certificates;
  return out;
}

/// What a run takes from files and from others, and puts into files.
struct Files {
  const MergedRun* merged = nullptr;
  bool part = false;  ///< not all cases are there: nothing is said of whole ops
  SharedWorkers workers;
  RunHeader header;
  ExitCode written = ExitCode::passed;  ///< of the files that grow with the run
};

Report run(const CheckOptions& options, const Selection& selection, const std::atomic<bool>* cancel, Journal& journal,
           Files& files) {
  ProgressLine progress;
  checks::RunOptions run = run_options(options);
  run.cancel = cancel;
  run.run = files.workers != nullptr ? files.workers
                                     : isolated_run(worker_setup(options.plugin_ops, options, options.inputs), cancel);
  run.progress = [&](std::size_t done, std::size_t all, const CaseResult& last) {
    journal.add(last);
    progress.show(done, all, journal.failed(), last.op);
  };
  if (files.part) run.brief = run.explain = run.aim = false;
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
  std::optional<RunFile> run_file;
  if (!options.run_file.empty()) {
    run_file.emplace(options.run_file, files.header);
    if (run_file->found() > 0)
      write_stderr(fmt::format("ampcheck: going on from '{}' with {} results\n", options.run_file, run_file->found()));
  }
  keep_results(run,
               files.merged != nullptr ? &files.merged->kept
               : run_file              ? &run_file->kept()
                                       : nullptr,
               run_file ? &*run_file : nullptr);
  Report report = run_selection(selection, run);
  if (lines) files.written = worse(files.written, written_by([&] { lines->end(); }));
  if (run_file) files.written = worse(files.written, written_by([&] { run_file->end(!options.silent); }));
  if (files.part) report = single_results(selection, report, journal.take());
  if (options.no_times) {
    report.seconds = 0;
    for (CaseResult& result : report.cases) result.seconds = 0;
  }
  return report;
}

/// The cases of this part, or those that the merged files have.
void take_part(const CheckOptions& options, Selection& selection, Files& files) {
  files.header = {options.arguments, digest_of_cases(selection), build_facts().version, options.shard, options.shards};
  if (files.merged != nullptr) {
    if (files.header.cases != files.merged->header.cases)
      throw ForeignFileError("[merge] got files of other cases than the library or this program has now");
    std::vector<std::string> missing;
    std::erase_if(selection.cases, [&](const checks::Case& item) {
      const std::string name = item.call.str(item.op->signature);
      const bool absent = !files.merged->kept.has(item.op->plugin, name);
      if (absent) missing.push_back(name);
      return absent;
    });
    files.part = !missing.empty();
    if (files.part)
      selection.notes.push_back(
          fmt::format("incomplete: {} cases are in none of the files, first '{}'", missing.size(), missing.front()));
  } else if (options.shards > 1) {
    files.part = true;
    std::erase_if(selection.cases, [&](const checks::Case& item) {
      return shard_of(item.call.str(item.op->signature), options.shards) != options.shard;
    });
    selection.notes.push_back(fmt::format("part {} of {}: what concerns whole ops is judged by ampcheck merge",
                                          options.shard, options.shards));
  }
}

RunFacts facts_of(const CheckOptions& options) {
  RunFacts facts = begin_run(options, options);
  // mpirun binds a rank to one core: equal results are equal bytes on however many threads.
  if (options.no_times) facts.machine.threads = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  facts.verbose = options.verbose;
  facts.accumulate = accumulate_words(options.accumulate);
  if (options.words.empty() && options.plugin_ops.empty())
    facts.hint =
        "Next: see it catch a bug       ampcheck check softmax.dropped_tail\n"
        "      why trust the reference  ampcheck certify softmax\n";
  return facts;
}

/// The cases, and the ops that they are of as `options` knows them.
Selection selected(CheckOptions& options, SharedRun* shared) {
  if (shared != nullptr && shared->selection) {
    options.plugin_ops = shared->plugin_ops;
    return *shared->selection;
  }
  if (options.variants) take_kernels_apart(options.plugin_ops, options, options.device);
  Selection out = select_cases(options);
  if (shared != nullptr) {
    shared->selection = out;
    shared->plugin_ops = options.plugin_ops;
  }
  return out;
}

}  // namespace

ExitCode check_command(const CheckOptions& options) {
  return options.ranks ? check_in_ranks(options) : check_with(options, nullptr);
}

ExitCode broken_library(const CheckOptions& options, const std::string& library, Code code, const std::string& why) {
  RunFacts facts{.build = build_facts(), .machine = machine_facts(), .device = options.device};
  facts.planned = 1;
  facts.again = "ampcheck check " + shell_word(library);
  CaseResult result;
  result.name = result.plugin = library;
  result.op = std::filesystem::path(library).filename().string();
  result.verdict = text_of(code).verdict;
  result.code = code;
  CheckResult check;
  check.find(code);
  check.compared = check.failed = 1;
  check.cause = why;
  result.checks.push_back(std::move(check));
  Report report;
  report.cases.push_back(std::move(result));
  return worse(ExitCode::findings, write_results(options, report, facts));
}

ExitCode check_with(const CheckOptions& given, const MergedRun* merged, SharedRun* shared) {
  CheckOptions options = given;
  if (options.dump.empty() && options.formula.empty()) put_on_cores(options, options.accumulate, options.device);
  if (!options.dump.empty() || !options.formula.empty()) return check_dump_command(options);
  require_reports(options.reports, options.json, {{"--journal", options.journal}, {"--run-file", options.run_file}});
  RunFacts facts = facts_of(options);

  Journal journal;
  std::atomic<std::size_t> planned = 0;
  InterruptGuard guard([&, known = facts]() mutable {
    if (stderr_is_terminal()) write_progress("\r\x1b[K");
    known.planned = planned;
    if (options.silent)
      write_stderr("ampcheck: a part is not done; the same command, with the same --run-file, goes on\n");
    write_results(options, journal.interrupted(), known);
  });
  Selection selection = selected(options, shared);
  planned = facts.planned = selection.cases.size();
  if (!selection.cases.empty()) require_variants(options, selection);
  if (selection.cases.empty()) {
    write_stderr(nothing_selected(options));
    const ExitCode written =
        options.json || !options.reports.empty() ? write_results(options, Report{}, facts) : ExitCode::passed;
    return worse(ExitCode::nothing_ran, written);
  }
  const bool all_certified = drop_uncertified(selection);
  planned = facts.planned = selection.cases.size();
  if (!options.silent) say_what_is_left_out(options, selection);  // rank 0 says it of all parts
  if (!options.shard_origin.empty())
    write_stderr(fmt::format("ampcheck: part {} of {} ({})\n", options.shard, options.shards, options.shard_origin));
  Files files{.merged = merged,
              .part = false,
              .workers = shared != nullptr ? shared->workers : nullptr,
              .header = {},
              .written = ExitCode::passed};
  take_part(options, selection, files);
  if (merged == nullptr) planned = facts.planned = selection.cases.size();
  const Report report = run(options, selection, guard.flag(), journal, files);
  if (options.variants && !files.part && !report.interrupted) {
    checks::RunOptions again = run_options(options);
    again.cancel = guard.flag();
    facts.variants = variant_classes(profiled(selection, report, again));
  }
  guard.finish();
  const ExitCode written = worse(files.written, write_results(options, report, facts));
  if (options.silent && guard.interrupted()) return ExitCode::incomplete;
  if (guard.interrupted() && report.interrupted && written == ExitCode::passed) end_by_signal();
  const bool refused = !all_certified && !options.silent;  // of a part's ops rank 0 says it
  return worse(worse(written, refused ? ExitCode::usage : ExitCode::passed), exit_code_of(report, facts.planned));
}

}  // namespace ampcheck::tools
