// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// A training run as text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "checks/train/fp8_check.h"
#include "tools/commands/train_report.h"
#include "tools/report/loss_decimal.h"
#include "tools/report/numbers.h"
#include "tools/report/shell_word.h"
#include "tools/trace/clip_text.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::tools {

namespace {

using namespace checks::train;

std::string power(int k) { return fmt::format("2^{}", k); }

std::string scale_text(double scale) {
  const int k = std::ilogb(scale);
  return scale > 0 && (k > 3 || k < -3) && std::ldexp(1.0, k) == scale ? power(k) : rounded_decimal(scale, 6);
}

std::string place_text(const Place& place) {
  const Tally& t = place.tally;
  if (t.overflowed > 0)
    return fmt::format("{}  {} overflowed", place.where.str(),
                       percent(static_cast<double>(t.overflowed) / static_cast<double>(t.elements)));
  if (t.flushed > 0) return fmt::format("{}  {} flushed to zero", place.where.str(), percent(t.flushed_share()));
  return fmt::format("{}  error {}", place.where.str(), rounded_decimal(t.local_error(), 2));
}

/// What a difference of the losses is compared with.
std::string allowed_text(const Trainer& trainer, const Compared& s) {
  std::string out =
      fmt::format("spread of {} fp64 seeds: {}", trainer.options().spread_seeds, rounded_decimal(*s.spread, 2));
  if (*s.rounding > *s.spread)
    out +=
        fmt::format("; rounding of the loss in {}: {}", name(trainer.options().dtype), rounded_decimal(*s.rounding, 2));
  return out;
}

/// Over how many steps a difference of the losses is a mean: fewer at the beginning.
std::string mean_text(const Compared& at) {
  const auto steps = std::min<std::int64_t>(Trainer::kSpreadSteps, at.step + 1);
  return steps == 1 ? "at that step" : fmt::format("in the mean of {} steps", steps);
}

std::string left_line(const Trainer& trainer, const Compared& at, const StepResult& last) {
  const char* dtype = dtype_name(trainer.options());
  if (!std::isfinite(at.loss))
    return fmt::format("The loss of the {} run is {} from step {} on.", dtype, std::isnan(at.loss) ? "NaN" : "infinite",
                       at.step + 1);
  return fmt::format("The {} run diverged from the fp64 run at step {}: losses {} apart {} ({}); at the end {}{}.",
                     dtype, at.step + 1, rounded_decimal(std::fabs(at.apart), 2), mean_text(at),
                     allowed_text(trainer, at), loss_decimal(last.loss),
                     last.fp64_loss ? " against " + loss_decimal(*last.fp64_loss) : "");
}

/// Of a run in which nothing came of the training: no matter how close its losses are. Empty for others.
std::string nothing_line(const char* dtype, const std::vector<RunFinding>& findings, const StepResult& last) {
  if (!last.fp64_loss) return "";
  const auto has = [&](std::initializer_list<RunCode> codes) {
    return std::any_of(findings.begin(), findings.end(), [&](const RunFinding& f) {
      return f.where.empty() && std::find(codes.begin(), codes.end(), f.code) != codes.end();
    });
  };
  const std::string losses = fmt::format("loss {} against {}", loss_decimal(last.loss), loss_decimal(*last.fp64_loss));
  if (has({RunCode::not_finite}))
    return fmt::format("The {} run and the fp64 run both lose their way: {}.", dtype, losses);
  if (has({RunCode::all_skipped, RunCode::no_gradient, RunCode::not_moved}))
    return fmt::format("The {} run trained nothing, so how close it is to the fp64 run says nothing: {}.", dtype,
                       losses);
  return "";
}

std::string head_line(const Trainer& trainer, const Diagnosis& d, const std::vector<StepResult>& steps) {
  const char* dtype = dtype_name(trainer.options());
  const StepResult& last = steps.back();
  if (const auto& left = trainer.verdict().left) return left_line(trainer, *left, last);
  if (const std::string nothing = nothing_line(dtype, d.findings, last); !nothing.empty()) return nothing;
  if (!last.fp64_loss)
    return fmt::format("The {} run ended with loss {} (--shadow carried compares it with fp64).", dtype,
                       loss_decimal(last.loss));
  const Compared& most = *trainer.verdict().most;
  const std::string apart = fmt::format("{} apart {}", rounded_decimal(std::fabs(most.apart), 2), mean_text(most));
  if (!most.spread)
    return fmt::format(
        "The {} run ended with loss {} against {} in fp64, never more than {}. No spread of seeds is known "
        "(--spread-seeds 5), so only a loss that is not finite counts as diverged.",
        dtype, loss_decimal(last.loss), loss_decimal(*last.fp64_loss), apart);
  return fmt::format("The {} run stayed close to the fp64 run: loss {} against {}, never more than {} ({}).", dtype,
                     loss_decimal(last.loss), loss_decimal(*last.fp64_loss), apart, allowed_text(trainer, most));
}

std::string head_text(const Trainer& trainer, const Diagnosis& d, const std::vector<StepResult>& steps,
                      const Style& style) {
  const bool well = !d.left_at && d.findings.empty();
  return fmt::format("\n{}{}{}\n", well ? style.green : style.red, head_line(trainer, d, steps), style.reset);
}

/// What is wrong, beside the distance of the losses.
std::string findings_text(const Trainer& trainer, const Diagnosis& d, const std::vector<std::string>& saved_cases,
                          const Style& style) {
  std::string out;
  std::size_t ops = 0;
  for (const RunFinding& f : d.findings) {
    const RunCodeText& text = text_of(f.code);
    out += fmt::format("\n{}{} {}{}  {}{}\n", style.red, text.word, text.name, style.reset, text.title,
                       f.where.empty() ? "" : ": " + f.where);
    out += fmt::format("  {:<8}step {}: {}\n", "found", f.step + 1, f.what);
    if (f.code != RunCode::op) continue;
    const LiveFinding& call = trainer.judge()->findings()[ops++];
    out += fmt::format("  {:<8}{}\n", "again",
                       ops <= saved_cases.size()
                           ? fmt::format("ampcheck check --dump {} --formula {}", shell_word(saved_cases[ops - 1]),
                                         shell_word(call.result.op))
                           : "--save-case DIR writes its tensors, for ampcheck check --dump");
  }
  return out;
}

/// How many calls were judged, and which were not.
std::string judged_text(const Trainer& trainer) {
  const LiveJudge* const judge = trainer.judge();
  if (judge == nullptr) return "";
  std::string out = fmt::format("{} calls at the tensors that they met", judge->judged());
  if (!judge->left_out().empty()) out += fmt::format("; not {}", fmt::join(judge->left_out(), ", "));
  return out;
}

/// What weights and moments in 16 bits lost, over the run: of the elements with a gradient.
std::string updates_text(const Trainer& trainer, const UpdateCounts& sum) {
  const OptimizerChoice& c = trainer.options().rule.optimizer;
  const Dtype weights = weights_dtype(trainer.options());
  const bool low =
      c.weights != Weights::fp32 || c.first_dtype(weights) != Dtype::fp32 || c.second_dtype(weights) != Dtype::fp32;
  if (sum.with_grad == 0 || (!low && sum.second_moment_zero == 0 && sum.epsilon_zero == 0)) return "";
  std::string out =
      fmt::format("{} of the elements with a gradient did not move{}", share_of(sum.with_grad_stagnant, sum.with_grad),
                  c.weights == Weights::master ? " in the fp32 masters" : "");
  if (c.weights == Weights::master && sum.intended > 0)
    out += fmt::format(", {} not in their {} copies", share_of(sum.copy_stagnant, sum.intended),
                       name(trainer.options().dtype));
  if (sum.second_moment_zero > 0)
    out += fmt::format("; the second moment of {} was zero", share_of(sum.second_moment_zero, sum.with_grad));
  if (sum.epsilon_zero > 0) out += fmt::format("; eps is zero in {}", name(weights_dtype(trainer.options())));
  return out;
}

}  // namespace

