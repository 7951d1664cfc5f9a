// SPDX-License-Identifier: Apache-2.0
// Are these skips normal? Probing at the start and after each growth is; bursts and ratchets lose updates; a scale at
// its floor helps no more.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/scaler/answers.h"

namespace ampcheck::checks::scaler {

namespace {

/// Above this no overflow means that every gradient lies below fp16's smallest number, 2^-24: 65504 2^24 < 2^40.
constexpr double kRunaway = 0x1p40;

enum class Why : std::uint8_t { start_up, probe, burst, alone };

struct Seen {
  std::vector<Why> why;  ///< of each streak
  std::int64_t start_up = 0, probes = 0, bursts = 0, alone = 0;
  std::size_t largest = 0;  ///< burst
};

/// A first descent that begins where the log does, or goes on before the scale ever grew.
bool at_start(const Timeline& t, const Streak& s, std::int64_t window, bool grown) {
  if (grown) return false;
  const Moment& m = t.moments[s.first];
  const std::int64_t begins = m.step ? *m.step : std::max<std::int64_t>(m.low, 0);
  if (t.step_known && (t.first_step > window || begins > t.first_step + window)) return false;
  return !t.first_scale || !s.scaled || s.before <= *t.first_scale;
}

Seen seen(const Timeline& t, const ScaleRule& rule) {
  Seen out;
  bool grown = false;
  for (std::size_t i = 0; i < t.streaks.size(); ++i) {
    const Streak& s = t.streaks[i];
    if (t.first_scale && s.scaled && s.before > *t.first_scale) grown = true;
    grown |= s.grown > 0;
    Why why = Why::alone;
    const double halvings = s.scaled ? s.halvings() : static_cast<double>(s.skips);
    if (at_start(t, s, rule.window, grown))
      why = Why::start_up;
    else if (s.grown > 0 && halvings <= std::max(1.0, s.grown))
      why = Why::probe;
    else if (halvings >= 2)
      why = Why::burst;
    else if (i == 0 && grown)
      why = Why::probe;
    if (why == Why::burst && (out.bursts == 0 || t.streaks[out.largest].skips < s.skips)) out.largest = i;
    (why == Why::start_up ? out.start_up
     : why == Why::probe  ? out.probes
     : why == Why::burst  ? out.bursts
                          : out.alone) += 1;
    out.why.push_back(why);
  }
  return out;
}

std::int64_t step_of(const Moment& m) { return m.step ? *m.step : std::max(m.high, m.low); }

/// Skips that no growth provoked, one after the other, down to where the log ends: not settled unless so many clean
/// steps follow that skips at the rate so far would have come with more than 99.9 % chance.
bool ratchets(const Timeline& t, const Seen& seen) {
  std::vector<std::size_t> down;
  for (std::size_t i = 0; i < t.streaks.size(); ++i)
    if (seen.why[i] != Why::probe) down.push_back(i);
  if (down.size() < 4 || !t.step_known || !t.last_scale) return false;
  const Streak& first = t.streaks[down.front()];
  const Streak& last = t.streaks[down.back()];
  if (!first.scaled || !(*t.last_scale * 4 <= first.before)) return false;
  const auto under_way = static_cast<double>(step_of(t.moments[last.last]) - step_of(t.moments[first.first]));
  const auto clean = static_cast<double>(t.last_step - step_of(t.moments[last.last]));
  return std::pow(under_way / (under_way + clean), static_cast<double>(down.size() - 1)) > 1e-3;
}

double floor_of(const ScaleRule& rule) { return rule.floor >= 1e-6 ? rule.floor : 0; }

Answer& with(Answer& a, Health health, const char* kind, std::string text, std::string advice = "") {
  a.health = health;
  a.kind = kind;
  a.text = std::move(text);
  a.advice = std::move(advice);
  return a;
}

/// A scale that is no scale, or too large for any gradient.
bool no_scale_at_all(const Timeline& t, Answer& a) {
  if (!t.last_scale) return false;
  for (const Moment& m : t.moments) {
    if (!m.after || (std::isfinite(*m.after) && *m.after >= 0)) continue;
    with(a, Health::broken, "scale_not_finite",
         fmt::format("the scale is {} from {} on: nothing it multiplies is a number any more",
                     std::isnan(*m.after) ? "NaN" : fmt::format("{}", *m.after), place_of(m)),
         "cap the growth (torch refuses what is not finite; Keras and Megatron do not), then start again from a "
         "checkpoint before that");
    a.evidence.push_back(evidence_of(m, "scale " + scale_text(*m.after)));
    return true;
  }
  if (*t.last_scale < kRunaway || !(*t.last_scale > *t.first_scale)) return false;
  with(
      a, Health::losing, "runaway",
      fmt::format("the scale grew to {} and nothing overflows: all gradients are below 2^{:.0f}, so that unscaled fp16 "
                  "holds none of them",
                  scale_text(*t.last_scale), 16 - std::log2(*t.last_scale)),
      "look for a loss that is almost 0, a detached loss or frozen parameters; a sum over tokens instead of a mean "
      "raises the gradients");
  return true;
}

/// The last word of a scale that cannot be lowered further.
bool at_floor(const Timeline& t, const ScaleRule& rule, Answer& a) {
  const double floor = floor_of(rule);
  const double least = floor > 0 ? floor : 1;
  std::int64_t held = 0;
  const Moment* first = nullptr;
  for (const Moment& m : t.moments) {
    const bool low = m.before && (floor > 0 ? *m.before <= floor : *m.before < least);
    if (!m.skip() || !low) continue;
    if (first == nullptr) first = &m;
    held += m.skips;
  }
  const bool ends_so = !t.streaks.empty() && !t.streaks.back().ended;
  if (t.at_floor || (first != nullptr && ends_so)) {
    const std::string where = first == nullptr ? "" : fmt::format(" from {} on", place_of(*first));
    with(a, Health::broken, "floor_reached",
         t.at_floor
             ? "the scale reached its minimum and the run ended there"
             : fmt::format("the scale is {} {}{}, and steps are skipped all the same ({} of them): it helps no "
                           "more",
                           floor > 0 ? "at its minimum of" : "below", floor > 0 ? scale_text(floor) : "1", where, held),
         "an overflow goes away when the scale falls this far: look for the NaN, below");
  } else if (first != nullptr) {
    with(a, Health::losing, "floor_touched",
         fmt::format("{} {}, from {} on; later steps were made, with gradients that are hardly scaled",
                     count_text(held, "step was skipped", "steps were skipped"),
                     floor > 0 ? "at the minimum " + scale_text(floor) : "at a scale below 1", place_of(*first)),
         "small gradients are flushed to 0 at such a scale");
  } else {
    return false;
  }
  if (first != nullptr) a.evidence.push_back(evidence_of(*first, "skipped at scale " + scale_text(*first->before)));
  return true;
}

std::string streak_text(const Timeline& t, const Streak& s) {
  const std::string from = place_of(t.moments[s.first]);
  std::string out = s.skips == 1 ? fmt::format("1 skip at {}", from)
                                 : fmt::format("{} skips from {} to {}", s.skips, from, place_of(t.moments[s.last]));
  if (s.scaled) out += fmt::format(", scale {} to {}", scale_text(s.before), scale_text(s.after));
  return out;
}

/// A log that ends while steps are being skipped.
bool ends_skipping(const Timeline& t, const Seen& seen, Answer& a) {
  if (t.streaks.empty() || t.streaks.back().ended || t.streaks.back().skips < 3) return false;
  const Streak& last = t.streaks.back();
  const bool start = seen.why.back() == Why::start_up;
  with(a, start ? Health::cannot_tell : Health::losing, "still_skipping",
       fmt::format("the log ends in {} skips in a row{}{}", last.skips,
                   last.scaled ? ", at scale " + scale_text(last.after) : "",
                   start ? ": a start looks so too, which ends at some scale above 1" : ""),
       "show more of the log; if skips go on below scale 1, it is a NaN");
  a.evidence.push_back(evidence_of(t.moments[last.first], streak_text(t, last)));
  return true;
}

void normal_skips(const Timeline& t, const Seen& seen, const ScaleRule& rule, Answer& a) {
  std::vector<std::string> parts;
  std::int64_t start = 0;
  for (std::size_t i = 0; i < seen.why.size(); ++i)
    if (seen.why[i] == Why::start_up) start += t.streaks[i].skips;
  if (start > 0)
    parts.push_back(fmt::format("{} while the first scale was too large", count_text(start, "skip", "skips")));
  if (seen.probes > 0)
    parts.push_back(fmt::format("{} right after the scale grew, at most one a window of {} clean steps",
                                count_text(seen.probes, "probe", "probes"), rule.window));
  if (seen.alone > 0) parts.push_back(fmt::format("{} alone", count_text(seen.alone, "skip", "skips")));
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  const char* kind = seen.start_up > 0 && seen.probes > 0 ? "start_up_and_probes"
                     : seen.start_up > 0                  ? "start_up"
                     : seen.probes > 0                    ? "growth_probes"
                                                          : "isolated";
  with(a, Health::harmless, kind, text + ": this is how a dynamic scale finds its value");
}

void lost_skips(const Timeline& t, const Seen& seen, const ScaleRule& rule, Answer& a) {
  if (ratchets(t, seen)) {
    const Streak& first = t.streaks.front();
    with(a, Health::losing, "ratchet",
         fmt::format("the scale falls faster than it can grow: {} without a growth before them took it from {} to {}",
                     count_text(seen.start_up + seen.bursts + seen.alone, "skip or burst", "skips or bursts"),
                     scale_text(first.before), scale_text(*t.last_scale)),
         "gradients grow: lower the learning rate, clip them after unscaling, or look for the layer that overflows");
    for (std::size_t i = 0; i < t.streaks.size() && a.evidence.size() < 5; ++i)
      if (seen.why[i] != Why::probe)
        a.evidence.push_back(evidence_of(t.moments[t.streaks[i].first], streak_text(t, t.streaks[i])));
    return;
  }
  const Streak& worst = t.streaks[seen.largest];
  with(a, Health::losing, "burst",
       fmt::format("{} of skips in the middle of the run, the longest {}; the scale needs {} clean steps to come back",
                   count_text(seen.bursts, "burst", "bursts"), streak_text(t, worst),
                   static_cast<std::int64_t>(std::ceil(worst.halvings())) * rule.window),
       "look at the batches and the loss of these steps: a spike, or one bad batch");
  a.evidence.push_back(evidence_of(t.moments[worst.first], streak_text(t, worst)));
}

}  // namespace

Answer how_skipped(const LogAudit& audit) {
  const Timeline& t = audit.timeline;
  Answer a{.question = "skips"};
  if (no_scale_at_all(t, a) || at_floor(t, audit.rule, a)) return a;
  if (t.streaks.empty()) {
    if (t.source == SkipSource::falls && !t.scale_known)
      return with(a, Health::cannot_tell, "not_said", "the log says neither skips nor the scale",
                  "add the line that the last answer shows");
    return with(a, Health::harmless, "no_skips",
                t.earlier_skips > 0
                    ? fmt::format("no step of the log was skipped; {} before its first line", t.earlier_skips)
                : t.source == SkipSource::falls && !t.each_step ? "the scale never falls between the lines of the log"
                                                                : "no step was skipped");
  }
  const Seen all = seen(t, audit.rule);
  if (ends_skipping(t, all, a)) return a;
  if (all.bursts > 0 || ratchets(t, all))
    lost_skips(t, all, audit.rule, a);
  else if (!t.scale_known && !t.step_known)
    with(a, Health::cannot_tell, "only_counted",
         fmt::format("{}; the log says neither at which step nor at which scale",
                     count_text(t.skips, "step was skipped", "steps were skipped")));
  else
    normal_skips(t, all, audit.rule, a);
  if (a.evidence.empty())
    for (std::size_t i = 0; i < t.streaks.size() && i < 3; ++i)
      a.evidence.push_back(evidence_of(t.moments[t.streaks[i].first], streak_text(t, t.streaks[i])));
  return a;
}

Answer steps_until_end(const LogAudit& audit) {
  const Timeline& t = audit.timeline;
  Answer a{.question = "outlook"};
  if (!t.last_scale || !t.first_scale || !(*t.last_scale > 0) || !std::isfinite(*t.last_scale))
    return with(a, Health::cannot_tell, "not_said", "no scale to look ahead from");
  const double floor = std::max(floor_of(audit.rule), floor_of(audit.rule) > 0 ? 0.0 : 1.0);
  const double left = std::log2(*t.last_scale / floor);
  if (!t.streaks.empty() && !t.streaks.back().ended && t.streaks.back().skips >= 3)
    return with(a, left > 0 ? Health::losing : Health::broken, "falling",
                left > 0 ? fmt::format("at one halving a step the scale reaches {} in {:.0f} steps", scale_text(floor),
                                       std::ceil(left))
                         : "the scale is at its end already");
  const Seen all = seen(t, audit.rule);
  if (t.step_known && t.steps > 1 && ratchets(t, all)) {
    const double fallen = std::log2(*t.first_scale / *t.last_scale);
    return with(a, Health::losing, "falling",
                fmt::format("at this rate the scale reaches {} in about {:.0f} steps", scale_text(floor),
                            left * static_cast<double>(t.steps) / fallen));
  }
  const double to_top = 128 - std::log2(*t.last_scale);
  if (*t.last_scale > *t.first_scale && t.streaks.empty())
    return with(a, Health::harmless, "growing",
                fmt::format("it grows without a skip; at one doubling a window of {} it leaves fp32 in {:.0f} steps",
                            audit.rule.window, to_top * audit.rule.window));
  return with(a, Health::harmless, "steady", fmt::format("the scale stays near {}", scale_text(*t.last_scale)));
}

}  // namespace ampcheck::checks::scaler
