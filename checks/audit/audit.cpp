// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/audit/audit.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <mutex>
#include <span>

#include "checks/audit/form_needed.h"
#include "checks/audit/gate_audit.h"
#include "checks/data/regimes.h"
#include "checks/explain/diagnosis.h"
#include "checks/explain/reproduced.h"
#include "checks/run/runner.h"
#include "checks/run/shrink.h"
#include "src/error.h"
#include "src/parallel.h"
#include "src/thread_scope.h"

namespace ampcheck::checks::zoo {

namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Whether any of the words, separated by |, stands in the text.
bool names_any(const std::string& words, const std::string& text) {
  for (std::size_t start = 0; start <= words.size();) {
    const std::size_t end = std::min(words.find('|', start), words.size());
    if (end > start && text.find(lower(words.substr(start, end - start))) != std::string::npos) return true;
    start = end + 1;
  }
  return false;
}

/// What is said of a kernel: of the first case that convicts it, and of another one that says why where that does not.
struct Conviction {
  CaseResult result;
  OpCall call;
};

void note_conviction(const Conviction& first, const Conviction& why, const RunOptions& options, Trial& trial) {
  const Specimen& specimen = *trial.specimen;
  trial.case_name = first.result.name;
  trial.code = first.result.code;
  trial.verdict = first.result.verdict;
  trial.exact_class = first.result.verdict == specimen.due;
  trial.right_class = trial.exact_class || first.result.verdict == specimen.also;
  const CheckResult *const check = deciding_check(first.result), *const claim = deciding_check(why.result);
  if (check == nullptr || claim == nullptr) return;
  trial.cause = check->name() + ": " + check->cause;
  trial.wrong_cause = names_a_cause(*check);
  trial.right_cause = names_any(specimen.cause, lower(std::string(text_of(check->code).title) + "; " + check->cause));
  // A claim in other words than the specimen's is false where it does not hold.
  if (trial.wrong_cause && !trial.right_cause)
    trial.right_cause = trial.reproduced = reproduced(specimen.op, why.call, *claim, options);
  trial.wrong_cause &= !trial.right_cause;
}

/// The first of these that says why the kernel fails as it does in the first; the first itself if none does. As in a
/// report (explain_failures()): of those that fail alike the next two, and of the small ones after these the first, one
/// in the middle and the last.
Conviction that_says_why(const OpDef& op, const Conviction& first, std::span<const OpCall> others,
                         const RunOptions& options, std::int64_t& cases) {
  constexpr std::size_t kNext = 2;
  std::size_t next = 0;
  std::vector<OpCall> alike;
  RunOptions quick = options;
  quick.explain = false;
  for (const OpCall& call : others) {
    ++cases;
    const CaseResult seen = verdict_of_case(op, call, quick);
    if (!may_say_why(seen, first.result)) continue;
    if (next == kNext) {
      if (is_cheap_to_explain(seen)) alike.push_back(call);
      continue;
    }
    ++next;
    if (CaseResult result = verdict_of_case(op, call, options); gives_a_reason(result))
      return {std::move(result), call};
  }
  for (const std::size_t k : that_differ(alike.size()))
    if (CaseResult result = verdict_of_case(op, alike[k], options); gives_a_reason(result))
      return {std::move(result), alike[k]};
  return first;
}

const OpDef& built_in(const Specimen& specimen) {
  return *find_op(specimen.name().substr(0, specimen.name().find('.')));
}

void ask_gates(const OpCall& call, Trial& trial) {
  const std::vector<char> rejected = rejected_by_gates(trial.specimen->op, built_in(*trial.specimen), call);
  ++trial.gate_cases;
  for (std::size_t gate = 0; gate < rejected.size(); ++gate) trial.gate_rejections[gate] += rejected[gate];
}

Trial run_trial(const Specimen& specimen, Dtype dtype, const AuditOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Trial trial;
  trial.specimen = &specimen;
  trial.dtype = dtype;
  trial.gate_rejections.assign(usual_gates().size(), 0);
  RunOptions run;
  run.cancel = options.cancel;
  const OpSignature& signature = specimen.op.signature;
  const auto cancelled = [&] { return options.cancel != nullptr && options.cancel->load(); };
  for (std::uint64_t i = 0; i < options.seeds; ++i) {
    const std::vector<OpCall> calls = cases_of(signature, dtype, options.set, options.first_seed + i);
    for (std::size_t k = 0; k < calls.size(); ++k) {
      if (cancelled()) throw Interrupted();
      const OpCall& call = calls[k];
      const bool running = specimen.correct() || !trial.found();
      bool convicted = false;
      if (running) {
        Conviction first{verdict_of_case(specimen.op, call, run), call};
        ++trial.cases;
        convicted = convicts(first.result.verdict);
        if (convicted && trial.convicted++ == 0) {
          const bool asks = !specimen.correct() && !says_why(first.result);
          const Conviction why =
              asks ? that_says_why(specimen.op, first, std::span(calls).subspan(k + 1), run, trial.cases) : first;
          first.result.explained = true;
          if (why.result.name != first.result.name) explain_as(why.result, first.result);
          note_conviction(first, why, run, trial);
        }
      }
      // Of a defect the usual rules see what a project's own test has, and the case that convicted it.
      if (options.gates && dtype != Dtype::fp64 &&
          (specimen.correct() || convicted || (i == 0 && everyday(signature, call))))
        ask_gates(call, trial);
    }
  }
  if (cancelled()) throw Interrupted();
  if (options.gates && dtype == Dtype::fp32) trial.gradcheck = rejected_by_gradcheck(specimen.op);
  trial.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return trial;
}

std::size_t form_named(const Specimen& specimen) {
  for (std::size_t form = 0; form < specimen.op.forms.size(); ++form)
    if (specimen.op.forms[form].name == specimen.form) return form;
  if (specimen.form.empty()) return 0;
  throw Error("[zoo] form of " + specimen.name() + ", got '" + specimen.form + "', want one of its op");
}

/// The specimen as an author's op: its formula and contract, no further form.
void run_alone(const Specimen& specimen, const AuditOptions& options, Trial& trial) {
  OpDef op = specimen.op;
  const std::size_t form = form_named(specimen);
  op.forms.resize(1);
  op.tried_first = 0;
  op.authored = true;
  RunOptions run;
  run.cancel = options.cancel;
  run.explain = false;
  for (std::uint64_t i = 0; i < options.seeds; ++i)
    for (const OpCall& call : cases_of(op.signature, trial.dtype, options.set, options.first_seed + i)) {
      if (options.cancel != nullptr && options.cancel->load()) throw Interrupted();
      if (!specimen.correct() && trial.alone_convicted > 0) return;
      ++trial.alone_cases;
      const bool needed = form > 0 && form_is_needed(specimen.op, call, form);
      trial.needs_form += needed;
      if (!convicts(verdict_of_case(op, call, run).verdict)) continue;
      trial.needs_form_convicted += needed;
      if (trial.alone_convicted++ == 0 || (!needed && trial.alone_case_needs_form)) {
        trial.alone_case = call.str(op.signature);
        trial.alone_case_needs_form = needed;
      }
    }
}

/// By a kernel's name, or by its op's, which stands for all kernels of that op.
bool selects(const std::string& pattern, const Specimen& specimen) {
  const std::string name = specimen.name();
  return matches(pattern, name) || matches(pattern, name.substr(0, name.find('.')));
}

bool selected(const Specimen& specimen, const AuditOptions& options) {
  if (!specimen.equivalent.empty() || (options.only && !options.only(specimen.name()))) return false;
  return options.patterns.empty() || std::any_of(options.patterns.begin(), options.patterns.end(),
                                                 [&](const std::string& p) { return selects(p, specimen); });
}

}  // namespace