std::string share_of(std::int64_t part, std::int64_t all) {
  return percent(static_cast<double>(part) / static_cast<double>(all));
}

std::string train_step_line(const StepResult& s, int steps, const std::optional<Place>& worst) {
  std::string out =
      fmt::format("step {:>{}}/{}  loss {}", s.step + 1, std::to_string(steps).size(), steps, loss_decimal(s.loss));
  if (s.fp64_loss) out += "  fp64 " + loss_decimal(*s.fp64_loss);
  for (std::size_t k = 0; k < s.losses.size(); ++k) out += (k == 0 ? "  losses " : " ") + loss_decimal(s.losses[k]);
  if (s.grad_norm) out += fmt::format("  gradient norm {}", rounded_decimal(*s.grad_norm, 4));
  out += fmt::format("  scale {}  skips {}", scale_text(s.scale), s.skips);
  for (std::size_t k = 0; k < s.optimizers.size(); ++k)
    out += fmt::format("{}{}", k == 0 ? " (" : " ", s.optimizers[k].skips) + (k + 1 == s.optimizers.size() ? ")" : "");
  if (worst) out += "   worst: " + place_text(*worst);
  return out;
}

std::string train_heading(const Trainer& trainer) {
  const checks::train::TrainOptions& o = trainer.options();
  return fmt::format("{}, scaler {}, seed {}\n",
                     net_in(trainer.net().name, dtype_name(o), trainer.autocast_list(), kAutocastTablesVersion),
                     scaler_name(o), o.seed) +
         (o.fp8 ? fmt::format("fp8: the products of linear layers, {}; {} elsewhere\n", o.fp8->str(), name(o.dtype))
                : "");
}

