// SPDX-License-Identifier: Apache-2.0
// How many updates were made, what advanced meanwhile, whether the norm follows the scale, and what a log cannot tell.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/scaler/answers.h"

namespace ampcheck::checks::scaler {

namespace {

/// Skipped steps on which the schedule moved, and samples that they took.
struct Meanwhile {
  std::int64_t moved = 0, looked_at = 0;
  double samples = 0;
  const Moment* first = nullptr;
};

Meanwhile meanwhile(const Timeline& t) {
  Meanwhile out;
  const Moment* before = nullptr;
  for (const Moment& m : t.moments) {
    if (m.event != Event::none && !m.skip()) continue;
    const bool next = before != nullptr && m.step && before->step && *m.step == *before->step + 1;
    if (m.skip() && next) {
      if (m.lr && before->lr) {
        ++out.looked_at;
        if (*m.lr != *before->lr && out.moved++ == 0) out.first = &m;
      }
      if (m.samples && before->samples) out.samples += *m.samples - *before->samples;
    }
    before = &m;
  }
  return out;
}

/// Skips up to and with a step.
std::int64_t skips_until(const Timeline& t, std::size_t moment) {
  std::int64_t out = t.earlier_skips;
  for (std::size_t i = 0; i <= moment && i < t.moments.size(); ++i) out += t.moments[i].skips;
  return out;
}

bool from_begin(const Timeline& t) {
  return t.step_known && (t.earlier_skips > 0 || t.first_step <= 1 || t.moments.front().interval <= 1 ||
                          t.first_step <= t.moments.front().interval);
}

std::string checkpoints_text(const Timeline& t, bool& empty) {
  std::string out;
  for (const std::size_t at : t.checkpoints) {
    const Moment& m = t.moments[at];
    if (!m.step) continue;
    const std::int64_t updates = *m.step - (from_begin(t) ? skips_until(t, at) : 0);
    if (from_begin(t) && updates <= 0) empty = true;
    if (from_begin(t))
      out += fmt::format(
          "; the checkpoint of step {} holds {}", *m.step,
          updates <= 0 ? "no update: its optimizer state is empty" : count_text(updates, "update", "updates"));
  }
  return out;
}

/// A scaler's own count of clean steps that runs slower than the log's steps.
std::string other_count(const Timeline& t) {
  const Moment* before = nullptr;
  for (const Moment& m : t.moments) {
    if (!m.clean || !m.step) continue;
    if (before != nullptr && m.after == before->after && *m.clean > *before->clean) {
      const double counted = *m.clean - *before->clean;
      const auto steps = static_cast<double>(*m.step - *before->step);
      if (counted < steps)
        return fmt::format(
            "; the scaler counts {:g} clean steps more from step {} to {}, where the scale does not move: "
            "either skips set its count back, or it is asked less often than the log counts",
            counted, *before->step, *m.step);
    }
    before = &m;
  }
  return "";
}

}  // namespace

Answer updates_made(const LogAudit& audit) {
  const Timeline& t = audit.timeline;
  Answer a{.question = "updates"};
  const bool only_skips = !t.streaks.empty() && t.streaks.size() == 1 && !t.streaks.front().ended;
  if (!t.step_known) {
    const bool none = only_skips && t.skips > 40;  // no start needs so many
    a.health = none ? Health::broken : Health::cannot_tell;
    a.kind = none ? "none" : "not_said";
    a.text = none          ? fmt::format("none: the log has {} skips and nothing else", t.skips)
             : t.skips > 0 ? fmt::format("{} skips; of how many steps, the log does not say", t.skips)
                           : "the log does not number its steps";
    return a;
  }
  const std::int64_t steps = t.counted_skips ? t.last_step : std::max(t.steps, t.skips);
  const std::int64_t updates = std::max<std::int64_t>(steps - t.counted_skips.value_or(t.skips), 0);
  const bool certain = t.each_step || t.source != SkipSource::falls;
  bool empty = updates == 0 && steps >= 3 && only_skips;
  a.text = fmt::format("{}{} of {} steps moved the weights, up to step {}", certain ? "" : "at most ", updates, steps,
                       t.last_step);
  a.text += checkpoints_text(t, empty);
  const Meanwhile lost = meanwhile(t);
  if (lost.moved > 0)
    a.text += fmt::format("; the learning rate advanced on {} of {} skipped steps", lost.moved, lost.looked_at);
  if (lost.samples > 0) a.text += fmt::format("; skipped steps took {:.0f} samples", lost.samples);
  a.text += other_count(t);
  const Health skips = how_skipped(audit).health;
  a.kind = empty ? "none" : lost.moved > 0 ? "schedule_advances" : "counted";
  a.health = empty                                                                    ? Health::broken
             : lost.moved > 0 && (skips >= Health::losing || lost.moved * 10 > steps) ? Health::losing
                                                                                      : Health::harmless;
  if (lost.first != nullptr) {
    a.evidence.push_back(
        evidence_of(*lost.first, fmt::format("skipped, and the learning rate is {:g}", *lost.first->lr)));
    a.advice = "step the scheduler only where the optimizer stepped (the scale did not fall)";
  }
  return a;
}

namespace {

/// Differences of log2(norm) from one finite line to the next, where the scale moved and where it did not.
struct NormMoves {
  double moved2 = 0, product = 0, quiet2 = 0;
  std::int64_t moved = 0, quiet = 0;
  const Moment* example = nullptr;

