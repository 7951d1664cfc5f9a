// SPDX-License-Identifier: Apache-2.0
// A NaN that no scale explains, ranks that disagree, a scale reset by a resume, and counters that count nothing.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/scaler/answers.h"

namespace ampcheck::checks::scaler {

namespace {

bool bad(const std::optional<double>& value) { return value && !std::isfinite(*value); }

/// A loss that is none: some loggers write 0 for NaN, beside a norm that is not finite.
bool bad_loss(const Moment& m) { return bad(m.loss) || (m.loss == 0.0 && bad(m.norm)); }
bool bad_norm(const Moment& m) { return bad(m.norm) && !m.skip(); }

/// Moments of one kind: how many, the first, and whether the log stays so to its end.
struct Tail {
  std::int64_t count = 0;
  const Moment* first = nullptr;
  bool to_the_end = false;
};

template <class Is, class Says>
Tail tail_of(const Timeline& t, const Is& is, const Says& says) {
  Tail out;
  std::int64_t run = 0;
  const Moment* run_first = nullptr;
  for (const Moment& m : t.moments) {
    if (!says(m)) continue;
    if (is(m)) {
      if (run++ == 0) run_first = &m;
      if (out.count++ == 0) out.first = &m;
    } else {
      run = 0;
    }
  }
  out.to_the_end = run >= 2;
  if (out.to_the_end) out.first = run_first;
  return out;
}

Tail losses(const Timeline& t) {
  return tail_of(t, bad_loss, [](const Moment& m) { return m.loss.has_value(); });
}
Tail norms(const Timeline& t) {
  return tail_of(t, bad_norm, [](const Moment& m) { return m.norm.has_value(); });
}

/// Megatron prints no loss where it is NaN: lines without one that count no skip.
Tail without_loss(const Timeline& t) {
  if (!t.loss_known) return {};
  return tail_of(
      t, [](const Moment& m) { return !m.loss && !m.skip(); }, [](const Moment& m) { return m.counted.has_value(); });
}

/// "the scale went from 2^18 to 1 meanwhile".
std::string meanwhile(const Timeline& t, const Moment& from) {
  const std::optional<double> before = from.before ? from.before : from.after;
  if (!before || !t.last_scale) return "";
  if (*before == *t.last_scale) return fmt::format(", at scale {} throughout", scale_text(*before));
  return fmt::format(", while the scale went from {} to {}", scale_text(*before), scale_text(*t.last_scale));
}

void say(Answer& a, Health health, const char* kind, std::string text, std::string advice) {
  a.health = health;
  a.kind = kind;
  a.text = std::move(text);
  a.advice = std::move(advice);
}

constexpr const char* kFindIt =
    "run the first bad step again from the checkpoint before it, and look for the first op whose output is not finite "
    "(ampcheck explain training)";

/// A loss or norm that stays NaN.
bool for_good(const Timeline& t, Answer& a) {
  const Tail loss = losses(t), norm = norms(t), none = without_loss(t);
  const bool by_loss = loss.to_the_end, by_norm = norm.to_the_end;
  if (!by_loss && !by_norm && !none.to_the_end) return false;
  const Moment& first = by_loss ? *loss.first : by_norm ? *norm.first : *none.first;
  const bool gone = !by_loss && t.loss_known && !first.loss;
  const char* what =
      by_loss    ? (first.loss == 0.0 ? "the loss is 0 and the gradients are not finite" : "the loss is not finite")
      : !by_norm ? "no loss is printed, as Megatron does where it is NaN,"
      : gone     ? "the gradients are not finite and no loss is printed"
                 : "the gradients are not finite";
  const char* why = by_loss ? "the forward pass does not know the scale, so no scale explains or cures this"
                            : "these steps were not skipped, and no scale explains a NaN that stays";
  say(a, Health::broken, "nan_for_good",
      fmt::format("{} from {} to the end of the log{}; {}", what, place_of(first), meanwhile(t, first), why), kFindIt);
  a.evidence.push_back(evidence_of(first, by_loss   ? fmt::format("loss {}", std::abs(*first.loss))
                                          : by_norm ? fmt::format("grad norm {}", std::abs(*first.norm))
                                                    : "no loss, and no skip counted"));
  return true;
}

/// Skips that go on where no finite gradient of a finite loss overflows.
bool at_any_scale(const LogAudit& audit, Answer& a) {
  const Timeline& t = audit.timeline;
  if (t.streaks.empty()) return false;
  const Streak& last = t.streaks.back();
  const double floor = audit.rule.floor >= 1e-6 ? audit.rule.floor : 0;
  const bool low = last.scaled && (floor > 0 ? last.after <= floor : last.after < 1);
  // A log that shows falls alone: clean steps would have made the scale grow again.
  const Moment& end = t.moments[last.last];
  const bool stays = t.source == SkipSource::falls && low && end.step && t.last_scale == last.after &&
                     t.last_step - *end.step > audit.rule.window;
  if (!(t.at_floor || stays || (!last.ended && low && last.skips >= 2))) return false;
  say(a, Health::broken, "nan_at_any_scale",
      fmt::format("{} in a row, down to scale {}: an overflow goes away when the scale falls, a NaN does not",
                  count_text(last.skips, "step was skipped", "steps were skipped"), scale_text(last.after)),
      kFindIt);
  a.evidence.push_back(evidence_of(t.moments[last.first], "first skip of the last run of skips"));
  return true;
}

bool now_and_then(const Timeline& t, Answer& a) {
  const Tail loss = losses(t), norm = norms(t);
  if (loss.count > 0) {
    say(a, Health::losing, "nan_now_and_then",
        fmt::format("the loss is not finite in {} of the log, first at {}; in others it is finite",
                    count_text(loss.count, "line", "lines"), place_of(*loss.first)),
        "look at these batches: empty targets, a division by a count of 0, values that no format holds");
    a.evidence.push_back(evidence_of(*loss.first, "loss not finite"));
    return true;
  }
  const Tail means = tail_of(
      t, [](const Moment& m) { return bad(m.mean_norm); }, [](const Moment& m) { return m.mean_norm.has_value(); });
  if (norm.count == 0 && means.count == 0) return false;
  const Moment& first = norm.count > 0 ? *norm.first : *means.first;
  const bool own = std::ranges::any_of(t.moments, [](const Moment& m) { return m.norm && m.mean_norm; });
  if (norm.count == 0 && own) {
    say(a, Health::harmless, "mean_poisoned",
        fmt::format("the running mean of the norm is not finite from {} on, the norm itself is: one skipped step "
                    "poisons a mean for good",
                    place_of(first)),
        "print the norm of the step");
    return true;
  }
  say(a, Health::cannot_tell, "norm_not_finite",
      fmt::format(
          "the norm is not finite in {} of the log, first at {}; the loss stays finite. One skipped step within "
          "an averaged line looks like this, and so does a NaN that was applied",
          count_text(norm.count + means.count, "line", "lines"), place_of(first)),
      "print the scale beside it: where it halves, the step was skipped and no harm was done");
  a.evidence.push_back(evidence_of(first, "norm not finite"));
  return true;
}

}  // namespace

Answer nan_of_no_scale(const LogAudit& audit) {
  const Timeline& t = audit.timeline;
  Answer a{.question = "nan"};
  for (const Moment& m : t.moments) {
    if (m.event != Event::nan) continue;
    say(a, Health::broken, "nan_reported", fmt::format("the framework itself reports a NaN at {}", place_of(m)),
        kFindIt);
    a.evidence.push_back(evidence_of(m, "NaN reported"));
    return a;
  }
  if (for_good(t, a) || at_any_scale(audit, a) || now_and_then(t, a)) return a;
  if (!t.loss_known && !t.norm_known)
    say(a, Health::cannot_tell, "not_said", "the log says neither loss nor norm of the gradients",
        "print the loss: overflows with a finite loss are the scale's, with a NaN loss they are not");
  else
    say(a, Health::harmless, "none",
        t.loss_known ? "every loss of the log is finite" : "every norm of the log is finite", "");
  return a;
}

Answer scaler_there(const LogAudit& audit) {
  const Timeline& t = audit.timeline;
  Answer a{.question = "scaler"};
  bool moves = false, counts = false, counted = false;
  for (const Moment& m : t.moments) {
    moves |= m.skip() || (m.after && *m.after != 1);
    counts |= m.counted.has_value();
    counted |= m.counted.value_or(0) != 0;
  }
  const Tail loss = losses(t), norm = norms(t);
  const Tail none = without_loss(t);
  const std::int64_t gone = none.to_the_end ? none.count : 0;
  const std::int64_t worst = std::max({loss.count, norm.count, gone});
  const Refusal* const refusal = audit.log.refusal;
  if (refusal != nullptr && refusal->ends) {
    say(a, Health::broken, "refused", fmt::format("the scaler ended the run: {}", refusal->means), refusal->cure);
    a.evidence.push_back({audit.log.refused_at, std::nullopt, refusal->message});
  } else if (counts && !counted && worst > 0) {
    const Moment& first = loss.count > 0 ? *loss.first : norm.count > 0 ? *norm.first : *none.first;
    say(a, Health::broken, "counters_lie",
        fmt::format(
            "{}steps that are not finite ({} of them, from {} on) are in no counter: skipped and NaN iterations "
            "stay 0. Nothing looks for them, and each was applied to the weights",
            moves ? "" : "there is no loss scaler (scale 1, as with bf16), and ", worst, place_of(first)),
        "turn on the check for NaN in gradients; with bf16 no scaler does it for you");
    a.evidence.push_back(evidence_of(first, "not finite, and both counters 0"));
  } else if (refusal != nullptr) {
    say(a, Health::losing, "warned", fmt::format("torch warned: {}", refusal->means), refusal->cure);
    a.evidence.push_back({audit.log.refused_at, std::nullopt, refusal->message});
  } else if (!t.scale_known && t.skips == 0) {
    say(a, Health::cannot_tell, "not_said", "the log does not say whether there is a loss scaler",
        "fp16 needs one; bf16 and fp32 do not");
  } else if (!moves) {
    say(a, Health::harmless, "no_scaler", "the scale is 1 throughout: no loss scaling, as bf16 and fp32 need none",
        "if the run is in fp16, small gradients are lost without a word");
  } else {
    say(a, Health::harmless, "scaler",
        t.scale_known && t.skips == 0 && t.first_scale == t.last_scale
            ? fmt::format("the scale is {} throughout", scale_text(*t.last_scale))
            : "there is a loss scaler, and it moves",
        "");
  }
  return a;
}

Answer reset_by_resume(const LogAudit& audit) {
  const Timeline& t = audit.timeline;
  Answer a{.question = "reset"};
  if (!t.scale_known) {
    say(a, Health::cannot_tell, "not_said", "no scale in the log", "");
    return a;
  }
  std::optional<double> scale;
  const Moment* before = nullptr;
  for (std::size_t i = 0; i < t.moments.size(); ++i) {
    const Moment& m = t.moments[i];
    const std::optional<double> now = m.peak ? m.peak : m.before && m.after ? std::max(m.before, m.after) : m.after;
    if (scale && now && before != nullptr && *scale > 0 && *now > *scale) {
      // What a growth in each window could have reached at most.
      const std::int64_t from = before->step.value_or(before->low), to = m.step.value_or(m.high);
      const bool restarted = to >= 0 && from >= 0 && to < from;
      const double windows =
          from >= 0 && to >= from ? std::floor(static_cast<double>(to - from) / audit.rule.window) + 1 : 0;
      const double jump = std::log2(*now / *scale) / std::log2(audit.rule.growth_factor);
      const bool to_first = *now == *t.first_scale || *now == audit.rule.init_scale;
      if ((restarted && jump >= 1 && to_first) || (windows > 0 && jump >= 2 && jump > windows)) {
        say(a, Health::losing, "reset",
            fmt::format(
                "the scale jumps from {} to {} at {}, which no growth explains{}: a resume without the scaler's "
                "state",
                scale_text(*scale), scale_text(*now), place_of(m), to_first ? ": it is the first scale again" : ""),
            "save and load the scaler with the model (scaler.state_dict()); look whether the optimizer's state is "
            "loaded");
        a.evidence.push_back(evidence_of(*before, "scale " + scale_text(*scale)));
        a.evidence.push_back(evidence_of(m, "scale " + scale_text(*now)));
        return a;
      }
    }
    if (m.after) {
      scale = m.after;
      before = &m;
    }
  }
  say(a, Health::harmless, "none",
      t.restarts.empty() ? "the scale is never set back" : "the run was resumed, and the scale with it", "");
  return a;
}

Answer ranks_agree(const LogAudit& audit) {
  const auto& ranks = audit.timeline.by_rank;
  Answer a{.question = "ranks"};
  if (ranks.size() < 2) {
    say(a, Health::harmless, audit.timeline.copies > 1 ? "same" : "one",
        audit.timeline.copies > 1 ? fmt::format("{} ranks say the same scales", audit.timeline.copies)
                                  : "one rank says the scale: others are not seen here",
        "");
    return a;
  }
  const auto& [first_rank, first] = *ranks.begin();
  std::map<std::int64_t, double> by_step(first.begin(), first.end());
  const bool steps = std::ranges::all_of(first, [](const auto& p) { return p.first >= 0; });
  for (auto at = std::next(ranks.begin()); at != ranks.end(); ++at) {
    const auto& [rank, said] = *at;
    for (std::size_t i = 0; i < said.size(); ++i) {
      const auto& [step, scale] = said[i];
      const auto same = steps ? by_step.find(step) : by_step.end();
      const bool lined_up = !steps && first.size() == said.size();
      if (steps ? same == by_step.end() : !lined_up) continue;
      const double other = steps ? same->second : first[i].second;
      if (other == scale || (std::isnan(other) && std::isnan(scale))) continue;
      say(a, Health::broken, "disagree",
          fmt::format(
              "{} rank {} has scale {} and rank {} has {}: their gradients are averaged with different factors, "
              "and the weights come apart",
              steps ? fmt::format("at step {}", step) : fmt::format("at overflow {}", i + 1), first_rank,
              scale_text(other), rank, scale_text(scale)),
          "all-reduce found_inf before the scale moves (MAX over all ranks)");
      a.evidence.push_back(
          {0, steps ? std::optional(step) : std::nullopt,
           fmt::format("rank {}: {}, rank {}: {}", first_rank, scale_text(other), rank, scale_text(scale))});
      return a;
    }
  }
  say(a, Health::harmless, "same", fmt::format("{} ranks say the same scales", ranks.size()), "");
  return a;
}

}  // namespace ampcheck::checks::scaler
