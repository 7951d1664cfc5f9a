// SPDX-License-Identifier: Apache-2.0
// Which rule the scale follows: each rule is played with the log's own skips and held against the log's scales.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "checks/scaler/answers.h"
#include "src/amp/error.h"

namespace ampcheck::checks::scaler {

namespace {

/// Logs print a scale in few decimals; rules differ by factors.
bool same_scale(double a, double b) { return a == b || std::abs(a - b) <= 1e-3 * std::abs(b); }

struct Played {
  std::int64_t agreed = 0;          ///< moments
  const Moment* differs = nullptr;  ///< the first that does not
  double says = 0;
  bool raised = false;  ///< the rule ends the run there
};

/// Whether this moment is a step of the run.
bool is_step(const Moment& m) {
  const bool other = m.event == Event::checkpoint || m.event == Event::moved || m.event == Event::at_floor;
  return !other && (m.step || m.skip());
}

/// Whether every step is there, with what became of it.
bool shows_each_step(const Timeline& t) { return t.each_step && t.source != SkipSource::falls && t.restarts.empty(); }

Played play(const Timeline& t, ScaleRule rule, std::int64_t window) {
  rule.window = static_cast<std::int32_t>(window);
  rule.init_scale = *t.first_scale;
  LossScale scale(rule);
  Played out;
  for (const Moment& m : t.moments) {
    if (!is_step(m)) continue;
    try {
      scale.update(m.skip());
    } catch (const AmpError&) {
      out.raised = true;
    }
    if (out.raised || (m.after && !same_scale(*m.after, scale.scale()))) {
      out.differs = &m;
      out.says = scale.scale();
      return out;
    }
    ++out.agreed;
  }
  return out;
}

/// Clean steps from the step before each growth back to the last skip or growth, or to the log's begin.
std::set<std::int64_t> windows_seen(const Timeline& t) {
  std::set<std::int64_t> out;
  std::int64_t clean = 0;
  std::optional<double> scale = t.first_scale;
  for (const Moment& m : t.moments) {
    if (m.event != Event::none && !m.skip()) continue;
    clean = m.skip() ? 0 : clean + 1;
    if (m.after && scale && *m.after > *scale) {
      for (const std::int64_t window : {clean, clean - 1})
        if (window > 0) out.insert(window);
      clean = 0;
    }
    if (m.after) scale = m.after;
  }
  while (out.size() > 6) out.erase(std::prev(out.end()));
  return out;
}

struct Best {
  Played played;
  std::int64_t window = 0;
};
Best best_of(const Timeline& t, const ScaleRule& rule, const std::set<std::int64_t>& windows) {
  Best out = {play(t, rule, rule.window), rule.window};
  for (const std::int64_t window : windows) {
    if (out.played.differs == nullptr) break;
    const Played played = play(t, rule, window);
    if (played.differs == nullptr || played.agreed > out.played.agreed) out = {played, window};
  }
  return out;
}

std::string difference(const Best& best, const ScaleRule& rule) {
  const Moment& m = *best.played.differs;
  return fmt::format("at {} {} with a window of {} has {}, the log {}", place_of(m), rule.name, best.window,
                     best.played.raised ? "ended the run" : scale_text(best.played.says),
                     m.after ? scale_text(*m.after) : "goes on");
}

/// Of a log that does not show each step: whether each fall and rise is one that the rule knows.
void by_moves(const LogAudit& audit, Answer& a) {
  const Timeline& t = audit.timeline;
  const ScaleRule& rule = audit.rule;
  std::int64_t falls = 0;
  for (const Moment& m : t.moments) {
    if (m.event != Event::skip || !m.before || !m.after || !(*m.before > 0)) continue;
    ++falls;
    const double ratio = *m.after / *m.before;
    const bool held = ratio == 1 && (rule.hysteresis > 1 || (rule.floor > 0 && same_scale(*m.before, rule.floor)));
    if (held || same_scale(ratio, rule.backoff_factor) || *m.after <= rule.floor || *m.after < 0x1p-1000) continue;
    a.health = audit.rule_declared ? Health::broken : Health::cannot_tell;
    a.kind = "departs";
    a.text = fmt::format("at {} the scale goes from {} to {}, where {} multiplies by {:g}", place_of(m),
                         scale_text(*m.before), scale_text(*m.after), rule.name, rule.backoff_factor);
    a.evidence.push_back(evidence_of(m, "scale " + scale_text(*m.after)));
    return;
  }
  if (falls == 0) {
    a.health = Health::cannot_tell;
    a.kind = "not_shown";
    a.text = "the log shows too few moves of the scale to tell its rule";
    return;
  }
  a.kind = "follows";
  a.text = fmt::format(
      "each of {} is one of the rule {}; growth cannot be held against it, since not every step is in the log",
      count_text(falls, "fall", "falls"), rule.name);
}

}  // namespace

Answer which_rule(const LogAudit& audit) {
  const Timeline& t = audit.timeline;
  Answer a{.question = "rule"};
  if (!t.scale_known) {
    a.health = Health::cannot_tell;
    a.kind = "not_shown";
    a.text = "no scale in the log";
    return a;
  }
  const bool moves =
      std::ranges::any_of(t.moments, [&](const Moment& m) { return m.after && *m.after != *t.first_scale; });
  if (!moves && t.skips == 0) {
    a.kind = "constant";
    a.text = fmt::format("the scale never moves from {}: any rule does that", scale_text(*t.first_scale));
    return a;
  }
  if (!shows_each_step(t)) {
    by_moves(audit, a);
    return a;
  }
  const std::set<std::int64_t> windows = windows_seen(t);
  std::vector<std::string> names;
  for (const ScaleRule& rule : scale_rules()) {
    const Best best = best_of(t, rule, windows);
    const bool declared = audit.rule_declared && audit.rule.name == rule.name;
    if (best.played.differs == nullptr)
      names.push_back(best.window == rule.window ? rule.name : fmt::format("{} (window {})", rule.name, best.window));
    if (!declared || best.played.differs == nullptr) continue;
    const bool reset = reset_by_resume(audit).health == Health::losing;  // explains it
    a.health = reset ? Health::losing : Health::broken;
    a.kind = "departs";
    a.text = difference(best, rule);
    a.evidence.push_back(evidence_of(*best.played.differs, "the rule has " + scale_text(best.played.says)));
  }
  std::string list;
  for (const std::string& one : names) list += (list.empty() ? "" : ", ") + one;
  if (a.health >= Health::losing) {
    if (!list.empty()) a.text += "; the log follows " + list;
    return a;
  }
  a.kind = names.empty() ? "none" : "follows";
  a.health = names.empty() ? Health::cannot_tell : Health::harmless;
  a.text = names.empty() ? "no known rule: " + difference(best_of(t, audit.rule, windows), audit.rule)
                         : "each step is that of " + list;
  return a;
}

std::vector<double> scale_of_rule(const LogAudit& audit) {
  const Timeline& t = audit.timeline;
  std::vector<double> out(t.moments.size(), std::numeric_limits<double>::quiet_NaN());
  if (!t.scale_known || !shows_each_step(t)) return out;
  ScaleRule rule = audit.rule;
  rule.window = static_cast<std::int32_t>(best_of(t, rule, windows_seen(t)).window);
  rule.init_scale = *t.first_scale;
  LossScale scale(rule);
  for (std::size_t i = 0; i < t.moments.size(); ++i) {
    if (!is_step(t.moments[i])) continue;
    try {
      scale.update(t.moments[i].skip());
    } catch (const AmpError&) {
      break;
    }
    out[i] = scale.scale();
  }
  return out;
}

}  // namespace ampcheck::checks::scaler
