// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/run/settle_ops.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "checks/run/conclude.h"
#include "src/state_left.h"

namespace ampcheck::checks {

namespace {

/// Whether the worst elements are off by no more than another algebra mostly makes of them.
bool off_by_little(const CheckResult& check) {
  constexpr double kLittle = 0x1p-6;
  return !check.worst.empty() && std::ranges::all_of(check.worst, [](const Element& e) {
    return std::fabs(e.got - e.want) <= kLittle * std::fabs(e.want);
  });
}

}  // namespace

void settle_contract_by_op(std::vector<CaseResult>& cases) {
  std::map<std::string, std::pair<int, int>> seen;  // op -> cases that a contract explains, cases wrong otherwise
  for (const CaseResult& c : cases) {
    seen[c.op].first += c.explained && c.verdict == Verdict::precision_contract;
    seen[c.op].second += c.explained && c.verdict == Verdict::bug;
  }
  for (CaseResult& c : cases) {
    if (c.verdict != Verdict::precision_contract || seen[c.op].first >= seen[c.op].second) continue;
    c.verdict = Verdict::bug;
    c.code = Code::ac101;
    drop_departures(c.checks);
  }
}

void settle_intermittent(std::vector<CaseResult>& cases) {
  const auto compares_calls = [](Code code) {
    return code == Code::ac405 || code == Code::ac406 || code == Code::ac407 || code == Code::ac409;
  };
  std::set<std::string> differ;
  for (const CaseResult& c : cases)
    if (std::ranges::any_of(c.checks, [](const CheckResult& check) { return check.code == Code::ac404; }))
      differ.insert(c.op);
  for (CaseResult& c : cases) {
    if (!differ.contains(c.op)) continue;
    for (CheckResult& check : c.checks) {
      if (!compares_calls(check.code)) continue;
      check.cause = fmt::format("two calls do not agree here ({}), and calls of this op differ with the same data too",
                                text_of(check.code).title);
      check.find(Code::ac404);
    }
    if (compares_calls(c.code)) c.code = Code::ac404;
  }
}

void settle_history(std::vector<CaseResult>& cases) {
  std::map<std::string, const CheckResult*> told;  // by op
  for (const CaseResult& c : cases)
    for (const CheckResult& check : c.checks)
      if (is_history(check.code)) told.emplace(c.op, &check);
  for (CaseResult& c : cases) {
    const auto found = told.find(c.op);
    if (found == told.end()) continue;
    const bool late = found->second->code == Code::ac411;  // it writes where another tensor lies by then
    for (CheckResult& check : c.checks) {
      if (!convicts(check.verdict) || is_history(check.code) || (!late && is_stray_write(check.code))) continue;
      check.find(found->second->code);
      check.cause = found->second->cause;
    }
    if (convicts(c.verdict) && (late || !is_stray_write(c.code))) {
      c.code = found->second->code;
      c.verdict = found->second->verdict;
    }
  }
}

namespace {

/// Extents of a dimension of an op, in cases that fail and in those that do not.
struct Extents {
  std::set<std::int64_t> wrong, right;
};

/// "D = 911"; empty unless few extents are wrong, and right ones beside them are many and others.
std::string few_alone(const std::string& symbol, const Extents& extents) {
  constexpr std::size_t kFew = 4, kMany = 32;
  if (extents.wrong.empty() || extents.wrong.size() > kFew || extents.right.size() < kMany) return "";
  if (std::ranges::any_of(extents.wrong, [&](std::int64_t extent) { return extents.right.contains(extent); }))
    return "";
  return fmt::format("wrong at {} = {} alone; the other {} extents of it pass", symbol, fmt::join(extents.wrong, ", "),
                     extents.right.size());
}

}  // namespace

void settle_extents(const std::vector<Case>& cases, std::vector<CaseResult>& results) {
  if (std::ranges::none_of(results, [](const CaseResult& result) { return convicts(result.verdict); })) return;
  std::map<std::string, const Case*> by_name;
  for (const Case& item : cases) by_name[item.call.str(item.op->signature)] = &item;
  std::map<std::string, std::map<std::string, Extents>> seen;  // by op and symbol
  for (const CaseResult& result : results)
    if (const auto at = by_name.find(result.name); at != by_name.end())
      for (const auto& [symbol, extent] : at->second->call.dims) {
        Extents& extents = seen[result.op][symbol];
        (convicts(result.verdict) ? extents.wrong : extents.right).insert(extent);
      }
  for (CaseResult& result : results)
    for (const auto& [symbol, extents] : seen[result.op]) {
      const std::string alone = convicts(result.verdict) ? few_alone(symbol, extents) : "";
      if (alone.empty()) continue;
      for (CheckResult& check : result.checks)
        if (convicts(check.verdict)) check.cause = check.cause.empty() ? alone : alone + "; " + check.cause;
    }
}

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
            "none found; if the kernel follows another algebra than the formula (another function, one pass, a sum of "
            "other terms), add that as a form, and it is judged by it";
      if (check.code == Code::ac304 && !check.cause.empty())
        check.cause += "; a kernel of another algebra than the formula's is judged by a form that says it";
    }
}

namespace {

/// A line for each op with such a check: in how many cases, and the first of them.
std::vector<std::string> noted_by_op(const std::vector<CaseResult>& cases, const char* what,
                                     const std::function<bool(const CheckId&)>& such) {
  std::map<std::string, std::pair<std::int64_t, std::string>> seen;
  for (const CaseResult& result : cases)
    for (const CheckResult& check : result.checks) {
      if (!such(check.id)) continue;
      auto& [count, first] = seen[result.op];
      if (count++ == 0) first = fmt::format("in '{}' {}", result.name, check.note);
    }
  std::vector<std::string> out;
  for (const auto& [op, all] : seen)
    out.push_back(fmt::format("{}: {} {} case{}; {}", op, what, all.first, all.first == 1 ? "" : "s", all.second));
  return out;
}

}  // namespace

std::vector<std::string> printed_by(const std::vector<CaseResult>& cases) {
  return noted_by_op(cases, "printed in", [](const CheckId& id) { return id.kind == CheckId::Kind::printed; });
}

std::vector<std::string> states_left_by(const std::vector<CaseResult>& cases) {
  std::vector<std::string> out = noted_by_op(cases, "left the state of its thread changed in", [](const CheckId& id) {
    return id.kind == CheckId::Kind::call && id.dim == kStateLeft;
  });
  for (std::string& line : out) line += "; it was put back";
  return out;
}

}  // namespace ampcheck::checks
