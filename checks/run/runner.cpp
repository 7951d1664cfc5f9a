// SPDX-License-Identifier: Apache-2.0
#include "checks/run/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <map>
#include <mutex>
#include <set>

#include "checks/case/case_run.h"
#include "checks/data/regimes.h"
#include "checks/explain/further_causes.h"
#include "checks/judge/batch_invariance.h"
#include "checks/judge/bias.h"
#include "checks/judge/black_box.h"
#include "checks/judge/correlation.h"
#include "checks/judge/declared_range.h"
#include "checks/judge/forward_mode.h"
#include "checks/judge/judge.h"
#include "checks/judge/kinks.h"
#include "checks/judge/loss_scale.h"
#include "checks/judge/relations.h"
#include "checks/reach/aim.h"
#include "checks/reach/coverage.h"
#include "checks/reach/decide.h"
#include "checks/reach/visible.h"
#include "checks/run/budget.h"
#include "checks/run/conclude.h"
#include "checks/run/sampled.h"
#include "checks/run/shrink.h"
#include "checks/run/shrink_values.h"
#include "reference/certify/certify.h"
#include "src/error.h"
#include "src/parallel.h"
#include "src/thread_scope.h"

namespace ampcheck::checks {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void dump_inputs(Dump* dump, const CaseRun& run, const NamedValues& cotangents) {
  if (dump == nullptr) return;
  for (const TensorSpec& spec : run.op.signature.inputs)
    if (run.call.has(spec))
      dump->entries.push_back(
          {spec.name, run.call.shape(spec), run.call.dtype(spec), run.reference.inputs().at(spec.name)});
  for (const Written& output : run.outputs)
    if (!output.saved)
      dump->entries.push_back(
          {gradient_name(output.name), output.shape, output.dtype, cotangents.at(gradient_name(output.name))});
}

NamedValues saved_values(const CaseRun& run, const LaunchResult& forward) {
  NamedValues out;
  for (const Written& output : run.outputs)
    if (output.saved) out[output.name] = to_doubles(forward.written.at(output.name).view());
  return out;
}

/// Whether what is wanted is known: How::first.
bool ends_here(const CaseRun& run) {
  return run.options.first && std::any_of(run.checks.begin(), run.checks.end(), wrong_value);
}

/// Judges what forward wrote. True if it vouches for every saved element: finite, inside its interval, none left open.
bool judge_forward(CaseRun& run, const LaunchResult& forward, Dump* dump) {
  std::vector<Subject> subjects;
  for (const Written& output : run.outputs)
    if (!output.saved || run.reference.inputs_finite())  // rule R9
      subjects.push_back({{CheckId::Kind::forward, output.name}, &output, forward.written.at(output.name).view()});
  bool vouched = run.reference.inputs_finite();
  std::vector<CheckResult> checks = judge(run, subjects, Pass::forward);
  explain_further(run, subjects, Pass::forward, checks);
  for (std::size_t k = 0; k < checks.size(); ++k) {
    if (subjects[k].tensor->saved) vouched &= checks[k].failed == 0 && checks[k].range == 0;
    save(dump, *subjects[k].tensor, subjects[k].got, run, Pass::forward);
    run.add(std::move(checks[k]));
  }
  return vouched;
}

/// Judges gradients at the kernel's own saved values (sharp), and from the inputs (wide) unless the sharp answer
/// settles it: what is right for saved values that are right themselves is right.
void judge_backward(CaseRun& run, const std::vector<Subject>& subjects, bool has_saved, bool vouched) {
  std::vector<CheckResult> sharp, wide;
  if (has_saved && run.reference.inputs_finite()) sharp = judge(run, subjects, Pass::backward_at_saved);
  const bool settled = vouched && !sharp.empty() &&
                       std::all_of(sharp.begin(), sharp.end(), [](const CheckResult& c) { return c.failed == 0; });
  if (!settled) wide = judge(run, subjects, Pass::backward);
  explain_further(run, subjects, Pass::backward, wide);
  for (std::size_t k = 0; k < subjects.size(); ++k) {
    if (!wide.empty()) run.add(std::move(wide[k]));
    if (sharp.empty()) continue;
    sharp[k].id.at_saved = true;
    run.add(std::move(sharp[k]));
  }
}

/// Judges what forward and backward wrote. Returns the backward run on which the relations are checked.
BackwardRun check_values(CaseRun& run, const LaunchResult& forward, Dump* dump) {
  const bool vouched = judge_forward(run, forward, dump);
  if (ends_here(run)) return {};
  const NamedValues saved = saved_values(run, forward);
  if (!saved.empty()) run.reference.set_saved(saved);
  BackwardRun kept;
  for (int probe = 0; probe < probe_count(run.call); ++probe) {
    const NamedValues& cotangents = run.cotangents(probe);
    if (probe == 0) dump_inputs(dump, run, cotangents);
    BackwardRun backward;
    backward.tensors = run.backward_tensors(run.reference.inputs(), forward, cotangents, 0);
    backward.result = run.run_backward(backward.tensors);
    std::vector<Subject> subjects;
    for (const Written& gradient : run.gradients)
      subjects.push_back({{.kind = CheckId::Kind::backward, .tensor = gradient.name, .probe = probe},
                          &gradient,
                          backward.result.written.at(gradient.name).view()});
    judge_backward(run, subjects, !saved.empty(), vouched);
    for (const Subject& subject : subjects)
      if (probe == 0) save(dump, *subject.tensor, subject.got, run, Pass::backward);
    if (ends_here(run)) break;
    if (probe == relations_probe(run.call)) kept = std::move(backward);
  }
  return kept;
}

/// A low accumulator is a property of the kernel: if most failing cases of an op whose causes were looked for are wrong
/// in ways that it does not explain, the few that it fits are chance.
void settle_contract_by_op(std::vector<CaseResult>& cases) {
  std::map<std::string, std::pair<int, int>> seen;  // op -> cases that a contract explains, cases wrong otherwise
  for (const CaseResult& c : cases) {
    seen[c.op].first += c.explained && c.verdict == Verdict::precision_contract;
    seen[c.op].second += c.explained && c.verdict == Verdict::bug;
  }
  for (CaseResult& c : cases) {
    if (c.verdict != Verdict::precision_contract || seen[c.op].first >= seen[c.op].second) continue;
    c.verdict = Verdict::bug, c.code = Code::ac101;
    for (CheckResult& check : c.checks)
      if (is_contract_departure(check.code))
        check.code = Code::ac101, check.verdict = Verdict::bug, check.cause.clear();
  }
}

/// Whether the worst elements are off by no more than another algebra mostly makes of them.
bool off_by_little(const CheckResult& check) {
  constexpr double kLittle = 0x1p-6;
  return !check.worst.empty() && std::ranges::all_of(check.worst, [](const Element& e) {
    return std::fabs(e.got - e.want) <= kLittle * std::fabs(e.want);
  });
}

/// Nearly every backward follows another algebra than the derivative of its formula, and a forward that is off by
/// little may. Where nothing else is known, the author of a kernel is told.
void suggest_forms(std::vector<CaseResult>& cases) {
  for (CaseResult& c : cases)
    for (CheckResult& check : c.checks) {
      if (c.plugin.empty()) continue;
      const bool backward = check.id.kind == CheckId::Kind::backward,
                 unknown = check.code == Code::ac101 && check.cause.empty();
      if (unknown && backward)
        check.cause =
            "none found; if the backward follows another algebra than the formula's derivative, add that as a form, "
            "and it is judged by it";
      if (unknown && !backward && off_by_little(check))
        check.cause =
            "none found; if the kernel follows another algebra than the formula (a running mean, one pass, a sum of "
            "other terms), add that as a form, and it is judged by it";
      if (check.code == Code::ac304 && !check.cause.empty())
        check.cause += "; a kernel of another algebra than the formula's is judged by a form that says it";
    }
}

/// What kernels printed, an op a line; a crash says it in its cause.
std::vector<std::string> printed_by(const std::vector<CaseResult>& cases) {
  std::map<std::string, std::pair<std::int64_t, std::string>> seen;
  for (const CaseResult& result : cases)
    for (const CheckResult& check : result.checks) {
      if (check.id.kind != CheckId::Kind::printed) continue;
      auto& [count, first] = seen[result.op];
      if (count++ == 0) first = fmt::format("in '{}' {}", result.name, check.note);
    }
  std::vector<std::string> out;
  for (const auto& [op, all] : seen)
    out.push_back(fmt::format("{}: printed in {} case{}; {}", op, all.first, all.first == 1 ? "" : "s", all.second));
  return out;
}

CaseResult not_run(const Case& item, const std::string& why) {
  CaseResult out;
  out.name = item.call.str(item.op->signature), out.op = item.op->signature.name, out.plugin = item.op->plugin;
  out.dtype = name(item.call.storage), out.verdict = Verdict::skipped, out.note = why;
  return out;
}

/// A reference that is not what it says judges nothing. An op without gradients and further forms has nothing to
/// certify.
void require_certified(const Certificate& certificate) {
  if (certificate.points == 0 || certificate.digits >= reference::kCertifiedDigits) return;
  throw Error(
      fmt::format("[{}] certificate of the reference, got {:.1f} digits, want {:.0f}: it may not judge (ampcheck "
                  "certify says more)",
                  certificate.op, certificate.digits, reference::kCertifiedDigits));
}

}  // namespace

