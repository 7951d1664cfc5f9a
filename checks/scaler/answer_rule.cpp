// SPDX-License-Identifier: Apache-2.0
// Which rule the scale follows: each rule is played with the log's own skips and held against the log's scales.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "checks/scaler/answers.h"
#include "checks/scaler/log_lines.h"
#include "src/amp/error.h"

namespace ampcheck::checks::scaler {

namespace {

/// Logs print a scale in few decimals; rules differ by factors.
bool same_scale(double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b)) return a == b || (std::isnan(a) && std::isnan(b));
  return std::abs(a - b) <= 1e-3 * std::abs(b);
}

/// Whether this moment is a step of the run.
bool is_step(const Moment& m) {
  const bool other = m.event == Event::checkpoint || m.event == Event::moved || m.event == Event::at_floor;
  return !other && (m.step || m.skip());
}

/// Whether every step is there, with what became of it.
bool shows_each_step(const Timeline& t) { return t.each_step && t.source != SkipSource::falls && t.restarts.empty(); }

/// Where a run stands before the first step of its log.
struct Start {
  double scale = 1;
  std::int64_t clean = 0;  ///< steps since the last skip or growth
  std::int32_t spent = 0;  ///< overflows that hysteresis has held off since the last growth
};

LossScale started(ScaleRule rule, const Start& start) {
  rule.init_scale = start.scale;
  LossScale out(rule);
  for (std::int32_t i = 0; i < start.spent; ++i) out.update(true);
  for (std::int64_t i = 0; i < start.clean; ++i) out.update(false);
  return out;
}

struct Played {
  std::int64_t agreed = 0;          ///< moments
  const Moment* differs = nullptr;  ///< the first that does not
  double says = 0;
  bool raised = false;  ///< the rule ends the run there
};