  void add(const Moment& m, double norms, double scales) {
    if (scales == 0) {
      quiet2 += norms * norms;
      ++quiet;
      return;
    }
    moved2 += scales * scales;
    product += norms * scales;
    if (moved++ == 0) example = &m;
  }
};

double norm_of(const Moment& m) { return m.norm ? *m.norm : m.mean_norm.value_or(0); }

NormMoves norm_moves(const Timeline& t) {
  const auto positive = [](double x) { return x > 0 && std::isfinite(x); };
  NormMoves out;
  const Moment* last = nullptr;
  for (const Moment& m : t.moments) {
    if (m.skip() || !positive(norm_of(m)) || !positive(m.after.value_or(0))) continue;
    if (last != nullptr) out.add(m, std::log2(norm_of(m) / norm_of(*last)), std::log2(*m.after / *last->after));
    last = &m;
  }
  return out;
}

}  // namespace

Answer norm_follows_scale(const LogAudit& audit) {
  const Timeline& t = audit.timeline;
  Answer a{.question = "norm", .health = Health::cannot_tell, .kind = "not_shown"};
  const auto [moved2, product, quiet2, moved, quiet, example] = norm_moves(t);
  if (!t.norm_known || !t.scale_known || moved == 0 || quiet < 3) {
    a.text = !t.norm_known    ? "no norm in the log"
             : !t.scale_known ? "no scale in the log"
                              : "the scale does not move beside enough finite norms";
    return a;
  }
  // The norm's own noise says how far the slope of log norm over log scale is known: 0 for unscaled norms, 1 for
  // scaled.
  const double noise = std::sqrt(quiet2 / static_cast<double>(quiet));
  const double slope = product / moved2, error = noise / std::sqrt(moved2) + 1e-12;
  const bool is0 = std::abs(slope) <= 4 * error, is1 = std::abs(slope - 1) <= 4 * error;
  if (is1 && !is0 && slope > 0.5) {
    a.health = Health::losing;
    a.kind = "scaled";
    a.text = fmt::format(
        "the norm follows the scale (its power {:.2f}, give or take {:.2f}; 0 is due): it is that of scaled gradients. "
        "Only the log is wrong, or they are clipped before they are unscaled and the learning rate hangs on the scale",
        slope, error);
    a.advice = "scaler.unscale_(optimizer) before clip_grad_norm_";
    a.evidence.push_back(
        evidence_of(*example, fmt::format("scale {} and norm {:.4g}", scale_text(*example->after), norm_of(*example))));
  } else if (is0 && !is1) {
    a.health = Health::harmless;
    a.kind = "unscaled";
    a.text = "the norm does not follow the scale";
  } else {
    a.text = fmt::format("the norm's own noise ({:.2f} octaves from line to line) hides it", noise);
  }
  return a;
}

namespace {

/// One line for the training script, by the framework that wrote the log.
std::string line_to_add(const LogAudit& audit) {
  const std::string_view rule = audit.rule.name;
  if (rule.starts_with("deepspeed"))
    return "print(f\"step={engine.global_steps} loss={loss.item()} loss_scale={engine.optimizer.cur_scale} "
           "grad_norm={engine.get_global_grad_norm()} skipped={int(engine.optimizer.overflow)}\")";
  if (rule == "megatron") return "--log-interval 1, and print the loss of skipped iterations too";
  return "print(f\"step={step} loss={loss.item()} loss_scale={scaler.get_scale()} grad_norm={norm.item()} "
         "skipped={int(scaler.get_scale() < scale_before)}\")";
}

}  // namespace

Answer what_is_missing(const LogAudit& audit) {
  const Timeline& t = audit.timeline;
  Answer a{.question = "missing"};
  std::vector<std::string> lacks;
  if (!t.scale_known) lacks.emplace_back("the scale");
  if (!t.step_known) lacks.emplace_back("the step");
  if (t.step_known && !t.each_step) lacks.emplace_back("the steps between its lines");
  if (t.source == SkipSource::falls) lacks.emplace_back("whether a step was skipped");
  if (!t.loss_known) lacks.emplace_back("the loss");
  if (!t.norm_known) lacks.emplace_back("the norm of the gradients");
  if (lacks.empty()) {
    a.kind = "nothing";
    a.text =
        "step, scale, skips, loss and norm are all in the log; which op went bad first is in none (ampcheck explain "
        "training)";
    return a;
  }
  std::string list;
  for (std::size_t i = 0; i < lacks.size(); ++i)
    list += (i == 0 ? "" : i + 1 == lacks.size() ? " and " : ", ") + lacks[i];
  a.health = Health::cannot_tell;
  a.kind = "lacks";
  a.text = "the log does not have " + list;
  a.advice = line_to_add(audit);
  return a;
}

}  // namespace ampcheck::checks::scaler