namespace {

/// Lines of what clipping and weight decay did, with their words.
std::vector<std::pair<const char*, std::string>> clip_lines(const Trainer& trainer,
                                                            const std::vector<StepResult>& steps) {
  const StepRule& rule = trainer.options().rule;
  std::vector<ClipAndDecay> all;
  for (const StepResult& step : steps) all.push_back({step.clipping, step.decay});
  std::vector<std::pair<const char*, std::string>> out = {{"clipped", clipping_text(all)}};
  for (std::size_t k = 1; k < rule.optimizers(); ++k) {
    for (std::size_t i = 0; i < steps.size(); ++i) all[i] = {steps[i].optimizers[k].clipping, {}};
    if (const std::string own = clipping_text(all); !own.empty())
      out.emplace_back(out.front().second.empty() && out.size() == 1 ? "clipped" : "",
                       optimizer_text(rule, k) + ": " + own);
  }
  for (std::size_t i = 0; i < steps.size(); ++i) all[i] = {{}, steps[i].decay};
  out.emplace_back("decay", decay_text(all));
  std::erase_if(out, [](const auto& line) { return line.second.empty(); });
  return out;
}

/// What a moment in 16 bits lost, beside fp64.
std::string moment_text(const MomentLoss& m) {
  std::string out =
      fmt::format("{} in {}: {} off what fp64 keeps of the same gradients", m.name, name(m.dtype), percent(m.error));
  if (m.zero > 0) out += fmt::format("; {} are zero", share_of(m.zero, m.elements));
  if (std::fabs(m.median - 1) > format(m.dtype).unit_roundoff())
    out += fmt::format("; the middle one is {:.3g} times as large as it should be", m.median);
  return out;
}

/// " 3 7 8 ..." of steps, counted from 1.
std::string steps_text(const std::vector<int>& steps) {
  constexpr std::size_t kMost = 8;
  std::string out;
  for (std::size_t i = 0; i < std::min(steps.size(), kMost); ++i) out += fmt::format(" {}", steps[i] + 1);
  return out + (steps.size() > kMost ? " ..." : "");
}

using Lines = std::vector<std::pair<const char*, std::string>>;

/// What the formats of 8 bits took: of the tensor that was cut off most, and of the one that lost most to zero.
Lines fp8_lines(const Trainer& trainer) {
  Lines out;
  const Fp8Check* const check = trainer.judge() != nullptr ? trainer.judge()->fp8() : nullptr;
  if (check == nullptr) return out;
  const Fp8Loss* cut = nullptr;
  const Fp8Loss* lost = nullptr;
  const std::vector<Fp8Loss> losses = check->losses();
  for (const Fp8Loss& l : losses) {
    if (l.saturated > 0 && (cut == nullptr || l.worst_saturated > cut->worst_saturated)) cut = &l;
    if (l.zeros > 0 && (lost == nullptr || l.worst_zero > lost->worst_zero)) lost = &l;
  }
  if (cut != nullptr)
    out.emplace_back("fp8", fmt::format("{} {}: {} cut off at the largest number in step {}, |x| up to {} where its "
                                        "scale holds {}",
                                        cut->op, cut->tensor, percent(cut->worst_saturated), cut->worst_step + 1,
                                        rounded_decimal(cut->worst_amax, 2), rounded_decimal(cut->worst_room, 2)));
  if (lost != nullptr)
    out.emplace_back(out.empty() ? "fp8" : "", fmt::format("{} {}: up to {} of a step's elements became zero", lost->op,
                                                           lost->tensor, percent(lost->worst_zero)));
  return out;
}

/// What short formats took from tensors and moments.
Lines format_lines(const Trainer& trainer) {
  Lines out = fp8_lines(trainer);
  const char* word = "moments";
  for (const MomentLoss& m : trainer.moment_losses()) out.emplace_back(std::exchange(word, ""), moment_text(m));
  return out;
}

/// Which steps were skipped, by which of several optimizers, and what made the first one.
Lines skip_lines(const Trainer& trainer, const Diagnosis& d, const std::vector<StepResult>& steps) {
  Lines out;
  if (!d.skipped.empty())
    out.emplace_back("skipped",
                     fmt::format("{} of {} steps:{}{}", d.skipped.size(), steps.size(), steps_text(d.skipped),
                                 d.caught ? fmt::format("; in step {} {} made finite values non-finite",
                                                        d.caught->step + 1, d.caught->where.str())
                                          : ""));
  for (std::size_t k = 0; k < steps.back().optimizers.size(); ++k)
    if (const int skips = steps.back().optimizers[k].skips; steps.back().skips > 0)
      out.emplace_back("", fmt::format("{}: {}", optimizer_text(trainer.options().rule, k), skips));
  if (const int before = steps.back().skips - static_cast<int>(d.skipped.size()); before > 0)
    out.emplace_back("before", fmt::format("{} of steps 1 to {} were skipped", before, steps.front().step));
  return out;
}

}  // namespace

