// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// `ampcheck gate`: may this change of a kernel be merged? Its numbers beside the accepted state, and beside what
// rounding may do.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "src/error.h"
#include "src/parallel.h"
#include "tools/choose/check_plan.h"
#include "tools/choose/device_choice.h"
#include "tools/choose/plugins.h"
#include "tools/choose/selection.h"
#include "tools/commands/commands.h"
#include "tools/commands/gate_with.h"
#include "tools/commands/run_facts.h"
#include "tools/gate/ci.h"
#include "tools/gate/dates.h"
#include "tools/gate/gate_base.h"
#include "tools/gate/gate_report.h"
#include "tools/gate/history.h"
#include "tools/gate/measured.h"
#include "tools/report/progress.h"
#include "tools/report/reports.h"
#include "tools/report/shell_word.h"
#include "tools/workers/interrupt.h"
#include "tools/workers/runner.h"

namespace ampcheck::tools {

namespace {

/// Whether --base names a library, and no record of a run.
bool is_build(const std::string& base) { return !base.empty() && is_library(base) && !base.ends_with(".json"); }

constexpr const char* kShapes[] = {"all", "first", "standard", "own", "every extent"};
constexpr const char* kSets[] = {"quick", "standard", "all"};

/// Cases that are named leave the others of their op out.
bool takes_whole_ops(const KernelGateOptions& options) {
  return std::none_of(options.words.begin(), options.words.end(),
                      [](const std::string& word) { return word.find('(') != std::string::npos; });
}

/// The accepted states of the ops of a run.
class States {
 public:
  States(const KernelGateOptions& options, const Selection& selection, const std::string& settings,
         const std::atomic<bool>* cancel)
      : folder_(options.baseline) {
    if (options.base.empty()) {
      for (const checks::Case& item : selection.cases) read(item.op->signature.name);
      return;
    }
    for (Baseline& state : base_states(options, selection, settings, cancel)) {
      const std::string op = state.op;
      states_[op] = std::move(state);
    }
  }
  const Baseline* find(const std::string& op) const {
    const auto at = states_.find(op);
    return at == states_.end() ? nullptr : &at->second;
  }
  /// What was read of a file of the folder; null if nothing was.
  const Baseline* read_from(const std::string& path) const {
    const std::string file = file_name_of(path);
    const auto at = std::ranges::find_if(
        states_, [&](const auto& state) { return file_name_of(baseline_path(folder_, state.first)) == file; });
    return at == states_.end() ? nullptr : &at->second;
  }
  /// Why the file of an op could not be read; empty if it was, or is not there.
  const std::map<std::string, std::string>& unreadable() const { return unreadable_; }

 private:
  void read(const std::string& op) {
    if (states_.contains(op) || unreadable_.contains(op)) return;
    const std::string path = baseline_path(folder_, op);
    std::error_code none;
    if (!std::filesystem::exists(path, none)) return;
    try {
      Baseline state = read_baseline(path);
      if (state.op != op) throw BaselineError(fmt::format("['{}'] got op '{}', want '{}'", path, state.op, op));
      states_[op] = std::move(state);
    } catch (const BaselineError& error) {
      unreadable_[op] = error.what();
    }
  }

