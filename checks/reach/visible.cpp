// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/reach/visible.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "checks/case/case_run.h"
#include "checks/data/regimes.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

constexpr std::int64_t kMostElements = 4096;  ///< of a case that is looked at
constexpr std::int64_t kMostTries = 400;
constexpr double kMost = 0.5;  ///< such a share ends the search

/// Share of a tensor's elements that a comparison would judge.
double visible_share(CaseRun& run, const Written& tensor, Pass pass) {
  const Interval interval = run.reference.interval(run.reference.forms().front(), pass, tensor.name, tensor.dtype);
  std::vector<double> right(interval.value.begin(), interval.value.end());
  round_values(format(tensor.dtype), RoundingMode{}, right, right);
  const Comparison seen = compare(right, interval);
  // A zero that is right shows nothing of the rest, and neither does an infinity that an infinite input makes.
  const auto plain = [](double v) { return v == 0 || std::isinf(v); };
  const auto none = std::count_if(interval.value.begin(), interval.value.end(), plain);
  const std::int64_t shown = seen.compared - seen.blind - seen.range - none;
  return seen.compared == 0
             ? 0.0
             : static_cast<double>(std::max<std::int64_t>(shown, 0)) / static_cast<double>(seen.compared);
}

}  // namespace

double visible_share(const OpDef& op, const OpCall& call, const CheckId& subject) {
  const RunOptions options;
  CaseRun run(op, call, options);
  const bool forward = subject.kind == CheckId::Kind::forward;
  double most = 0;
  for (const Written& tensor : forward ? run.outputs : run.gradients) {
    if (subject.tensor != tensor.name) continue;
    if (forward) most = std::max(most, visible_share(run, tensor, Pass::forward));
    for (int probe = 0; !forward && probe < probe_count(call); ++probe) {
      run.cotangents(probe);
      most = std::max(most, visible_share(run, tensor, Pass::backward));
    }
  }
  return most;
}

namespace {

bool small(const OpSignature& signature, const OpCall& call) {
  return std::all_of(signature.inputs.begin(), signature.inputs.end(), [&](const TensorSpec& spec) {
    return !call.has(spec) || call.shape(spec).count() <= kMostElements;
  });
}

}  // namespace

VisibleCase find_visible_case(const OpDef& op, Dtype storage, const CheckId& subject, std::uint64_t seed) {
  VisibleCase out;
  for (const OpCall& call : cases_of(op.signature, storage, CaseSet::all, seed)) {
    if (call.layout != "dense" || !small(op.signature, call)) continue;
    if (++out.tried > kMostTries || out.share >= kMost) break;
    if (const double share = visible_share(op, call, subject); share > out.share) {
      out.share = share;
      out.name = call.str(op.signature);
    }
  }
  return out;
}

namespace {

/// What the search found, as the end of a sentence.
std::string where_visible(const OpDef& op, const OpCall& call, const CheckId& subject) {
  const VisibleCase found = find_visible_case(op, call.storage, subject, call.seed);
  return found.name.empty()
             ? fmt::format(", and in {} more of all regimes: the declared precision leaves nothing of it to judge",
                           found.tried)
             : fmt::format("; {:.0f} % of it would be judged at '{}'", 100 * found.share, found.name);
}

}  // namespace

void say_where_visible(const std::vector<Case>& cases, std::vector<CaseResult>& results) {
  std::map<std::pair<std::string, CheckId>, std::string> known;  // (op and storage, subject) -> words
  for (CaseResult& result : results)
    for (CheckResult& check : result.checks) {
      if (check.verdict != Verdict::ill_conditioned || check.code != Code::ac202) continue;
      const CheckId subject = subject_of(check);
      std::string& words = known[{result.op + " " + result.dtype, subject}];
      const auto item = std::find_if(cases.begin(), cases.end(), [&](const Case& c) {
        return c.op->signature.name == result.op && name(c.call.storage) == result.dtype;
      });
      if (words.empty() && item != cases.end() && !item->op->forms.empty())
        words = "blind in every case" + where_visible(*item->op, item->call, subject);
      check.cause = words;
    }
}

void say_where_visible(const OpDef& op, const OpCall& call, CaseResult& result) {
  if (op.forms.empty()) return;
  std::map<CheckId, std::string> known;  // subject -> words
  for (CheckResult& check : result.checks) {
    if (check.code != Code::ac202 || convicts(check.verdict)) continue;
    const auto [words, is_new] = known.try_emplace(subject_of(check));
    if (is_new) words->second = where_visible(op, call, words->first);
    check.note += words->second;
  }
}

}  // namespace ampcheck::checks
