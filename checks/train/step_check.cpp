// SPDX-License-Identifier: Apache-2.0
#include "checks/train/step_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/rounding.h"

namespace ampcheck::checks::train {

namespace {

constexpr RunCodeText kTexts[kRunCodes] = {
    {"TR101", "BUG", "an op is wrong at the tensors that it met"},
    {"TR110", "BUG", "a cast is not what rounding to nearest gives"},
    {"TR111", "BUG", "a tensor in fp8 is not what the recipe makes of it"},
    {"TR102", "BUG", "gradients of micro-batches are added up wrongly"},
    {"TR103", "BUG", "the mean of the ranks' gradients is wrong"},
    {"TR104", "BUG", "gradients are not what division by the loss scale gives"},
    {"TR105", "BUG", "gradients are not what clipping gives"},
    {"TR106", "BUG", "weights or moments are not what the optimizer's rule gives"},
    {"TR107", "BUG", "a step was skipped, or made, against the scaler's rule"},
    {"TR108", "BUG", "the gradient is not that of the loss"},
    {"TR109", "BUG", "the loss differs from fp64's at the same weights, always to one side"},
    {"TR201", "NOTHING", "every step was skipped"},
    {"TR202", "NOTHING", "all gradients are zero"},
    {"TR203", "NOTHING", "no parameter moved"},
    {"TR204", "NOTHING", "a parameter never moved"},
    {"TR205", "NOTHING", "the loss grows, or is not finite, in fp64 too"},
};

std::string number(double x) { return fmt::format("{:.6g}", x); }

}  // namespace

const RunCodeText& text_of(RunCode code) { return kTexts[static_cast<int>(code)]; }

/// Numbers of the run beside what they should be.
struct StepCheck::Difference {
  std::int64_t elements = 0, outside = 0;
  double dot = 0, want2 = 0, got2 = 0;
  double worst = 0, got = 0;
  Rounded want;

  void add(double g, const Rounded& w) {
    ++elements;
    if (std::isfinite(g) && std::isfinite(w.value)) {
      dot += g * w.value;
      want2 += w.value * w.value;
      got2 += g * g;
    }
    if (admits(w, g)) return;
    ++outside;
    const double off = std::isfinite(g) ? std::fabs(g - w.value) / std::max(w.radius, 0x1p-200) : HUGE_VAL;
    if (off < worst) return;
    worst = off;
    got = g;
    want = w;
  }
  /// By what all numbers seem to be multiplied; 0 if no one factor explains them.
  double factor() const {
    if (want2 == 0 || got2 == 0 || dot == 0) return 0;
    return dot * dot > (1 - 1e-6) * want2 * got2 ? dot / want2 : 0;
  }
  std::string text(const char* of_what) const {
    std::string out = fmt::format("{} of {} {} outside: {} where {} is right, within {}", outside, elements, of_what,
                                  number(got), number(want.value), number(want.radius));
    if (const double f = factor(); f != 0 && std::fabs(f - 1) > 1e-3)
      out += fmt::format("; all are {} times as large as they should be", number(f));
    return out;
  }
};

StepCheck::StepCheck(const StepRule& rule, const ReduceOptions& reduce, Dtype weights) : rule_(rule), reduce_(reduce) {
  const Dtype own = rule.optimizer.weights == Weights::low ? weights : Dtype::fp32;
  for (std::size_t k = 0; k < rule.optimizers(); ++k)
    updates_.emplace_back(rule.choice(k).with_defaults(), own, rule.optimizer.first_dtype(own),
                          rule.optimizer.second_dtype(own));
  follows_moments_ = bytes(rule.optimizer.first_dtype(own)) < 4 || bytes(rule.optimizer.second_dtype(own)) < 4;
}

void StepCheck::begin(int step, bool checked) {
  step_ = step;
  checked_ = checked;
  follows_moments_ &= checked;  // what a step added is not known later
  parts_.clear();
  gradients_.clear();
  before_.clear();
}

void StepCheck::note(RunCode code, const std::string& where, const Difference& difference, const char* of_what) {
  const bool known =
      std::any_of(findings_.begin(), findings_.end(), [&](const RunFinding& f) { return f.code == code; });
  if (difference.outside == 0 || known) return;
  findings_.push_back({code, step_, where, difference.text(of_what)});
}

void StepCheck::add_part(int rank, const std::string& parameter, const TensorView& gradient) {
  Parts& parts = parts_[parameter][rank];
  const std::vector<double> values = to_doubles(gradient);
  parts.sum.resize(values.size());
  parts.size.resize(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    parts.sum[i] += values[i];
    parts.size[i] += std::fabs(values[i]);
  }
  parts.dtype = gradient.dtype;
  ++parts.count;
}

/// Each addition rounds once; in fp64 here, of up to 2^20 parts, next to nothing.
std::vector<Rounded> StepCheck::sum_of(const Parts& parts) {
  std::vector<Rounded> out(parts.sum.size());
  const FloatFormat& in = format(parts.dtype);
  const double additions = parts.count - 1;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const bool may_overflow = parts.count > 1 && !(parts.size[i] * (1 + in.unit_roundoff()) < in.max_finite());
    out[i] = {parts.sum[i], may_overflow ? HUGE_VAL
                                         : additions * (1.0625 * in.unit_roundoff() * parts.size[i] +
                                                        (parts.count > 1 ? in.min_subnormal() : 0))};
  }
  return out;
}