  std::string folder_;
  std::map<std::string, Baseline> states_;
  std::map<std::string, std::string> unreadable_;
};

/// Files of an op that nobody accepted yet. True if one was written.
bool write_pending(const std::string& folder, const GateRun& run, const OpGate& gate, const Baseline* before,
                   const LadderOptions& ladder) {
  if (!gate.op->left_out.empty()) return false;  // a state without them is none to accept
  const std::string path = pending_path(folder, gate.op->op->signature.name);
  Baseline next = next_state(run, gate, before, ladder);
  if (before != nullptr) {
    next.accepted = before->accepted;
    next.measured = before->measured;
    next.history = before->history;
    if (diffable_text(json_of(next)) == diffable_text(json_of(*before)) ||
        (gate.code() == ExitCode::passed && gate.changed == 0 && gate.unknown == 0)) {
      std::error_code none;
      std::filesystem::remove(path, none);
      return false;
    }
    next.accepted = {};
    next.history.clear();  // accept writes it
  }
  next.measured = measured_here(*gate.op->op);
  write_baseline(path, next);
  return true;
}

/// In CI nobody accepts: a pending file there was committed.
void note_committed_pending(const std::string& folder, std::vector<OpGate>& gates) {
  std::error_code none;
  for (OpGate& gate : gates)
    if (std::filesystem::exists(pending_path(folder, gate.op->op->signature.name), none))
      gate.stale.push_back("a pending file was committed: accept it, or delete it");
}

/// A state of an op that its library, or ampcheck, has no more: no run would ever look at it, and all stays green.
void note_unknown_ops(const KernelGateOptions& options, const States& states, std::vector<OpGate>& gates) {
  std::set<std::string> known;
  for (const checks::OpDef* op : options.plugin_ops) known.insert(op->signature.name);
  const std::string file = options.plugin_ops.empty() ? "" : file_name_of(options.plugin_ops.front()->plugin);
  for (const std::string& path : baseline_paths(options.baseline)) {
    std::string op, of;
    if (const Baseline* const state = states.read_from(path)) {
      op = state->op;
      of = state->measured.file;
    } else {
      try {
        const Baseline other = read_baseline(path);
        op = other.op;
        of = other.measured.file;
      } catch (const BaselineError&) {
        continue;  // nobody can say whose it is
      }
    }
    const std::string base = op.substr(0, op.find('.'));  // of a variant, or of a planted kernel
    if (of != file || known.contains(op) || known.contains(base) || checks::find_op(op) != nullptr) continue;
    gates.front().stale.push_back(fmt::format("'{}' is the state of '{}', an op that {} has not: delete the file", path,
                                              op, file.empty() ? "ampcheck" : "'" + file + "'"));
  }
}

ExitCode code_of(const GateRun& run, const std::vector<OpGate>& gates, std::size_t planned) {
  ExitCode code = exit_code_of(run.report, planned);
  if (code == ExitCode::findings) code = ExitCode::passed;  // which of them count, the gate says
  if (run.report.interrupted || run.report.refused > 0) code = worse(code, ExitCode::incomplete);
  for (const OpGate& gate : gates) code = worse(code, gate.code());
  return code;
}

/// Of each finding that nobody waived the first case, as check shows it.
std::string failures_text(const std::vector<OpGate>& gates, const RunFacts& facts, const Style& style) {
  std::string out;
  for (const OpGate& gate : gates)
    for (const GatedFinding& finding : gate.findings) {
      if (finding.waiver != nullptr) continue;
      const auto first = std::find_if(gate.op->convicted.begin(), gate.op->convicted.end(),
                                      [&](const CaseResult* r) { return r->code == finding.found.code; });
      out += "\n" + console_failure(**first, facts, style);
    }
  return out;
}

const char* words_of(ExitCode code, const std::vector<OpGate>& gates) {
  const bool undecided = std::ranges::any_of(gates, [](const OpGate& gate) { return gate.undecided; });
  const bool waived = std::ranges::any_of(
      gates, [](const OpGate& gate) { return std::ranges::any_of(gate.findings, &GatedFinding::let_through); });
  switch (code) {
    case ExitCode::passed:
      if (waived) return "no finding but what waivers let through (above)";
      if (std::ranges::any_of(gates, &OpGate::worse))
        return "no number is wrong, and errors are worse than accepted: --strict fails then";
      return undecided ? "no number is wrong; too few bits changed to tell whether errors are worse"
                       : "no number is wrong, and errors are no worse than accepted";
    case ExitCode::findings: return "not as accepted";
    case ExitCode::baseline: return "there is no accepted state, or a stale one";
    default: return exit_code_text(code);
  }
}

std::string last_line(const KernelGateOptions& options, ExitCode code, std::size_t pending) {
  std::string out;
  if (pending > 0)
    out += fmt::format("{} pending in '{}': ampcheck review --baseline {} shows what changed, accept {}\n",
                       pending == 1 ? "1 op is" : fmt::format("{} ops are", pending), options.baseline,
                       shell_word(options.baseline),
                       code == ExitCode::findings ? "takes over what is no finding" : "takes it over");
  if (code == ExitCode::baseline && pending == 0 && options.base.empty())
    out += "Run gate outside CI to write pending files, then ampcheck accept\n";
  return out;
}

struct Outcome {
  GateRun run;
  std::vector<OpGate> gates;
  std::vector<const Baseline*> before;
  LadderOptions ladder;
};

Outcome judged(const KernelGateOptions& options, const Selection& selection, const States& states,
               const std::atomic<bool>* cancel, const KnownRun& known) {
  Outcome out;
  out.ladder = {settings_of(options), takes_whole_ops(options), options.strict,
                options.strict_bits,  !options.base.empty(),    options.today.empty() ? today() : options.today,
                options.min_power};
  ProgressLine progress;
  std::size_t failed = 0;
  out.run = gate_run(
      options, selection, cancel,
      [&](std::size_t done, std::size_t all, const CaseResult& last) {
        failed += convicts(last.verdict);
        progress.show(done, all, failed, last.op);
      },
      known);
  std::vector<std::optional<checks::zoo::DetectionPower>> power;
  for (const GatedOp& op : out.run.ops) {
    out.before.push_back(states.find(op.op->signature.name));
    power.push_back(checks::zoo::detection_power(*op.op, op.calls, options.relations, cancel));
  }
  out.gates = judge_ops(out.run, out.before, std::move(power), out.ladder);
  for (OpGate& gate : out.gates)
    if (const auto at = states.unreadable().find(gate.op->op->signature.name); at != states.unreadable().end())
      gate.stale.push_back(at->second);
  return out;
}

/// What a reader of a report is told beside the cases.
void add_gate_lines(const std::vector<OpGate>& gates, RunFacts& facts) {
  for (const OpGate& gate : gates) {
    const auto add = [&](const std::string& text, bool failed, bool warns = false) {
      facts.gate.push_back({gate.op->op->signature.name, gate.op->op->plugin, gate.verdict(), text, failed, warns});
    };
    for (const std::string& text : gate.failures) add(text, true);
    for (const std::string& text : gate.stale) add(text, true);
    if (!gate.known) add("there is no accepted state to compare with", true);
    if (!gate.missing.empty()) add(fmt::format("{} cases of the baseline did not run", gate.missing.size()), true);
    if (gate.code() == ExitCode::passed)
      add(gate.changed == 0 ? "every bit is as accepted"
                            : fmt::format("bits changed in {} of {} cases; {}", gate.changed, gate.compared,
                                          gate.worse()     ? "errors are worse"
                                          : gate.undecided ? "too few to tell whether errors are worse"
                                                           : "errors are no worse"),
          false, gate.worse());
  }
}

ExitCode written(const KernelGateOptions& options, const Outcome& outcome, const RunFacts& facts, ExitCode code,
                 std::size_t pending) {
  ExitCode out = ExitCode::passed;
  const auto attempt = [&](auto write) {
    try {
      write();
    } catch (const WriteError& error) {
      write_stderr(fmt::format("ampcheck: {}\n", error.what()));
      out = ExitCode::not_written;
    }
  };
  attempt([&] {
    if (!options.json) {
      const Style style = stdout_style();
      write_stdout(gate_text(outcome.gates, style) + speeds_text(outcome.gates, style) + variants_text(facts.variants) +
                   failures_text(outcome.gates, facts, style) + "\n" + last_line(options, code, pending) +
                   fmt::format("Exit code {}: {}\n", static_cast<int>(code), words_of(code, outcome.gates)));
      return;
    }
    Json json = {{"schema", "ampcheck.gate/1"},
                 {"exit_code", static_cast<int>(code)},
                 {"arch", outcome.run.arch},
                 {"settings", outcome.ladder.settings},
                 {"pending", pending},
                 {"ops", gate_json(outcome.gates)},
                 {"variants", variants_json(facts.variants)}};
    write_stdout(json_text(json));
  });
  for (const ReportFile& file : options.reports)
    attempt([&] { write_file(file.path, file.text(outcome.run.report, facts)); });
  if (!options.record.empty())
    attempt([&] { write_file(options.record, record_text(states_of(outcome.run, outcome.ladder.settings))); });
  return out;
}

void require_options(const KernelGateOptions& options) {
  if (options.baseline.empty() && options.base.empty() && options.record.empty())
    throw UsageError(
        "[gate] got neither --baseline nor --base, want one of them: a folder of accepted states, or another build");
  if (options.ranks == options.run_file.empty())
    throw UsageError(options.ranks ? "[--engine] got mpi without --run-file FOLDER, want a folder that all ranks see: "
                                     "parts and results are kept there"
                                   : "[--run-file] got a folder without --engine mpi, want both");
  if (options.ranks && options.time_budget > 0)
    throw UsageError("[--engine] got mpi beside --time-budget, want mpi alone: ranks share the cases");
  if (options.strict_speed && !is_build(options.base))
    throw UsageError("[--strict-perf] got no library in --base, want one to be timed beside");
  if (!options.today.empty() && !is_date(options.today))
    throw UsageError("[--today] got '" + options.today + "', want a day, as 2026-12-31");
  require_reports(options.reports, options.json, {{"--record", options.record}});
  if (!options.record.empty()) require_writable(options.record);
}

}  // namespace

ExitCode gate_command(const KernelGateOptions& given) {
  KernelGateOptions options = given;
  require_options(options);
  take_kernels_apart(options.plugin_ops, options, options.device);
  return options.ranks ? gate_in_ranks(options) : gate_with(options, {});
}

std::string settings_of(const KernelGateOptions& o) {
  std::string out = fmt::format("regimes {}, shapes {}, seeds {} from {}", kSets[static_cast<int>(o.set)],
                                kShapes[static_cast<int>(o.shapes.kind)], o.seeds, o.first_seed);
  for (const auto& [symbol, extent] : o.shapes.extents) out += fmt::format(", {}={}", symbol, extent);
  for (const auto& [symbol, range] : o.shapes.ranges)
    out += fmt::format(", {}={}..{}", symbol, range.first, range.last);
  for (const Dtype dtype : o.dtypes) out += std::string(", ") + name(dtype);
  out += o.real == RealTensors::off ? ", no real tensors" : o.real == RealTensors::only ? ", real tensors only" : "";
  return out + (o.inputs.empty() ? "" : ", own inputs");
}

ExitCode gate_with(const KernelGateOptions& options, const KnownRun& known) {
  RunFacts facts = begin_run(options, options);
  Selection selection = select_cases(options);
  if (selection.cases.empty()) {
    write_stderr(nothing_selected(options));
    return ExitCode::nothing_ran;
  }
  require_variants(options, selection);
  const bool all_certified = drop_uncertified(selection);
  facts.planned = selection.cases.size();
  InterruptGuard guard([] {});
  const bool recording = options.baseline.empty() && options.base.empty();
  const States states(options, recording ? Selection() : selection, settings_of(options), guard.flag());
  Outcome outcome = judged(options, selection, states, guard.flag(), known);
  if (is_build(options.base)) add_speeds(options, outcome.gates, guard.flag());
  guard.finish();
  if (guard.interrupted()) end_by_signal();
  std::size_t pending = 0;
  const bool beside_baseline = options.base.empty() && !recording;
  if (beside_baseline) note_unknown_ops(options, states, outcome.gates);
  if (beside_baseline && in_ci()) note_committed_pending(options.baseline, outcome.gates);
  std::string unwritten;  // said behind the report: what was found is no less found
  try {
    if (beside_baseline && !in_ci())
      for (std::size_t i = 0; i < outcome.gates.size(); ++i)
        pending += write_pending(options.baseline, outcome.run, outcome.gates[i], outcome.before[i], outcome.ladder);
  } catch (const WriteError& error) {
    unwritten = error.what();
  }
  if (recording)
    for (OpGate& gate : outcome.gates) gate.known = true;
  ExitCode code = code_of(outcome.run, outcome.gates, facts.planned);
  if (!all_certified) code = worse(code, ExitCode::usage);
  add_gate_lines(outcome.gates, facts);
  if (beside_baseline) facts.histories = histories_of(outcome.gates, outcome.before);
  if (options.variants) facts.variants = variant_classes(outcome.run.ops);
  code = worse(code, written(options, outcome, facts, code, pending));
  if (unwritten.empty()) return code;
  write_stderr("ampcheck: " + unwritten + "\n");
  return worse(code, ExitCode::not_written);
}

}  // namespace ampcheck::tools
