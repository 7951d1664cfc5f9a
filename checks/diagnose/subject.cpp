// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/diagnose/subject.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "checks/train/checkpoint.h"
#include "checks/train/fp8.h"
#include "checks/train/optimizer_choice.h"
#include "src/rounding.h"
#include "src/safetensors.h"

namespace ampcheck::checks::diagnose {

namespace {

std::string list(const Ops& ops) {
  std::string out;
  for (const std::string& op : ops) out += (out.empty() ? "" : ",") + op;
  return out;
}

/// Writes the formula's values, rounded once, over what the kernel wrote.
void repair(const train::Event& event, const RoundingMode& mode) {
  const TensorView& got = event.got;
  const auto n = static_cast<std::size_t>(got.count());
  const std::vector<double> exact = to_doubles(event.exact);
  std::vector<double> rounded(n);
  round_values(format(got.dtype), mode, exact, rounded);
  from_doubles(rounded, got);
}

/// The formula's values in e4m3 by current scaling.
void in_current_fp8(const train::Event& event) {
  std::vector<double> values = to_doubles(event.exact);
  const FloatFormat& narrow = format(Dtype::e4m3fn);
  double most = 0;
  for (const double value : values)
    if (std::isfinite(value)) most = std::max(most, std::fabs(value));
  const double scale = train::current_scale(static_cast<float>(most), Dtype::e4m3fn);
  for (double& value : values) value = std::clamp(value * scale, -narrow.max_finite(), narrow.max_finite());
  round_values(narrow, {}, values, values);
  for (double& value : values) value /= scale;
  from_doubles(values, event.got);
}

Fault with_current_fp8(Fault own, const Change& change) {
  if (change.current_fp8.empty()) return own;
  return [own = std::move(own), ops = change.current_fp8](const train::Event& event) {
    if (own) own(event);
    if (!event.cast && event.phase == train::Phase::forward && event.has_exact() && ops.contains(std::string(event.op)))
      in_current_fp8(event);
  };
}

/// As if its kernel had stored what it computed in the run's type.
void round_wide(const train::Event& event, Dtype dtype) {
  if (event.got.dtype != Dtype::fp32) return;
  std::vector<double> values = to_doubles(event.got);
  round_values(format(dtype), {}, values, values);
  from_doubles(values, event.got);
}

Fault with_rounding(Fault own, const Change& change, Dtype dtype) {
  if (change.rounded.empty()) return own;
  return [own = std::move(own), ops = change.rounded, dtype](const train::Event& event) {
    if (own) own(event);
    if (!event.cast && event.phase == train::Phase::forward && ops.contains(std::string(event.op)))
      round_wide(event, dtype);
  };
}

/// The subject's own fault first: what a right kernel would have written comes after it.
Fault with_repair(Fault own, const Change& change) {
  if (change.repaired.empty()) return own;
  return [own = std::move(own), ops = change.repaired, stochastic = change.stochastic,
          seed = change.seed](const train::Event& event) {
    if (own) own(event);
    if (event.cast || !event.has_exact() || !ops.contains(std::string(event.op))) return;
    RoundingMode mode;
    if (stochastic) {
      mode.rounding = Rounding::stochastic;
      mode.seed = seed + static_cast<std::uint64_t>(event.step) * 7919 + std::hash<std::string_view>()(event.tensor);
    }
    repair(event, mode);
  };
}

void change_rates(train::TrainOptions& o, double factor) {
  o.rule.optimizer = train::optimizer_of(*o.own_net, o.rule.optimizer).with_defaults();
  o.rule.optimizer.lr *= factor;
  for (train::LayerOptimizer& more : o.rule.further) {
    more.choice = train::optimizer_of(*o.own_net, more.choice).with_defaults();
    more.choice.lr *= factor;
  }
}

train::TrainOptions changed(const Subject& subject, const Change& c) {
  train::TrainOptions o = subject.options;
  o.own_net = raised(subject.net(), c.raised);
  if (c.finite_masks) o.own_net = within(*o.own_net, format(o.dtype).max_finite());
  if (c.dtype) o.dtype = *c.dtype;
  if (c.without_fp8) o.fp8.reset();
  if (c.fp8_by_recipe || c.fp8_current) o.planted_fp8.reset();
  if (c.fp8_current && o.fp8) o.fp8->scaling = train::Fp8Recipe::Scaling::current;
  if (c.rate != 1) change_rates(o, c.rate);
  train::OptimizerChoice& optimizer = o.rule.optimizer;
  if (c.everything_fp32) {
    o.dtype = Dtype::fp32;
    o.fp8.reset();
    o.scaler.enabled = false;
    o.keep_low_precision_grads = false;
    o.reduce.compress.reset();
  }
  if (c.everything_fp32 || c.fp32_optimizer) {
    if (optimizer.weights != train::Weights::fp32)
      optimizer.weights = c.everything_fp32 ? train::Weights::fp32 : train::Weights::master;
    optimizer.moments.reset();
    optimizer.second_moment.reset();
  }
  if (c.scale) {
    o.scale_rule.reset();
    o.scaler = {.init_scale = *c.scale, .growth_interval = std::numeric_limits<std::int32_t>::max(), .enabled = true};
  }
  if (c.init_scale) {
    if (o.scale_rule) o.scale_rule->init_scale = *c.init_scale;
    o.scaler.init_scale = *c.init_scale;
    o.scaler.enabled = true;
  }
  o.keep_activations |= c.keep_activations;
  if (c.one_rank) {
    o.rule.accumulate *= o.rule.ranks;
    o.rule.ranks = 1;
    o.reduce = {};
    o.sharding.on = false;
  }
  return o;
}

}  // namespace

std::string Change::key() const {
  std::string out;
  if (!raised.empty()) out += "raised " + list(raised) + ";";
  if (!repaired.empty()) out += (stochastic ? fmt::format("stochastic {} ", seed) : "repaired ") + list(repaired) + ";";
  if (!rounded.empty()) out += "rounded " + list(rounded) + ";";
  if (everything_fp32) out += "fp32;";
  if (scale) out += fmt::format("scale {};", *scale);
  if (init_scale) out += fmt::format("init_scale {};", *init_scale);
  if (dtype) out += fmt::format("dtype {};", ampcheck::name(*dtype));
  if (without_fp8) out += "without fp8;";
  if (fp32_optimizer) out += "fp32 optimizer;";
  if (!current_fp8.empty()) out += "current fp8 " + list(current_fp8) + ";";
  if (fp8_by_recipe) out += "fp8 by recipe;";
  if (fp8_current) out += "fp8 current;";
  if (finite_masks) out += "finite masks;";
  if (right_loop) out += "right loop;";
  if (rate != 1) out += fmt::format("rate {};", rate);
  if (keep_activations) out += "keep activations;";
  if (one_rank) out += "one rank;";
  return out;
}

Subject with_change(const Subject& subject, const Change& change) {
  Subject out = subject;
  out.options = changed(subject, change);
  const bool exact = !change.repaired.empty() || !change.current_fp8.empty();
  out.options.shadows.local |= exact;
  out.make_fault = [=] {
    const Fault own = subject.make_fault ? subject.make_fault() : subject.options.fault;
    return with_rounding(with_current_fp8(with_repair(own, change), change), change, subject.options.dtype);
  };
  if (change.right_loop) out.install = nullptr;
  return out;
}

std::unique_ptr<train::Trainer> make_trainer(const Subject& given, const Change& change, train::Shadows shadows,
                                             int spread_seeds) {
  const Subject subject = with_change(given, change);
  train::TrainOptions options = subject.options;
  shadows.local |= options.shadows.local && (!change.repaired.empty() || !change.current_fp8.empty());
  options.shadows = shadows;
  options.spread_seeds = spread_seeds;
  options.sampling = {};
  options.norms = true;
  options.fault = subject.make_fault();
  auto trainer = std::make_unique<train::Trainer>(options);
  trainer->prepare();
  if (subject.install) subject.install(*trainer);
  return trainer;
}

namespace {

/// The value of an fp32 parameter comes from its master where the other run has one.
const NamedTensor* source_of(const std::vector<NamedTensor>& all, const NamedTensor& wanted) {
  constexpr std::string_view kParameter = "parameter/";
  const auto find = [&](const std::string& name) -> const NamedTensor* {
    const auto at = std::find_if(all.begin(), all.end(), [&](const NamedTensor& t) { return t.name == name; });
    return at == all.end() ? nullptr : &*at;
  };
  if (wanted.name.starts_with(kParameter) && wanted.tensor.dtype() == Dtype::fp32)
    if (const NamedTensor* master = find("optimizer/" + wanted.name.substr(kParameter.size()) + "/master_param"))
      return master;
  return find(wanted.name);
}

Tensor in_type(const Tensor& tensor, Dtype dtype) {
  Tensor out(dtype, tensor.shape());
  from_doubles(to_doubles(tensor.view()), out.view());
  return out;
}

/// Which type a moment of this run has.
Dtype moment_of(const train::TrainOptions& o, const std::string& entry) {
  const bool second = entry.ends_with("/exp_avg_sq") || entry.ends_with("/square_avg") || entry.ends_with("/sum");
  return second ? o.rule.optimizer.second_dtype(o.dtype) : o.rule.optimizer.first_dtype(o.dtype);
}

/// State of the optimizer that this run takes, in its types.
void add_state(const std::vector<NamedTensor>& all, const train::TrainOptions& o, std::vector<NamedTensor>& out) {
  for (const NamedTensor& entry : all) {
    if (!entry.name.starts_with("optimizer/")) continue;
    const bool master = entry.name.ends_with("/master_param");
    if (master && o.rule.optimizer.weights != train::Weights::master) continue;
    const bool counts = entry.name.ends_with("/step");
    out.push_back({entry.name, counts || master ? entry.tensor : in_type(entry.tensor, moment_of(o, entry.name))});
  }
}

}  // namespace

void transplant(train::Trainer& trainer, std::string_view checkpoint, bool keep_scale) {
  const std::string where = "the run's own checkpoint";
  const std::vector<NamedTensor> theirs = parse_safetensors(checkpoint, where);
  const std::string own = train::checkpoint_bytes(trainer);
  std::vector<NamedTensor> out;
  for (const NamedTensor& entry : parse_safetensors(own, where)) {
    const bool settings = entry.name == "recipe" || entry.name == "format";
    const bool scaler = entry.name.starts_with("scaler/");
    if (entry.name.starts_with("optimizer/") || entry.name.starts_with("fp8/")) continue;
    const NamedTensor* const source = settings || (scaler && keep_scale) ? nullptr : source_of(theirs, entry);
    if (source == nullptr || entry.name.starts_with("trainer/") || scaler)
      out.push_back({entry.name, source != nullptr ? source->tensor : entry.tensor});
    else
      out.push_back({entry.name, in_type(source->tensor, entry.tensor.dtype())});
  }
  add_state(theirs, trainer.options(), out);
  for (const NamedTensor& entry : theirs)
    if (entry.name.starts_with("fp8/") && trainer.fp8() != nullptr) out.push_back(entry);
  train::resume(trainer, std::move(out), where);
}

}  // namespace ampcheck::checks::diagnose