std::vector<Rounded> StepCheck::mean_of(const std::map<int, Parts>& ranks) const {
  if (ranks.size() == 1) return sum_of(ranks.begin()->second);
  const Arithmetic wire(reduce_.compress.value_or(ranks.begin()->second.dtype)), kept(ranks.begin()->second.dtype);
  const Rounded by{static_cast<double>(ranks.size()), 0};
  const bool pre = reduce_.divide == ReduceOptions::Divide::pre;
  std::vector<Rounded> out;
  for (const auto& [rank, parts] : ranks) {
    const std::vector<Rounded> own = sum_of(parts);
    if (out.empty()) out.resize(own.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      Rounded sent = wire.settle(own[i]);
      if (pre) sent = wire.divide(sent, by);
      // The sum in any order: an addition's rounding is of a partial sum, which the magnitudes bound.
      out[i].value += sent.value;
      out[i].radius += sent.radius + static_cast<double>(ranks.size()) * wire.settle({sent.value, 0}).radius;
    }
  }
  for (Rounded& x : out) x = kept.settle(pre ? wire.settle(x) : wire.divide(wire.settle(x), by));
  return out;
}

void StepCheck::summed(ParameterSet& parameters) {
  if (!checked_) return;
  for (const Parameter& parameter : parameters.all()) {
    if (!parameter.grad.defined()) continue;
    const std::vector<double> got = to_doubles(parameter.grad.view());
    if (const auto parts = parts_.find(parameter.name); parts != parts_.end()) {
      const std::vector<Rounded> want = mean_of(parts->second);
      Difference difference;
      for (std::size_t i = 0; i < got.size(); ++i) difference.add(got[i], want[i]);
      note(parts->second.size() > 1 ? RunCode::mean : RunCode::sum, parameter.name, difference, "sums are");
    }
    gradients_[parameter.name] = got;
  }
}

double StepCheck::norm_of_gradients(std::size_t k) const {
  double sum = 0;
  for (const auto& [name, values] : gradients_) {
    if (rule_.clipped_with(name) != k) continue;
    for (const double g : values) sum += g * g;
  }
  return std::sqrt(sum);
}