std::string train_summary(const Trainer& trainer, const Diagnosis& d, const std::vector<StepResult>& steps,
                          const Advice& advice, const std::vector<std::string>& saved_cases, const Style& style) {
  std::string out = findings_text(trainer, d, saved_cases, style);
  out += head_text(trainer, d, steps, style);
  const std::size_t begin = out.size();
  const auto line = [&](const char* word, const std::string& text) { out += fmt::format("  {:<8}{}\n", word, text); };
  if (d.producer)
    line("fault",
         fmt::format("step {}: {} made finite values non-finite", d.producer->step + 1, d.producer->where.str()));
  if (d.killer)
    line("killed",
         fmt::format("step {}: {} is finite although what it read was not", d.killer->step + 1, d.killer->where.str()));
  const double smallest = d.vanished.empty() ? 0 : format(d.vanished.front().where.dtype).min_subnormal();
  for (std::size_t i = 0; i < std::min<std::size_t>(d.vanished.size(), 3); ++i)
    line(
        i == 0 ? "where" : "",
        fmt::format("{}: {} of non-zero elements became zero{}", d.vanished[i].where.str(),
                    percent(d.vanished[i].tally.flushed_share()),
                    i == 0 ? fmt::format(" (smallest kept {}); {} of all gradients in {}", rounded_decimal(smallest, 2),
                                         percent(d.vanished_share), trainer.options().fp8 ? "8 and 16 bits" : "16 bits")
                           : ""));
  if (d.vanished.empty() && d.worst) line("worst", place_text(*d.worst));
  if (d.scale.known && trainer.options().dtype == Dtype::fp16)
    line("scale", scale_advice(d.scale) + (trainer.options().shadows.local || trainer.options().shadows.carried
                                               ? ""
                                               : "; of casts alone (--shadow local sees the ops)"));
  if (const std::string lost = updates_text(trainer, d.updates); !lost.empty()) line("updates", lost);
  for (const auto& [word, text] : format_lines(trainer)) line(word, text);
  for (const auto& [word, text] : clip_lines(trainer, steps)) line(word, text);
  for (const auto& [word, text] : skip_lines(trainer, d, steps)) line(word, text);
  if (d.disagreed_at)
    line("ranks", fmt::format("from step {} on they disagree on what was found: some stepped, others did not",
                              *d.disagreed_at + 1));
  if (const std::string judged = judged_text(trainer); !judged.empty()) line("judged", judged);
  if (!advice.text.empty()) line("try", advice.text + (advice.tried.empty() ? "" : "  (" + advice.tried + ")"));
  if (!advice.failed.empty()) line("no help", advice.failed);
  // A checkpoint knows losses, scale and skips of the steps before it, not their tensors.
  if (steps.front().step > 0 && out.size() > begin)
    out.insert(begin, fmt::format("Of steps {} to {}, run since the checkpoint, alone:\n", steps.front().step + 1,
                                  steps.back().step + 1));
  return out;
}

}  // namespace ampcheck::tools
