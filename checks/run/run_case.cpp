// SPDX-License-Identifier: Apache-2.0
#include "checks/run/run_case.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "checks/case/case_run.h"
#include "checks/data/regimes.h"
#include "checks/explain/further_causes.h"
#include "checks/explain/notes.h"
#include "checks/judge/bias.h"
#include "checks/judge/black_box.h"
#include "checks/judge/call_history.h"
#include "checks/judge/correlation.h"
#include "checks/judge/declared_range.h"
#include "checks/judge/forward_mode.h"
#include "checks/judge/judge.h"
#include "checks/judge/loss_scale.h"
#include "checks/judge/lost_to_range.h"
#include "checks/judge/relations.h"
#include "checks/reach/coverage.h"
#include "checks/run/conclude.h"
#include "checks/run/sampled.h"
#include "checks/run/shrink_values.h"
#include "src/error.h"
#include "src/launch_facts.h"

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
    if (output.reaches_backward()) out[output.name] = to_doubles(forward.written.at(output.name).view());
  return out;
}

/// Whether what is wanted is known: How::first.
bool ends_here(const CaseRun& run) {
  return run.options.first && std::any_of(run.checks.begin(), run.checks.end(), wrong_value);
}

/// Judges what forward wrote. True if it vouches for every saved element: finite, inside its interval, none left open.
bool judge_forward(CaseRun& run, const LaunchResult& forward, Notes& notes, Dump* dump) {
  std::vector<Subject> subjects;
  for (const Written& output : run.outputs)
    if (!output.saved || run.reference.inputs_finite())  // rule R9
      subjects.push_back({{CheckId::Kind::forward, output.name}, &output, forward.written.at(output.name).view()});
  bool vouched = run.reference.inputs_finite();
  std::vector<CheckResult> checks = judge(run, subjects, Pass::forward, notes);
  explain_further(run, subjects, Pass::forward, notes, checks);
  name_range(run, subjects, Pass::forward, checks);
  for (std::size_t k = 0; k < checks.size(); ++k) {
    if (subjects[k].tensor->reaches_backward()) vouched &= checks[k].failed == 0 && checks[k].range == 0;
    save(dump, *subjects[k].tensor, subjects[k].got, run, Pass::forward);
    run.add(std::move(checks[k]));
  }
  return vouched;
}

/// Judges gradients at the kernel's own saved values (sharp), and from the inputs (wide) unless the sharp answer
/// settles it: what is right for saved values that are right themselves is right.
void judge_backward(CaseRun& run, const std::vector<Subject>& subjects, bool has_saved, bool vouched, Notes& notes) {
  std::vector<CheckResult> sharp, wide;
  if (has_saved && run.reference.inputs_finite()) sharp = judge(run, subjects, Pass::backward_at_saved, notes);
  const bool settled = vouched && !sharp.empty() &&
                       std::all_of(sharp.begin(), sharp.end(), [](const CheckResult& c) { return c.failed == 0; });
  if (!settled) wide = judge(run, subjects, Pass::backward, notes);
  explain_further(run, subjects, Pass::backward, notes, wide);
  name_range(run, subjects, Pass::backward, wide);
  name_range(run, subjects, Pass::backward_at_saved, sharp);
  for (std::size_t k = 0; k < subjects.size(); ++k) {
    if (!wide.empty()) run.add(std::move(wide[k]));
    if (sharp.empty()) continue;
    sharp[k].id.at_saved = true;
    run.add(std::move(sharp[k]));
  }
}

/// Judges what forward and backward wrote. Returns the backward run on which the relations are checked.
BackwardRun check_values(CaseRun& run, const LaunchResult& forward, Notes& notes, Dump* dump) {
  const bool vouched = judge_forward(run, forward, notes, dump);
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
    judge_backward(run, subjects, !saved.empty(), vouched, notes);
    for (const Subject& subject : subjects)
      if (probe == 0) save(dump, *subject.tensor, subject.got, run, Pass::backward);
    if (ends_here(run)) break;
    if (probe == relations_probe(run.call)) kept = std::move(backward);
  }
  return kept;
}

