// SPDX-License-Identifier: Apache-2.0
// What a trainer asks of its own steps.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "checks/train/fp8_check.h"
#include "checks/train/live_finding.h"
#include "checks/train/loss_course.h"
#include "checks/train/trainer.h"

namespace ampcheck::checks::train {

namespace {

/// A step of a net of more numbers than this is checked at steps 1, 2, 4, 8, ... alone: of a large net the check takes
/// as long as the step.
constexpr std::int64_t kMostOfEveryStep = std::int64_t{1} << 20;

/// Of steps that are looked at as a whole, where not all are: the first ones, in which a wrong step shows and the sign
/// of the loss's error is told from chance, then one in seven, and those that are judged.
bool is_looked_at(int step) {
  constexpr int kFirst = 24, kEvery = 7;
  return step < kFirst || step % kEvery == 0 || std::has_single_bit(static_cast<unsigned>(step) + 1);
}

/// "linear_1 (layer0) backward dx".
std::string place_of(const LiveFinding& found, const CheckResult& check) {
  return found.call + (found.layer.empty() ? "" : " (" + found.layer + ")") + " " + check.name();
}

/// The likely cause; where none is known, how many elements are wrong and the worst of them.
std::string words_of(const CheckResult& check) {
  if (!check.cause.empty()) return check.cause;
  std::string out = fmt::format("{} of {} elements", check.failed, check.compared);
  if (!check.worst.empty())
    out += fmt::format(", the worst is {:.6g}, want {:.6g}", check.worst.front().got, check.worst.front().want);
  return out;
}

double norm_of(const Tensor& tensor) {
  double sum = 0;
  for (const double x : to_doubles(tensor.view())) sum += x * x;
  return std::sqrt(sum);
}

/// Whether more of the gradients became zero than rounding is large: repetitions lose them too, the fp64 run does not,
/// and it is the format's range that does it.
bool gradients_vanish(const Watch* watch, Dtype dtype) {
  if (watch == nullptr) return false;
  std::int64_t nonzero = 0, flushed = 0;
  for (const auto& [key, tally] : watch->of_run()) {
    if (!is_gradient(key.phase)) continue;
    nonzero += tally.nonzero;
    flushed += tally.flushed;
  }
  return static_cast<double>(flushed) > format(dtype).unit_roundoff() * static_cast<double>(nonzero);
}

}  // namespace

RunFinding finding_of(const LiveFinding& found) {
  RunFinding out{RunCode::op, found.step, found.call, "", ""};
  const CheckResult* const check = deciding_check(found.result);
  if (check == nullptr) return out;
  out.where = place_of(found, *check);
  out.what = fmt::format("{} {} {}: {}", name(found.result.verdict), ampcheck::text_of(check->code).name,
                         ampcheck::text_of(check->code).title, words_of(*check));
  return out;
}

void Trainer::begin_checks() {
  if (!step_check_) return;
  std::int64_t numbers = 0;
  for (const Parameter& parameter : parameters_.all()) numbers += parameter.value.count();
  // What moments in 16 bits lose adds up over all steps; what the first step with another scale does shows at once.
  const double scale = scaler().get_scale();
  const bool looked_at = options_.judge == JudgeMode::all || is_looked_at(step_) || scale != scale_before_;
  scale_before_ = scale;
  step_check_->begin(step_, numbers <= kMostOfEveryStep ? looked_at || step_check_->follows_moments()
                                                        : std::has_single_bit(static_cast<unsigned>(step_) + 1));
  constexpr std::int64_t kMostInFp64 = std::int64_t{1} << 18;
  const bool fits = options_.shadows.carried && options_.rule.grad_penalty <= 0 && !stream_ && numbers <= kMostInFp64;
  if (!fits) return;
  if (!same_weights_) same_weights_ = std::make_unique<SameWeights>(net_, options_.rule, options_.seed);
  if (!looked_at) return same_weights_->leave_out();
  const bool repeated = std::has_single_bit(static_cast<unsigned>(step_) + 1);
  same_weights_->begin(step_, parameters_, repeated);
  if (repeated) repeat_with_other_rounding();
}

void Trainer::repeat_with_other_rounding() {
  const double scale = scaler().get_scale();
  // Once the spread has been seen a few times, fewer repetitions show it.
  const int replays = step_ < SameWeights::kFirstSteps ? SameWeights::kReplays : SameWeights::kReplays / 2;
  for (int replay = 0; replay < replays; ++replay) {
    nudge_ = [this, seed = options_.seed + static_cast<std::uint64_t>(replay) + 1](const Event& event) {
      if (options_.fault) options_.fault(event);
      nudge(event, seed);
    };
    StepResult unused;
    run_micro_batches(unused);
    same_weights_->add_replay(parameters_, scale);
    parameters_.clear_grads();
  }
  nudge_ = nullptr;
}

void Trainer::plant(Stage stage, ParameterSet& parameters) {
  if (options_.plant) options_.plant(stage, parameters, scaler().get_scale());
}

double Trainer::lr_by_rule(std::size_t k) const {
  const double base = options_.rule.choice(k).with_defaults().lr;
  const LrFactor factor = make_schedule(options_.rule.schedule);
  return factor ? base * factor(step_ - skips_of_[k]) : base;
}

void Trainer::before_update(double scale) {
  if (!step_check_ || !step_check_->checks()) return;
  const double divided_by = scaled_until_update() ? scale : 1;
  step_check_->before_update(updated_parts(), divided_by);
}

std::vector<StepCheck::Part> Trainer::updated_parts() const {
  if (!sharded_) return {{&parameters_, optimizers_.get()}};
  std::vector<StepCheck::Part> out;
  for (int r = 0; r < sharded_->ranks(); ++r) out.push_back({&sharded_->shards(r), &sharded_->optimizers(r)});
  return out;
}

std::vector<MomentLoss> Trainer::moment_losses() const {
  return step_check_ && (sharded_ || optimizers_) ? step_check_->moment_losses(updated_parts())
                                                  : std::vector<MomentLoss>{};
}

void Trainer::after_update(const StepResult& result) {
  if (!step_check_) return;
  std::vector<UpdateMade> made;
  for (std::size_t k = 0; k < options_.rule.optimizers(); ++k)
    made.push_back({lr_by_rule(k), step_ - skips_of_[k] + 1, stepped(k)});
  if (!result.ranks_disagree && step_check_->checks()) step_check_->after_update(updated_parts(), made);
  if (result.optimizers.empty())
    return step_check_->skipped(result.stepped, result.found_inf, scaler().is_enabled(), "");
  for (std::size_t k = 0; k < made.size(); ++k)
    step_check_->skipped(made[k].stepped, result.optimizers[k].found_inf, scaler().is_enabled(),
                         optimizer_text(options_.rule, k));
}

void Trainer::count_progress(const StepResult& result) {
  ++progress_.steps;
  bool any = result.stepped;
  for (const OptimizerStep& o : result.optimizers) any |= o.stepped;
  progress_.skipped += !any;
  progress_.updates += any;
  progress_.skipped_by.resize(result.optimizers.size());
  for (std::size_t k = 0; k < result.optimizers.size(); ++k) progress_.skipped_by[k] += !result.optimizers[k].stepped;
  if (!result.optimizers.empty() && progress_.optimizers.empty())
    for (std::size_t k = 0; k < options_.rule.optimizers(); ++k)
      progress_.optimizers.push_back(optimizer_text(options_.rule, k));
  progress_.losses.push_back(result.loss);
  if (result.fp64_loss) progress_.fp64_losses.push_back(*result.fp64_loss);
  progress_.norms |= !result.norms.empty();
  progress_.parameters.resize(parameters_.all().size());
  std::vector<double> fp64;
  double all2 = 0;
  for (const Parameter& parameter : parameters_.all()) {
    const Parameter* const own = reference_.empty() ? nullptr : reference_.front()->parameters().find(parameter.name);
    const Tensor* const gradient = own == nullptr ? nullptr : &reference_.front()->gradient(*own);
    fp64.push_back(gradient != nullptr && gradient->defined() ? norm_of(*gradient) : 0);
    all2 += fp64.back() * fp64.back();
  }
  std::size_t at = 0;
  for (const Parameter& parameter : parameters_.all()) {
    Progress::OfParameter& p = progress_.parameters[at];
    p.name = parameter.name;
    if (at < result.norms.size()) p.gradient |= result.norms[at] != 0;
    p.fp64_gradient |= fp64[at] > kNoiseShare * std::sqrt(all2);
    const UpdateCounts counts = sharded_ ? sharded_->counts(at) : optimizers_->counts(at);
    p.intended += sharded_ ? counts.with_grad : counts.intended;
    p.moved += sharded_ ? counts.with_grad - counts.with_grad_stagnant : counts.intended - counts.stagnant;
    ++at;
  }
}

namespace {

/// Names of the first three of some parameters.
struct Named {
  std::string names;
  int count = 0;
  void add(const std::string& name) {
    if (++count <= 3) names += (names.empty() ? "" : ", ") + name;
  }
  std::string text() const { return names + (count > 3 ? ", ..." : ""); }
};

/// Of several optimizers those that never stepped.
void add_idle_optimizers(const Progress& p, std::vector<RunFinding>& out) {
  for (std::size_t k = 0; k < p.skipped_by.size(); ++k)
    if (p.skipped_by[k] == p.steps)
      out.push_back({RunCode::all_skipped, p.steps - 1, p.optimizers[k],
                     fmt::format("it skipped {0} of {0} steps: its parameters were not trained", p.steps)});
}

bool is_beside_fp64(const Progress& p) { return std::ssize(p.fp64_losses) == p.steps; }

bool none_finite(const Progress& p) {
  const auto none = [](const std::vector<double>& losses) {
    return std::none_of(losses.begin(), losses.end(), [](double loss) { return std::isfinite(loss); });
  };
  return is_beside_fp64(p) && none(p.losses) && none(p.fp64_losses);
}

void add_growth(const Progress& p, std::vector<RunFinding>& out) {
  if (!is_beside_fp64(p) || leaves(p.losses) < 0 || leaves(p.fp64_losses) < 0) return;
  out.push_back({RunCode::not_finite, leaves(p.fp64_losses), "",
                 fmt::format("it began at {:.4g} and ends at {:.4g}, in fp64 at {:.4g}: precision is not why",
                             p.losses.front(), p.losses.back(), p.fp64_losses.back())});
}

}  // namespace

std::vector<RunFinding> Progress::findings() const {
  std::vector<RunFinding> out;
  const auto add = [&](RunCode code, const std::string& where, const std::string& what) {
    out.push_back({code, steps - 1, where, what});
  };
  if (steps == 0) return out;
  if (none_finite(*this)) {
    add(RunCode::not_finite, "",
        fmt::format("none of {} losses is finite, here and in fp64: precision is not why", steps));
    return out;
  }
  if (skipped == steps) {
    add(RunCode::all_skipped, "", fmt::format("{} of {} steps were skipped: nothing was trained", skipped, steps));
    return out;
  }
  add_growth(*this, out);
  add_idle_optimizers(*this, out);
  const auto none = [&](const auto& of) { return std::none_of(parameters.begin(), parameters.end(), of); };
  const bool fp64_has = fp64_losses.empty() || !none([](const OfParameter& p) { return p.fp64_gradient; });
  if (norms && none([](const OfParameter& p) { return p.gradient; })) {
    add(RunCode::no_gradient, "",
        fp64_has ? fmt::format("every gradient of {} steps was zero{}", steps,
                               !fp64_losses.empty() ? "; in fp64 they are not" : "")
                 : fmt::format("every gradient of {} steps was zero, in fp64 too", steps));
    return out;
  }
  for (const OfParameter& p : parameters) {
    if (!norms || p.gradient || !p.fp64_gradient) continue;
    add(RunCode::no_gradient, p.name, "its gradient was zero in every step; in fp64 it is not");
    break;
  }
  if (updates == 0) return out;
  const auto wanted = [](const OfParameter& p) { return p.intended > 0; };
  const auto moved = [](const OfParameter& p) { return p.moved > 0; };
  if (!none(wanted) && none(moved)) {
    add(RunCode::not_moved, "", fmt::format("no parameter moved in {} updates, although they have gradients", updates));
    return out;
  }
  Named stuck;
  for (const OfParameter& p : parameters)
    if (wanted(p) && !moved(p) && updates > 1) stuck.add(p.name);
  if (stuck.count > 0)
    add(RunCode::one_not_moved, stuck.text(),
        fmt::format("{} not one element in {} updates: each is smaller than half a last place of the weight",
                    stuck.count == 1 ? "moved" : "moved, none of them,", updates));
  return out;
}

std::vector<RunFinding> Trainer::findings() const {
  std::vector<RunFinding> out;
  if (judge_)
    for (const LiveFinding& found : judge_->findings()) out.push_back(finding_of(found));
  if (judge_)
    for (const CastFinding& c : judge_->casts())
      out.push_back(
          {RunCode::cast, c.step, c.where,
           fmt::format("{} of {} elements: {:.6g} where {:.6g} is right", c.outside, c.elements, c.got, c.want)});
  if (judge_ && judge_->fp8() != nullptr)
    for (const Fp8Departure& d : judge_->fp8()->departures())
      out.push_back(
          {RunCode::fp8, d.step, d.where(),
           d.what + (d.tensors > 1 ? fmt::format("; {} of {} tensors in fp8 are like that", d.tensors, d.of) : "")});
  if (step_check_) out.insert(out.end(), step_check_->findings().begin(), step_check_->findings().end());
  if (same_weights_)
    for (RunFinding& found : same_weights_->findings())
      if (found.code != RunCode::gradient || !gradients_vanish(watch_.get(), options_.dtype))
        out.push_back(std::move(found));
  const std::vector<RunFinding> nothing = progress_.findings();
  out.insert(out.end(), nothing.begin(), nothing.end());
  return out;
}

}  // namespace ampcheck::checks::train
