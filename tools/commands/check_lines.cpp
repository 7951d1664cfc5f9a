// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/check_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

using checks::scaler::CallAudit;
using checks::scaler::CheckResult;
using checks::scaler::Outcome;

/// Calls in few words: whole steps of a training loop are one word each, equal ones are counted.
std::string calls_text(const CheckResult& r) {
  std::vector<std::pair<std::string, int>> words;
  for (std::size_t i = 0; i < r.calls.size();) {
    const auto is = [&](std::size_t at, const char* what) {
      return i + at < r.calls.size() && r.calls[i + at] == what;
    };
    const bool whole = is(0, "scale") && i + 1 < r.calls.size() && r.calls[i + 1].starts_with("backward") &&
                       is(2, "step") && is(3, "update") && is(4, "zero");
    std::string word = whole ? "a whole step with " + r.calls[i + 1] : r.calls[i];
    i += whole ? 5 : 1;
    if (!words.empty() && words.back().first == word)
      ++words.back().second;
    else
      words.emplace_back(std::move(word), 1);
  }
  std::string out;
  for (const auto& [word, count] : words)
    out += (out.empty() ? "" : ", ") + (count > 1 ? fmt::format("{} times {}", count, word) : word);
  return out;
}

}  // namespace

std::string check_lines(const CallAudit& audit) {
  const Style style = stdout_style();
  std::string out;
  for (const CheckResult& r : audit.results) {
    const bool asks = r.outcome == Outcome::passed || (r.outcome == Outcome::not_asked && r.says.empty());
    const char* colour = r.outcome == Outcome::failed   ? style.red
                         : r.outcome == Outcome::weak   ? style.yellow
                         : r.outcome == Outcome::passed ? style.green
                                                        : style.dim;
    out += fmt::format("  {:<4}{:<23}{}{:<10}{} {}\n", r.check->code, r.check->name, colour, name(r.outcome),
                       style.reset, asks ? r.check->asks : r.says);
    if (!r.calls.empty()) out += fmt::format("{:38} calls: {}\n{:38} with {}\n", "", calls_text(r), "", r.setup);
  }
  return out;
}

std::string outcome_counts(const CallAudit& audit) {
  const auto count = [&](Outcome outcome) {
    return std::ranges::count_if(audit.results, [&](const CheckResult& r) { return r.outcome == outcome; });
  };
  return fmt::format("{} passed, {} weak, {} failed, {} not asked", count(Outcome::passed), count(Outcome::weak),
                     count(Outcome::failed), count(Outcome::not_asked));
}

Json checks_json(const CallAudit& audit) {
  Json out = Json::array();
  for (const CheckResult& r : audit.results)
    out.push_back({{"code", r.check->code},
                   {"name", r.check->name},
                   {"asks", r.check->asks},
                   {"outcome", name(r.outcome)},
                   {"says", r.says},
                   {"setup", r.setup},
                   {"calls", r.calls}});
  return out;
}

}  // namespace ampcheck::tools