/// Every check of a case, until it is known what is asked.
void check_all(CaseRun& run, Dump* dump) {
  Notes notes;
  const bool black_box = run.op.forms.empty();
  if (run.options.relations && writes_later(run)) return;
  const LaunchResult forward = run.run_forward(run.forward_tensors(run.reference.inputs(), 0));
  const BackwardRun backward = black_box ? check_differences(run, forward) : check_values(run, forward, notes, dump);
  if (ends_here(run)) return;
  check_forward_mode(run, forward, dump, notes);
  check_declared_range(run, forward);
  if (run.options.first) return;
  if (run.options.relations) {
    check_relations(run, forward, backward);
    check_bias(run);
    check_correlation(run);
    check_call_history(run, forward);
  }
  if (!black_box) {
    calibrate(run, forward);
    note_loss_scales(run);
  }
}

}  // namespace

namespace {

/// What a simulated GPU knows of a finding: the source lines that it comes from.
void add_facts(std::vector<CheckResult>& checks) {
  using Kind = LaunchFact::Kind;
  for (CheckResult& check : checks) {
    if (!convicts(check.verdict)) continue;
    const bool whole = check.code == Code::ac401 || is_wrong_number(check.code);
    for (const LaunchFact& fact : launch_facts()) {
      if (fact.text.empty()) continue;
      const bool fits = fact.kind == Kind::unwritten ? whole && fact.tensor == check.id.tensor
                        : fact.kind == Kind::born
                            ? check.code == Code::ac102 || check.code == Code::ac103 || check.code == Code::ac203
                        : fact.kind == Kind::lost ? is_wrong_number(check.code)
                                                  : is_contract_departure(check.code) || check.code == Code::ac101;
      if (fits) check.cause += (check.cause.empty() ? "" : "; ") + fact.text;
    }
  }
}

CaseResult judged_case(const OpDef& op, const OpCall& call, const RunOptions& options, Dump* dump) {
  CaseResult result;
  result.name = call.str(op.signature);
  result.op = op.signature.name;
  result.plugin = op.plugin;
  result.dtype = name(call.storage);
  forget_launch_facts();
  forget_line_errors();
  try {
    CaseRun run(op, call, options);
    try {
      check_all(run, dump);
    } catch (const EnvironmentError&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      run.add_relation({CheckId::Kind::call}, Code::ac501, 1, 1, error.what());
    }
    if (op.kernel.host != nullptr &&
        std::ranges::any_of(run.checks, [](const CheckResult& c) { return c.code == Code::ac401; }))
      op.kernel.host->distrust();  // what is not written may come later
    add_facts(run.checks);
    conclude(run, result);
    result.lines = take_line_errors();
  } catch (const EnvironmentError& error) {
    result.verdict = Verdict::skipped;
    result.note = error.what();
  }
  return result;
}

}  // namespace

bool is_left_out(const CaseResult& result) {
  return result.verdict == Verdict::skipped &&
         (result.note.starts_with(kForMemory) || result.note.starts_with(kProcessLost));
}

CaseResult run_case(const OpDef& op, const OpCall& call, const RunOptions& options, Dump* dump) {
  const auto start = std::chrono::steady_clock::now();
  CaseResult result;
  RunOptions own = options;
  for (bool done = false; !done; own.explain = false) {
    try {
      result = judged_case(op, call, own, dump);
      if (options.explain && !own.explain) result.note = kNotExplained;
      done = true;
    } catch (const std::bad_alloc&) {              // of the judge, which says nothing of the kernel
      if (dump != nullptr) dump->entries.clear();  // the next try writes its own
      if (own.explain) continue;
      result = {};
      result.name = call.str(op.signature);
      result.op = op.signature.name;
      result.plugin = op.plugin;
      result.dtype = name(call.storage);
      result.verdict = Verdict::skipped;
      result.note = kNoMemory;
      done = true;
    }
  }
  result.seconds = seconds_since(start);
  return result;
}

CaseResult verdict_of_case(const OpDef& op, const OpCall& call, const RunOptions& options) {
  CaseResult result = run_case(op, call, options);
  if (is_left_out(result)) throw std::bad_alloc();
  return result;
}

CaseResult run_one(const Case& item, const How& how, const RunOptions& options) {
  if (options.run) {
    CaseResult out = options.run(*item.op, item.call, how);
    out.explained = how.explain;
    return out;
  }
  RunOptions own = options;
  own.explain = how.explain;
  own.power = how.power;
  own.first = how.first;
  CaseResult out = how.sampled ? run_sampled(*item.op, item.call, own) : run_case(*item.op, item.call, own);
  out.explained = how.explain;
  if (how.values && convicts(out.verdict)) out.values = values_that_matter(*item.op, item.call, out, own);
  return out;
}

}  // namespace ampcheck::checks