void StepCheck::unscaled(ParameterSet& parameters, double scale) {
  if (!checked_) return;
  std::vector<double> norms;
  for (std::size_t k = 0; k < rule_.optimizers(); ++k) norms.push_back(norm_of_gradients(k));
  for (const Parameter& parameter : parameters.all()) {
    const auto before = gradients_.find(parameter.name);
    if (!parameter.grad.defined() || before == gradients_.end()) continue;
    const Arithmetic in(parameter.grad.dtype());
    const Rounded inverse = scale == 1 ? Rounded{1, 0} : in.number(1 / scale);
    const std::vector<double> got = to_doubles(parameter.grad.view());
    Difference difference;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double scaled = before->second[i];
      difference.add(got[i], scale == 1 ? Rounded{scaled, 0} : in.multiply({scaled, 0}, inverse));
    }
    const std::size_t known = findings_.size();
    note(RunCode::unscale, parameter.name, difference, "gradients are");
    if (findings_.size() > known) {
      const std::size_t with = rule_.clipped_with(parameter.name);
      const double most = rule_.clip_of(with).norm, f = difference.factor(),
                   clip = most > 0 ? std::min(1.0, most / norms[with]) : 0;
      if (scale > 1 && std::fabs(f / scale - 1) < 0x1p-10)
        findings_.back().what += ": the scale was never divided out";
      else if (clip > 0 && std::fabs(f / clip - 1) < 0x1p-10)
        findings_.back().what += ": as if they had been clipped before they were unscaled";
    }
    before->second = got;
  }
}

/// The norm is a sum of n squares in fp32, and a root. Of gradients in 16 bits the norm of each and of all, its sum
/// with torch's 1e-6, the reciprocal and the factor are rounded to these.
Rounded StepCheck::clip_factor(std::size_t k, ParameterSet& parameters) const {
  const double most = rule_.clip_of(k).norm;
  if (most <= 0) return {1, 0};
  constexpr double kRoundings = 5;
  std::int64_t n = 0;
  double narrow = 0;
  for (const Parameter& parameter : parameters.all()) {
    const auto values = gradients_.find(parameter.name);
    if (values == gradients_.end() || rule_.clipped_with(parameter.name) != k) continue;
    n += std::ssize(values->second);
    if (parameter.grad.defined() && parameter.grad.dtype() != Dtype::fp32)
      narrow = std::max(narrow, kRoundings * format(parameter.grad.dtype()).unit_roundoff());
  }
  const double norm = norm_of_gradients(k), share = most / (norm + 1e-6),
               error = (static_cast<double>(n) + 8) * kFp32.unit_roundoff() + kFp32.min_subnormal() + narrow;
  Rounded out{std::min(1.0, share), share < 1 + error ? share * error : 0};
  if (!std::isfinite(norm)) out.radius = HUGE_VAL;
  return out;
}

void StepCheck::clipped(ParameterSet& parameters) {
  if (!checked_) return;
  std::vector<Rounded> factors;
  for (std::size_t k = 0; k < rule_.optimizers(); ++k) factors.push_back(clip_factor(k, parameters));
  for (const Parameter& parameter : parameters.all()) {
    const auto before = gradients_.find(parameter.name);
    if (!parameter.grad.defined() || before == gradients_.end()) continue;
    const Arithmetic in(parameter.grad.dtype());
    const std::vector<double> got = to_doubles(parameter.grad.view());
    Difference difference;
    const std::size_t with = rule_.clipped_with(parameter.name);
    const double bound = rule_.clip_of(with).value;
    for (std::size_t i = 0; i < got.size(); ++i) {
      Rounded want = in.multiply({before->second[i], 0}, factors[with]);
      if (bound > 0) {
        want = in.settle({std::clamp(want.value, -bound, bound), want.radius});
      }
      difference.add(got[i], want);
    }
    note(RunCode::clip, parameter.name, difference, "clipped gradients are");
    before->second = got;
  }
}

