// SPDX-License-Identifier: Apache-2.0
#include "checks/run/judging.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <set>

#include "checks/run/run_case.h"
#include "src/parallel.h"

namespace ampcheck::checks {

namespace {

std::string name_of(const Case& item) { return item.op->plugin + " " + item.call.str(item.op->signature); }

CaseResult not_run(const Case& item, const std::string& why) {
  CaseResult out;
  out.name = item.call.str(item.op->signature);
  out.op = item.op->signature.name;
  out.plugin = item.op->plugin;
  out.dtype = name(item.call.storage);
  out.verdict = Verdict::skipped;
  out.note = why;
  return out;
}

}  // namespace

Judging::Judging(const std::vector<Case>& chosen, const RunOptions& options, Budget& budget, bool explained)
    : cases(chosen), options_(options), budget_(budget), explained_(explained) {
  judge_from(0);
}

void Judging::go_on() {
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

void Judging::add(std::vector<Aimed> more) {
  const std::size_t before = cases.size();
  for (const Aimed& one : more)
    for (const OpCall& call : one.calls) cases.push_back({one.op, call});
  judge_from(before);
  std::move(more.begin(), more.end(), std::back_inserter(aimed));
}

void Judging::judge_from(std::size_t first) {
  results.resize(cases.size());
  ran.resize(cases.size(), 0);
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

bool Judging::judge(std::size_t i) {
  const Budget::Share share = budget_.share(cases[i]);
  if (!share.refused.empty()) {
    results[i] = not_run(cases[i], share.refused);
    const std::lock_guard lock(mutex_);
    ran[i] = 1;
    ++done_;
    ++refused;
    return true;
  }
  try {
    results[i] = run_one(cases[i], {share.sampled, explained_}, options_);
  } catch (const Interrupted&) {
    return false;
  }
  // Of single cases, as ranks and shards judge them, nobody is told what they could see.
  const bool told = options_.brief || options_.explain || options_.aim;
  const Coverage seen = share.sampled || !told ? Coverage() : coverage_of(*cases[i].op, cases[i].call);
  const std::lock_guard lock(mutex_);
  ran[i] = 1;
  coverage[cases[i].op->signature.name].merge(seen);
  if (options_.progress) options_.progress(++done_, cases.size(), results[i]);
  return true;
}

}  // namespace ampcheck::checks
