// SPDX-License-Identifier: Apache-2.0
#include "checks/scaler/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace ampcheck::checks::scaler {

namespace {

/// Of several broken answers, the one that explains the others comes first.
constexpr std::array<std::string_view, 9> kExplains = {"nan",  "ranks", "scaler",  "skips",  "reset",
                                                       "rule", "norm",  "outlook", "updates"};

int weight_of(const Answer& answer) {
  const auto at = std::ranges::find(kExplains, std::string_view(answer.question));
  return static_cast<int>(kExplains.end() - at);
}

/// The rule of the framework that most lines are of.
const char* rule_of_lines(const Log& log) {
  std::int64_t most = 0;
  const char* out = "torch";
  for (const auto& [number, lines] : log.by_grammar) {
    if (number < 0) continue;
    const Grammar& grammar = log_grammars()[static_cast<std::size_t>(number)];
    const std::int64_t weight = grammar.event == Event::skip ? lines * 1000 : lines;  // says its rule by its words
    if (*grammar.rule == '\0' || weight <= most) continue;
    most = weight;
    out = grammar.rule;
  }
  return out;
}

}  // namespace

const char* name(Health health) {
  switch (health) {
    case Health::harmless: return "HARMLESS";
    case Health::cannot_tell: return "CANNOT TELL";
    case Health::losing: return "LOSING";
    case Health::broken: return "BROKEN";
  }
  return "";
}

std::string scale_text(double scale) {
  int exponent = 0;
  if (std::isfinite(scale) && scale > 0 && std::frexp(scale, &exponent) == 0.5)
    return scale >= 1 && scale < 1e6 ? fmt::format("{} (2^{})", scale, exponent - 1)
                                     : fmt::format("2^{}", exponent - 1);
  return fmt::format("{:.6g}", std::isnan(scale) ? std::abs(scale) : scale);
}

std::string count_text(std::int64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string place_of(const Moment& m) {
  return m.step ? fmt::format("step {}", *m.step) : fmt::format("line {}", m.line);
}

Evidence evidence_of(const Moment& m, std::string what) { return {m.line, m.step, std::move(what)}; }

const Answer& LogAudit::headline() const {
  const Answer* out = nullptr;
  for (const Answer& answer : answers) {
    const bool better =
        out == nullptr ||
        (answer.health >= Health::losing &&
         (answer.health > out->health || (answer.health == out->health && weight_of(answer) > weight_of(*out))));
    if (better) out = &answer;
  }
  if (out->health < Health::losing)
    out = &*std::ranges::find(answers, std::string_view("skips"),
                              [](const Answer& a) { return std::string_view(a.question); });
  return *out;
}

LogAudit audit_log(std::string_view text, const std::string& rule, const ColumnNames& columns) {
  LogAudit out;
  out.log = read_log(text, columns);
  std::string named = rule.empty() ? out.log.rule : rule;
  if (named == "none") named.clear();
  out.rule_declared = !named.empty();
  out.rule = scale_rule(named.empty() ? rule_of_lines(out.log) : named);
  out.timeline = timeline_of(out.log, out.rule);
  for (const auto ask : {which_rule, how_skipped, reset_by_resume, ranks_agree, nan_of_no_scale, scaler_there,
                         updates_made, norm_follows_scale, steps_until_end, what_is_missing})
    out.answers.push_back(ask(out));
  return out;
}

}  // namespace ampcheck::checks::scaler