void StepCheck::before_update(const std::vector<Part>& parts, double divided_by) {
  if (!checked_) return;
  divided_by_ = divided_by;
  before_.clear();
  for (std::size_t number = 0; number < parts.size(); ++number) {
    std::size_t index = 0;
    for (const Parameter& parameter : parts[number].parameters->all()) {
      const UpdateRuleBounds& update = updates_[parts[number].optimizers->of(index)];
      const OptimizerState& state = parts[number].optimizers->state(index++);
      if (!parameter.grad.defined() || parameter.value.count() == 0) continue;  // a rank may own nothing of it
      Before& before = before_[{number, parameter.name}];
      const auto master = state.find("master_param");
      before.weights = to_doubles(master != state.end() ? master->second.view() : parameter.value.view());
      before.gradient = to_doubles(parameter.grad.view());
      for (const char* name : update.moment_names())
        if (const auto moment = state.find(name); moment != state.end() && moment->second.defined())
          before.moments.push_back(to_doubles(moment->second.view()));
    }
  }
}

void StepCheck::compare_weights(const OfPart& whose, const Parameter& parameter, const OptimizerState& state,
                                const Before& before, const UpdateRuleBounds& update, const UpdateMade& made) {
  const auto master = state.find("master_param");
  const std::vector<double> weights =
      to_doubles(master != state.end() ? master->second.view() : parameter.value.view());
  const std::vector<const char*> names = update.moment_names();
  std::vector<std::vector<double>> moments;
  for (const char* name : names) {
    if (const auto moment = state.find(name); moment != state.end()) {
      moments.push_back(to_doubles(moment->second.view()));
      continue;
    }
    const bool known =
        std::any_of(findings_.begin(), findings_.end(), [](const RunFinding& f) { return f.code == RunCode::update; });
    if (!known)
      findings_.push_back(
          {RunCode::update, step_, parameter.name, fmt::format("the optimizer keeps no {}, which its rule has", name)});
  }
  Difference moved;
  std::vector<Difference> kept(moments.size());
  std::vector<std::vector<double>>* const exact = follows_moments_ ? &exact_moments(whose, before) : nullptr;
  const Arithmetic fp32(Dtype::fp32);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    UpdateInput input{before.weights[i], {before.gradient[i], 0}, {}};
    if (divided_by_ != 1) input.gradient = fp32.multiply(input.gradient, fp32.number(1 / divided_by_));
    for (const std::vector<double>& moment : before.moments) input.moments.push_back(moment[i]);
    const UpdateResult want = update(input, made.lr, made.number);
    if (exact != nullptr) {
      for (std::size_t k = 0; k < moments.size() && made.number > 1; ++k) input.moments[k] = (*exact)[k][i];
      const UpdateResult kept_exactly = update(input, made.lr, made.number);
      for (std::size_t k = 0; k < moments.size(); ++k) (*exact)[k][i] = kept_exactly.moments[k].value;
    }
    moved.add(weights[i], want.weight);
    for (std::size_t k = 0; k < moments.size() && k < want.moments.size(); ++k)
      kept[k].add(moments[k][i], want.moments[k]);
  }
  for (std::size_t k = 0; k < kept.size(); ++k)
    note(RunCode::update, parameter.name + " " + names[k], kept[k], "moments are");
  note(RunCode::update, parameter.name, moved, "weights are");
  if (master == state.end()) return;
  Difference copied;
  std::vector<double> rounded(weights.size());
  round_values(format(parameter.value.dtype()), RoundingMode{}, weights, rounded);
  const std::vector<double> copies = to_doubles(parameter.value.view());
  for (std::size_t i = 0; i < copies.size(); ++i) copied.add(copies[i], {rounded[i], 0});
  note(RunCode::update, parameter.name, copied, "copies of fp32 masters are");
}

/// Made as the run's moments are: at its first update, or at the checkpoint that it goes on from.
std::vector<std::vector<double>>& StepCheck::exact_moments(const OfPart& whose, const Before& before) {
  const auto [known, is_new] = exact_.try_emplace(whose);
  if (is_new) known->second = before.moments;
  if (known->second.empty())
    known->second.assign(UpdateInput::kMostMoments, std::vector<double>(before.weights.size()));
  return known->second;
}