std::vector<Trial> audit(const AuditOptions& options) {
  const ThreadScope scope(options.jobs);
  std::vector<const Specimen*> chosen;
  for (const std::span<const Specimen> list : {specimens(), specimens_in_fp64()})
    for (const Specimen& specimen : list)
      if (selected(specimen, options)) chosen.push_back(&specimen);
  std::vector<std::vector<Trial>> trials(chosen.size());
  std::mutex mutex;
  std::size_t done = 0;
  // A specimen's trials run one after the other: some of them count their launches.
  parallel_for(static_cast<std::int64_t>(chosen.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      const Specimen& specimen = *chosen[static_cast<std::size_t>(k)];
      for (const Dtype dtype : specimen.dtypes) {
        if (!options.dtypes.empty() &&
            std::find(options.dtypes.begin(), options.dtypes.end(), dtype) == options.dtypes.end())
          continue;
        try {
          Trial& trial = trials[static_cast<std::size_t>(k)].emplace_back(run_trial(specimen, dtype, options));
          if (options.formula_alone && dtype != Dtype::fp64) run_alone(specimen, options, trial);
          const std::lock_guard lock(mutex);
          if (options.finished) options.finished(trial);
        } catch (const Interrupted&) {
          return;
        }
      }
      const std::lock_guard lock(mutex);
      ++done;
      if (options.progress) options.progress(done, chosen.size(), specimen.name());
    }
  });
  std::vector<Trial> out;
  for (std::vector<Trial>& list : trials)
    for (Trial& trial : list) out.push_back(std::move(trial));
  return out;
}