Played play(const Timeline& t, const ScaleRule& rule, const Start& start) {
  LossScale scale = started(rule, start);
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

/// What the log shows of the numbers that a user may set.
struct Seen {
  std::set<std::int64_t> windows;
  std::optional<double> growth, backoff;  ///< of the first growth and the first fall
  std::int64_t clean_to_growth = 0;       ///< steps of the log up to its first growth; 0: a skip comes before it
  std::int64_t longest = 0;               ///< clean steps without growth: the window may be longer
  const Moment* first = nullptr;          ///< step
};

void note_move(Seen& seen, const Moment& m, double before) {
  const std::optional<double> ratio = leading_number(fmt::format("{:.6g}", *m.after / before));  // as a user writes it
  if (!ratio || !std::isfinite(*ratio)) return;
  if (m.skip() && *ratio < 1 && !seen.backoff) seen.backoff = ratio;
  if (!m.skip() && *ratio > 1 && !seen.growth) seen.growth = ratio;
}

/// Windows: clean steps from the step before each growth back to the last skip or growth, or to the log's begin.
Seen seen_in(const Timeline& t) {
  Seen out;
  std::int64_t clean = 0;
  bool moved = false;
  std::optional<double> scale;
  for (const Moment& m : t.moments) {
    if (m.event != Event::none && !m.skip()) continue;
    if (out.first == nullptr && is_step(m)) out.first = &m;
    clean = m.skip() ? 0 : clean + 1;
    out.longest = std::max(out.longest, clean);
    const std::optional<double> before = scale ? scale : t.first_scale;
    if (m.after && before && *m.after > *before) {
      for (const std::int64_t window : {clean, clean - 1})
        if (window > 0) out.windows.insert(window);
      if (!moved) out.clean_to_growth = clean;
      clean = 0;
    }
    moved |= m.skip() || (m.after && before && *m.after != *before);
    if (m.after && scale && *m.after != *scale) note_move(out, m, *scale);
    if (m.after) scale = m.after;
  }
  while (out.windows.size() > 6) out.windows.erase(std::prev(out.windows.end()));
  return out;
}

/// Where the run may have stood: a log says the scale behind its first step, and may begin in the middle of a run.
std::vector<Start> starts_of(const Timeline& t, const ScaleRule& rule, const Seen& seen) {
  std::vector<Start> out = {{.scale = *t.first_scale}};
  const bool begins = t.first_step <= 1;
  if (seen.first != nullptr && seen.first->after && t.source != SkipSource::lines) {
    const bool skip = seen.first->skip();
    const double after = *seen.first->after, factor = skip ? rule.backoff_factor : rule.growth_factor;
    if (skip && rule.hysteresis > 1) out.push_back({.scale = after});
    if (factor != 0) out.push_back({.scale = after / factor, .clean = skip || begins ? 0 : rule.window - 1});
  }
  if (begins) return out;
  if (rule.hysteresis > 1) out.push_back({.scale = *t.first_scale, .spent = rule.hysteresis - 1});
  const std::int64_t before = rule.window - seen.clean_to_growth;
  for (const std::int64_t clean : {before, before + 1})  // flax and DeepSpeed grow one step later
    if (seen.clean_to_growth > 0 && clean > 0 && clean <= rule.window)
      out.push_back({.scale = *t.first_scale, .clean = clean});
  return out;
}

/// A rule with the numbers that fit the log best.
struct Best {
  ScaleRule rule;
  Start start;
  Played played;
};

/// Keras and apex.amp know no other factors.
bool has_factors(const ScaleRule& rule) {
  return rule.name != std::string_view("keras") && rule.name != std::string_view("apex");
}

Best best_of(const Timeline& t, const ScaleRule& known, const Seen& seen) {
  std::vector<ScaleRule> numbers = {known};
  ScaleRule other = known;
  other.growth_factor = seen.growth.value_or(known.growth_factor);
  other.backoff_factor = seen.backoff.value_or(known.backoff_factor);
  if (has_factors(known) &&
      (other.growth_factor != known.growth_factor || other.backoff_factor != known.backoff_factor))
    numbers.push_back(other);
  std::optional<Best> out;
  for (const ScaleRule& factors : numbers) {
    std::vector<std::int64_t> windows = {known.window};
    windows.insert(windows.end(), seen.windows.begin(), seen.windows.end());
    windows.push_back(seen.longest + 1);
    for (const std::int64_t window : windows) {
      ScaleRule rule = factors;
      rule.window = static_cast<std::int32_t>(window);
      for (const Start& start : starts_of(t, rule, seen)) {
        const Played played = play(t, rule, start);
        if (!out || played.differs == nullptr || played.agreed > out->played.agreed) out = {rule, start, played};
        if (played.differs == nullptr) return *out;
      }
    }
  }
  return *out;
}

/// "torch (window 3, growth 1.5, backoff 0.9)": the numbers that are not the rule's defaults.
std::string rule_text(const ScaleRule& rule) {
  const ScaleRule& known = scale_rule(rule.name);
  std::string out;
  const auto add = [&out](const std::string& one) { out += (out.empty() ? "" : ", ") + one; };
  if (rule.window != known.window) add(fmt::format("window {}", rule.window));
  if (rule.growth_factor != known.growth_factor) add(fmt::format("growth {:g}", rule.growth_factor));
  if (rule.backoff_factor != known.backoff_factor) add(fmt::format("backoff {:g}", rule.backoff_factor));
  return out.empty() ? rule.name : fmt::format("{} ({})", rule.name, out);
}

std::string difference(const Best& best) {
  const Moment& m = *best.played.differs;
  return fmt::format("at {} {} with a window of {} has {}, the log {}", place_of(m), best.rule.name, best.rule.window,
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
  const Seen seen = seen_in(t);
  std::vector<std::string> names;
  for (const ScaleRule& rule : scale_rules()) {
    const Best best = best_of(t, rule, seen);
    const bool declared = audit.rule_declared && audit.rule.name == rule.name;
    if (best.played.differs == nullptr) names.push_back(rule_text(best.rule));
    if (!declared || best.played.differs == nullptr) continue;
    const bool reset = reset_by_resume(audit).health == Health::losing;  // explains it
    a.health = reset ? Health::losing : Health::broken;
    a.kind = "departs";
    a.text = difference(best);
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
  a.text =
      names.empty() ? "no known rule: " + difference(best_of(t, audit.rule, seen)) : "each step is that of " + list;
  return a;
}

std::vector<double> scale_of_rule(const LogAudit& audit) {
  const Timeline& t = audit.timeline;
  std::vector<double> out(t.moments.size(), std::numeric_limits<double>::quiet_NaN());
  if (!t.scale_known || !shows_each_step(t)) return out;
  const Best best = best_of(t, audit.rule, seen_in(t));
  LossScale scale = started(best.rule, best.start);
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