CaseResult run_case(const OpDef& op, const OpCall& call, const RunOptions& options, Dump* dump) {
  const auto start = std::chrono::steady_clock::now();
  CaseResult result;
  result.name = call.str(op.signature);
  result.op = op.signature.name;
  result.plugin = op.plugin;
  result.dtype = name(call.storage);
  try {
    CaseRun run(op, call, options);
    try {
      const LaunchResult forward = run.run_forward(run.forward_tensors(run.reference.inputs(), 0));
      const BackwardRun backward =
          op.forms.empty() ? check_differences(run, forward) : check_values(run, forward, dump);
      if (!ends_here(run)) {
        check_forward_mode(run, forward, dump);
        check_declared_range(run, forward);
        if (options.relations && !options.first)
          check_relations(run, forward, backward), check_bias(run), check_correlation(run);
        if (!op.forms.empty() && !options.first) calibrate(run, forward), note_loss_scales(run);
      }
    } catch (const EnvironmentError&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      run.add_relation({CheckId::Kind::call}, Code::ac501, 1, 1, error.what());
    }
    conclude(run, result);
  } catch (const EnvironmentError& error) {
    result.verdict = Verdict::skipped;
    result.note = error.what();
  } catch (const std::bad_alloc&) {  // of the judge, which says nothing of the kernel
    result.verdict = Verdict::skipped;
    result.note = "[memory] its check took more than there is";
    result.checks.clear();
  }
  result.seconds = seconds_since(start);
  return result;
}