namespace {

void count_gradcheck(const Trial& trial, std::int64_t& asked, std::vector<std::int64_t>& rejected) {
  rejected.resize(gradcheck_rules().size(), 0);
  if (trial.gradcheck.empty()) return;
  ++asked;
  for (std::size_t rule = 0; rule < rejected.size(); ++rule) rejected[rule] += trial.gradcheck[rule];
}

}  // namespace

void Score::add(const Trial& trial) {
  count_gradcheck(trial, fp32, gradcheck);
  ++trials;
  found += trial.found();
  right_class += trial.right_class;
  exact_class += trial.exact_class;
  right_cause += trial.right_cause;
  wrong_cause += trial.wrong_cause;
  by_reproduction += trial.reproduced;
  alone_trials += trial.alone_cases > 0;
  alone_found += trial.alone_convicted > 0;
  gates.resize(usual_gates().size(), 0);
  for (std::size_t gate = 0; gate < gates.size(); ++gate) gates[gate] += trial.gate_rejections[gate] > 0;
}

void Clean::add(const Trial& trial) {
  count_gradcheck(trial, fp32, gradcheck_alarms);
  ++variants;
  cases += trial.cases;
  alarms += trial.convicted;
  alone_cases += trial.alone_cases - trial.needs_form;
  alone_alarms += trial.alone_convicted - trial.needs_form_convicted;
  form_variants += trial.needs_form > 0;
  form_cases += trial.needs_form;
  form_alarms += trial.needs_form_convicted;
  gate_cases += trial.gate_cases;
  gate_alarms.resize(usual_gates().size(), 0);
  for (std::size_t gate = 0; gate < gate_alarms.size(); ++gate) gate_alarms[gate] += trial.gate_rejections[gate];
}

Scores score(const std::vector<Trial>& trials) {
  Scores out;
  out.by_class.resize(defect_classes().size() + 1);
  for (const Trial& trial : trials) {
    const Specimen& specimen = *trial.specimen;
    if (trial.dtype == Dtype::fp64) {
      specimen.correct() ? out.clean_fp64.add(trial) : out.fp64.add(trial);
      continue;
    }
    if (specimen.correct()) {
      out.clean.add(trial);
      if (specimen.unseen) out.clean_unseen.add(trial);
      continue;
    }
    out.all.add(trial);
    out.by_class[static_cast<std::size_t>(specimen.defect_class)].add(trial);
    if (specimen.unseen) out.unseen.add(trial);
  }
  return out;
}

bool goals_met(const Score& score, double cause_goal) {
  return score.share(score.found) >= kFoundGoal && score.share(score.exact_class) >= kExactGoal &&
         score.share(score.right_cause) >= cause_goal &&
         static_cast<double>(score.wrong_cause) <= kWrongCauseGoal * static_cast<double>(score.found);
}

}  // namespace ampcheck::checks::zoo
