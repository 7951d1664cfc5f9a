// SPDX-License-Identifier: Apache-2.0
#include "checks/run/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "checks/judge/batch_invariance.h"
#include "checks/judge/bias.h"
#include "checks/judge/black_box.h"
#include "checks/judge/kinks.h"
#include "checks/reach/visible.h"
#include "checks/run/budget.h"
#include "checks/run/judging.h"
#include "checks/run/settle_ops.h"
#include "checks/run/shrink.h"
#include "reference/certify/certify.h"
#include "src/error.h"
#include "src/parallel.h"
#include "src/thread_scope.h"

namespace ampcheck::checks {

namespace {

std::vector<const OpDef*> ops_of(const std::vector<Case>& cases) {
  std::vector<const OpDef*> out;
  for (const Case& c : cases)
    if (std::find(out.begin(), out.end(), c.op) == out.end()) out.push_back(c.op);
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

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// What a reader should know of the run, a line each, after the outputs that nobody judged.
void add_notes(const std::vector<const OpDef*>& ops, const Judging& judging, Report& report) {
  constexpr std::size_t kFewOps = 3;  // of which a reader wants to know where they were aimed at
  const auto add = [&](std::vector<std::string> notes) {
    std::move(notes.begin(), notes.end(), std::back_inserter(report.notes));
  };
  for (const OpDef* op : ops)
    if (op->forms.empty()) add({black_box_note(op->signature.name, report.cases)});
  add(aimed_notes(judging.aimed, ops.size() <= kFewOps));
  add(untested_bias(report.cases));
  add(other_subgradients(report.cases));
  add(printed_by(report.cases));
  add(states_left_by(report.cases));
  add(batch_variances(report.cases));
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
  settle_intermittent(report.cases);
  settle_history(report.cases);
  settle_extents(cases, report.cases);
  if (explained || options.brief) suggest_forms(report.cases);
  if (options.brief && !cancelled()) shrink_failures(cases, options, report.cases);
  for (const OpDef* op : ops)
    report.coverage.emplace_back(op->signature.name, judging.coverage[op->signature.name].contributions());
  std::erase_if(report.certificates,
                [](const Certificate& certificate) { return certificate.op.empty(); });  // of an op without a formula
  add_notes(ops, judging, report);
  report.refused = judging.refused;
  report.interrupted = cancelled();
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace ampcheck::checks