CaseResult run_one(const Case& item, const How& how, const RunOptions& options) {
  if (options.run) {
    CaseResult out = options.run(*item.op, item.call, how);
    out.explained = how.explain;
    return out;
  }
  RunOptions own = options;
  own.explain = how.explain, own.power = how.power, own.first = how.first;
  CaseResult out = how.sampled ? run_sampled(*item.op, item.call, own) : run_case(*item.op, item.call, own);
  out.explained = how.explain;
  if (how.values && convicts(out.verdict)) out.values = values_that_matter(*item.op, item.call, out, own);
  return out;
}

namespace {

std::vector<const OpDef*> ops_of(const std::vector<Case>& cases) {
  std::vector<const OpDef*> out;
  for (const Case& c : cases)
    if (std::find(out.begin(), out.end(), c.op) == out.end()) out.push_back(c.op);
  return out;
}

/// The cases of a run, their results, and what they saw; cases come to it as others show what for.
class Judging {
 public:
  Judging(const std::vector<Case>& chosen, const RunOptions& options, Budget& budget, bool explained)
      : cases(chosen), options_(options), budget_(budget), explained_(explained) {
    judge_from(0);
  }

  std::vector<Case> cases;
  std::vector<CaseResult> results;  ///< of each case
  std::vector<char> ran;
  std::map<std::string, Coverage> coverage;
  std::int64_t refused = 0;
  std::vector<Aimed> aimed;
  std::vector<Decision> decided;

  bool cancelled() const { return options_.cancel != nullptr && options_.cancel->load(); }

  /// What the cases left unseen of the formulas, and the outputs that they left blind.
  void go_on() {
    const auto stops = [&] { return cancelled() || (options_.time_budget > 0 && refused > 0); };
    if (options_.aim && !stops()) add(aimed_cases(cases, options_.cancel));
    if (options_.aim && !stops()) add(aimed_at_roundings(cases, coverage, options_.cancel));
    if (!options_.brief || stops()) return;
    decided = decisions(cases, results, options_.cancel);
    std::set<std::string> names;
    for (const Case& item : cases) names.insert(name_of(item));
    const std::size_t before = cases.size();
    for (const Decision& decision : decided)
      for (const OpCall& call : decision.at)
        if (names.insert(name_of({decision.op, call})).second) cases.push_back({decision.op, call});
    judge_from(before);
  }

 private:
  static std::string name_of(const Case& item) { return item.op->plugin + " " + item.call.str(item.op->signature); }

  void add(std::vector<Aimed> more) {
    const std::size_t before = cases.size();
    for (const Aimed& one : more)
      for (const OpCall& call : one.calls) cases.push_back({one.op, call});
    judge_from(before);
    std::move(more.begin(), more.end(), std::back_inserter(aimed));
  }