namespace {

/// What moments of one name lost, while it is counted.
struct MomentSum {
  MomentLoss loss;
  std::vector<double> ratios = {};
  double error2 = 0, exact2 = 0;

  void add(const std::vector<double>& stored, const std::vector<double>& exact) {
    for (std::size_t i = 0; i < stored.size(); ++i) {
      const double want = exact[i];
      if (want == 0 || !std::isfinite(want)) continue;
      ++loss.elements;
      loss.zero += stored[i] == 0;
      ratios.push_back(stored[i] / want);
      error2 += (stored[i] - want) * (stored[i] - want);
      exact2 += want * want;
    }
  }
  MomentLoss result() {
    if (ratios.empty()) return loss;
    const auto middle = ratios.begin() + std::ssize(ratios) / 2;
    std::nth_element(ratios.begin(), middle, ratios.end());
    loss.median = *middle;
    loss.error = std::sqrt(error2 / exact2);
    return loss;
  }
};

MomentSum& sum_for(std::vector<MomentSum>& all, const char* name, Dtype dtype) {
  for (MomentSum& known : all)
    if (known.loss.name == name) return known;
  return all.emplace_back(MomentSum{{name, dtype}});
}

}  // namespace

std::vector<MomentLoss> StepCheck::moment_losses(const std::vector<Part>& parts) const {
  std::vector<MomentSum> sums;
  for (std::size_t number = 0; number < parts.size() && follows_moments_; ++number) {
    std::size_t index = 0;
    for (const Parameter& parameter : parts[number].parameters->all()) {
      const std::size_t at = index++;
      const auto exact = exact_.find({number, parameter.name});
      if (exact == exact_.end()) continue;
      const OptimizerState& state = parts[number].optimizers->state(at);
      const std::vector<const char*> names = updates_[parts[number].optimizers->of(at)].moment_names();
      for (std::size_t k = 0; k < names.size(); ++k)
        if (const auto moment = state.find(names[k]); moment != state.end() && bytes(moment->second.dtype()) < 4)
          sum_for(sums, names[k], moment->second.dtype()).add(to_doubles(moment->second.view()), exact->second[k]);
    }
  }
  std::vector<MomentLoss> out;
  for (MomentSum& sum : sums) out.push_back(sum.result());
  return out;
}

void StepCheck::after_update(const std::vector<Part>& parts, const std::vector<UpdateMade>& made) {
  if (!checked_) return;
  for (std::size_t number = 0; number < parts.size(); ++number) compare_part(number, parts[number], made);
}

void StepCheck::compare_part(std::size_t number, const Part& part, const std::vector<UpdateMade>& made) {
  std::size_t index = 0;
  for (const Parameter& parameter : part.parameters->all()) {
    const std::size_t owner = part.optimizers->of(index);
    const OptimizerState& state = part.optimizers->state(index++);
    const OfPart whose{number, parameter.name};
    const auto before = before_.find(whose);
    if (before == before_.end()) continue;
    if (made[owner].stepped) {
      compare_weights(whose, parameter, state, before->second, updates_[owner], made[owner]);
      continue;
    }
    const auto master = state.find("master_param");
    const std::vector<double> now = to_doubles(master != state.end() ? master->second.view() : parameter.value.view());
    Difference difference;
    for (std::size_t i = 0; i < now.size(); ++i) difference.add(now[i], {before->second.weights[i], 0});
    note(RunCode::skip, parameter.name, difference, "weights moved in a step that was skipped, and are");
  }
}

void StepCheck::skipped(bool stepped, bool found_inf, bool scaler, const std::string& whose) {
  if (!scaler || stepped != found_inf) return;
  for (const RunFinding& f : findings_)
    if (f.code == RunCode::skip) return;
  findings_.push_back({RunCode::skip, step_, whose,
                       stepped ? "the step was made although a gradient was not finite"
                               : "the step was skipped although every gradient was finite"});
}

}  // namespace ampcheck::checks::train