  void judge_from(std::size_t first) {
    results.resize(cases.size()), ran.resize(cases.size(), 0);
    // Where time may run out, cases start in this order, whichever thread takes them.
    const std::vector<std::size_t> order =
        options_.time_budget > 0 ? fair_order({cases.begin() + static_cast<std::ptrdiff_t>(first), cases.end()})
                                 : std::vector<std::size_t>();
    std::atomic<std::size_t> next = 0;
    parallel_for(static_cast<std::int64_t>(cases.size() - first), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = begin; k < end; ++k)
        if (cancelled() || !judge(first + (order.empty() ? static_cast<std::size_t>(k) : order[next++]))) return;
    });
  }

  /// False if the run was interrupted.
  bool judge(std::size_t i) {
    const Budget::Share share = budget_.share(cases[i]);
    if (!share.refused.empty()) {
      results[i] = not_run(cases[i], share.refused);
      const std::lock_guard lock(mutex_);
      ran[i] = 1, ++done_, ++refused;
      return true;
    }
    try {
      results[i] = run_one(cases[i], {share.sampled, explained_}, options_);
    } catch (const Interrupted&) {
      return false;
    }
    const Coverage seen = share.sampled ? Coverage() : coverage_of(*cases[i].op, cases[i].call);
    const std::lock_guard lock(mutex_);
    ran[i] = 1;
    coverage[cases[i].op->signature.name].merge(seen);
    if (options_.progress) options_.progress(++done_, cases.size(), results[i]);
    return true;
  }

  const RunOptions& options_;
  Budget& budget_;
  const bool explained_;
  std::mutex mutex_;
  std::size_t done_ = 0;
};

/// Certifies every op; throws Error where a reference may not judge.
std::vector<Certificate> certify_all(const std::vector<const OpDef*>& ops, const std::atomic<bool>* cancel) {
  std::vector<Certificate> out(ops.size());
  parallel_for(static_cast<std::int64_t>(ops.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin);
         i < static_cast<std::size_t>(end) && !(cancel != nullptr && cancel->load()); ++i)
      if (!ops[i]->forms.empty()) out[i] = certificate_of(*ops[i]);
  });
  for (const Certificate& certificate : out) require_certified(certificate);
  return out;
}

}  // namespace

Report run_cases(const std::vector<Case>& chosen, const RunOptions& options) {
  constexpr std::size_t kFew = 3;     // explained as they are judged, not in a second run
  constexpr std::size_t kFewOps = 3;  // of which a reader wants to know where they were aimed at
  const auto start = std::chrono::steady_clock::now();
  Budget budget(options);
  Report report;
  const ThreadScope scope(options.jobs);
  const std::vector<const OpDef*> ops = ops_of(chosen);
  report.certificates = certify_all(ops, options.cancel);
  const bool explained = options.explain && (!options.brief || chosen.size() <= kFew);
  Judging judging(chosen, options, budget, explained);
  judging.go_on();
  const std::vector<Case>& cases = judging.cases;
  const auto cancelled = [&] { return judging.cancelled(); };
  for (std::size_t i = 0; i < cases.size(); ++i)
    if (judging.ran[i]) report.cases.push_back(std::move(judging.results[i]));
  report.notes = convict_unseen_outputs(report.cases);
  for (std::string& note : decision_notes(judging.decided, report.cases, ops.size() <= kFewOps))
    report.notes.push_back(std::move(note));
  if (!cancelled()) say_where_visible(cases, report.cases);
  if (options.brief && !explained && !cancelled()) explain_failures(cases, options, report.cases);
  settle_contract_by_op(report.cases);
  if (explained || options.brief) suggest_forms(report.cases);
  if (options.brief && !cancelled()) shrink_failures(cases, options, report.cases);
  for (const OpDef* op : ops)
    report.coverage.emplace_back(op->signature.name, judging.coverage[op->signature.name].contributions());
  std::erase_if(report.certificates,
                [](const Certificate& certificate) { return certificate.op.empty(); });  // of an op without a formula
  for (const OpDef* op : ops)
    if (op->forms.empty()) report.notes.push_back(black_box_note(op->signature.name, report.cases));
  for (std::string& note : aimed_notes(judging.aimed, ops.size() <= kFewOps)) report.notes.push_back(std::move(note));
  for (std::string& note : untested_bias(report.cases)) report.notes.push_back(std::move(note));
  for (std::string& note : other_subgradients(report.cases)) report.notes.push_back(std::move(note));
  for (std::string& note : printed_by(report.cases)) report.notes.push_back(std::move(note));
  for (std::string& note : batch_variances(report.cases)) report.notes.push_back(std::move(note));
  report.refused = judging.refused;
  report.interrupted = cancelled();
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace ampcheck::checks
