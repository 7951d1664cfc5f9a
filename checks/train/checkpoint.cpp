// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/train/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <utility>

#include "src/amp/blocks.h"
#include "src/error.h"

namespace ampcheck::checks::train {

namespace {

constexpr const char *kFormat = "format", *kRecipe = "recipe", *kLeft = "trainer/left", *kMost = "trainer/most_apart";
const std::string kFp8 = "fp8/";
constexpr std::string_view kVersion = "ampcheck.checkpoint/2";  // 2: loss scale's settings, verdict

Tensor numbers(const std::vector<double>& values) {
  Tensor out(Dtype::fp64, {std::ssize(values)});
  std::copy(values.begin(), values.end(), out.span<double>().begin());
  return out;
}

Tensor text(const std::string& value) {
  Tensor out(Dtype::u8, {std::ssize(value)});
  std::memcpy(out.data(), value.data(), value.size());
  return out;
}

/// What must agree for the run to go on as it would have.
std::string recipe_of(const Trainer& trainer) {
  const TrainOptions& o = trainer.options();
  const OptimizerChoice c = o.rule.optimizer.with_defaults();
  const Net& net = trainer.net();
  std::string out = fmt::format(
      "model {}{} dtype {} scaler {} optimizer {} lr {} momentum {} weight_decay {} nesterov {} accumulate {} "
      "loss_weight {} clip_norm {} clip_value {} seed {}",
      net.name, net.settings.empty() ? "" : " " + net.settings, name(o.dtype), scaler_name(o), c.name, c.lr, c.momentum,
      c.weight_decay, c.nesterov, o.rule.accumulate, o.rule.loss_weight, o.rule.clip_norm, o.rule.clip_value, o.seed);
  if (o.scaler.enabled)
    out +=
        fmt::format(" init_scale {} growth_interval {}", o.scale_rule ? o.scale_rule->init_scale : o.scaler.init_scale,
                    o.scale_rule ? o.scale_rule->window : o.scaler.growth_interval);
  if (c.is_fused()) out += " fused true";
  if (c.weights != Weights::fp32) out += std::string(" weights ") + name(c.weights);
  if (c.moments) out += std::string(" moments ") + name(*c.moments);
  if (c.second_moment) out += std::string(" second_moment ") + name(*c.second_moment);
  if (o.keep_low_precision_grads) out += " keep_low_precision_grads true";
  if (!o.rule.schedule.empty() && o.rule.schedule != "constant") out += " lr_schedule " + o.rule.schedule;
  if (o.rule.ranks > 1)
    out += fmt::format(" ranks {} {}", o.rule.ranks, str(o.reduce)) + (o.sharding.on ? " sharded true" : "");
  for (std::size_t k = 1; k < o.rule.optimizers(); ++k) {
    const OptimizerChoice other = o.rule.choice(k).with_defaults();
    out +=
        fmt::format(" optimizer{} {},lr={},momentum={},weight_decay={},nesterov={}@{}", k + 1, other.name, other.lr,
                    other.momentum, other.weight_decay, other.nesterov, fmt::join(o.rule.further[k - 1].layers, ","));
    if (o.rule.further[k - 1].clips_alone())
      out += fmt::format(" clip{} {},{}", k + 1, o.rule.clip_of(k).norm, o.rule.clip_of(k).value);
  }
  if (o.rule.backward_each) out += " backward each";
  if (o.fp8) out += " fp8 " + o.fp8->str();
  if (o.rule.grad_penalty > 0) out += fmt::format(" grad_penalty {}", o.rule.grad_penalty);
  if (o.shadows.carried && o.spread_seeds != TrainOptions().spread_seeds)
    out += fmt::format(" spread_seeds {}", std::max(1, o.spread_seeds));
  if (o.autocast != AutocastDevice::cuda) out += std::string(" autocast ") + name(o.autocast);
  if (o.stream) out += " device cuda";  // whose matrix products have bits of their own
  if (!net.layers.empty()) out += " layers " + net.layers;
  return out;
}

/// The setting at which two recipes part, with its value in each. What is as usual is written in neither.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  using Settings = std::vector<std::pair<std::string, std::string>>;
  const auto settings =
      [](const std::string& text) {  // settings and values in turn; last the layers of a net, word by word
        std::istringstream in(text);
        Settings out;
        for (std::string name, value; (name == "layers" || in >> name) && in >> value;) out.emplace_back(name, value);
        return out;
      };
  const Settings theirs = settings(a), ours = settings(b);
  const auto at = static_cast<std::size_t>(std::mismatch(theirs.begin(), theirs.end(), ours.begin(), ours.end()).first -
                                           theirs.begin());
  const auto has = [](const Settings& in, const std::string& name) {
    return std::any_of(in.begin(), in.end(), [&](const auto& s) { return s.first == name; });
  };
  const std::string& name =
      at < theirs.size() && (at >= ours.size() || !has(ours, theirs[at].first) || theirs[at].first == ours[at].first)
          ? theirs[at].first
          : ours[at].first;
  const auto shown = [&](const Settings& in) {
    return at < in.size() && in[at].first == name ? name + " " + in[at].second : "default " + name;
  };
  return {shown(theirs), shown(ours)};
}

/// A safetensors file holds dense tensors; copies do not share memory with what is still trained.
Tensor copy(const Tensor& from) {
  Tensor out = Tensor::uninitialized(from.dtype(), from.shape());
  std::memcpy(out.data(), from.data(), static_cast<std::size_t>(from.count() * bytes(from.dtype())));
  return out;
}

void put(std::vector<NamedTensor>& out, const std::string& prefix, ParameterSet& parameters,
         const OptimizerSet& optimizer) {
  std::size_t index = 0;
  for (const Parameter& parameter : parameters.all()) {
    out.push_back({prefix + "parameter/" + parameter.name, copy(parameter.value)});
    for (const auto& [key, tensor] : optimizer.state(index))
      out.push_back({prefix + "optimizer/" + parameter.name + "/" + key, copy(tensor)});
    ++index;
  }
}

/// What an optimizer remembers is read and written along its parameter: nothing of another shape gets there.
void require_state(const NamedTensor& entry, const std::string& key, const Tensor& parameter,
                   const std::string& where) {
  const bool step = key == "step", master = key == "master_param";
  const Shape wanted = step ? Shape{} : parameter.shape();
  const bool kind = step || master ? entry.tensor.dtype() == Dtype::fp32 : is_computed(entry.tensor.dtype());
  if (entry.tensor.shape() == wanted && kind) return;
  throw Error(fmt::format("[checkpoint] {} '{}', got {} {}, want {} {}", where, entry.name, name(entry.tensor.dtype()),
                          entry.tensor.shape().str(), step || master ? "fp32" : "fp64, fp32, fp16 or bf16",
                          wanted.str()));
}

void take(const std::vector<NamedTensor>& all, const std::string& prefix, ParameterSet& parameters,
          OptimizerSet& optimizer, const std::string& where) {
  std::size_t index = 0;
  for (Parameter& parameter : parameters.all()) {
    const std::string own = prefix + "optimizer/" + parameter.name + "/";
    bool found = false;
    for (const NamedTensor& entry : all) {
      const auto& [name, tensor] = entry;
      if (name == prefix + "parameter/" + parameter.name) {
        if (!(tensor.shape() == parameter.value.shape()) || tensor.dtype() != parameter.value.dtype())
          throw Error(fmt::format("[checkpoint] {} '{}', got {} {}, want {} {}", where, name,
                                  ampcheck::name(tensor.dtype()), tensor.shape().str(),
                                  ampcheck::name(parameter.value.dtype()), parameter.value.shape().str()));
        std::memcpy(parameter.value.data(), tensor.data(),
                    static_cast<std::size_t>(tensor.count() * bytes(tensor.dtype())));
        found = true;
      } else if (name.starts_with(own)) {
        const std::string key = name.substr(own.size());
        require_state(entry, key, parameter.value, where);
        optimizer.state(index)[key] = copy(tensor);
      }
    }
    if (!found)
      throw Error("[checkpoint] " + where + ", got no '" + prefix + "parameter/" + parameter.name +
                  "', want all parameters of the net");
    ++index;
  }
}

std::string rank_prefix(int r) { return fmt::format("rank.{}/", r); }
std::string fp64_prefix(std::size_t k) { return fmt::format("fp64.{}/", k); }

/// The entries of a file of train --save.
struct Entries {
  std::vector<NamedTensor> all;
  const std::string& where;  ///< the file, for errors

  /// Null if it has none of that name.
  const Tensor* known(const std::string& name) const {
    for (const NamedTensor& entry : all)
      if (entry.name == name) return &entry.tensor;
    return nullptr;
  }
  const Tensor& find(const std::string& name) const {
    if (const Tensor* const tensor = known(name)) return *tensor;
    throw Error("[checkpoint] " + where + ", got no '" + name + "', want a file of train --save");
  }
  /// Its elements, which are of that type.
  template <class T>
  std::span<const T> all_of(const std::string& name, Dtype dtype) const {
    const Tensor& tensor = find(name);
    if (tensor.dtype() != dtype)
      throw Error(fmt::format("[checkpoint] {} '{}', got {}, want {}", where, name, ampcheck::name(tensor.dtype()),
                              ampcheck::name(dtype)));
    return tensor.span<const T>();
  }
  std::string_view text(const std::string& name) const {
    const auto bytes = all_of<char>(name, Dtype::u8);
    return {bytes.data(), bytes.size()};
  }
  std::span<const double> numbers(const std::string& name, std::size_t count) const {
    const auto values = all_of<double>(name, Dtype::fp64);
    if (values.size() != count)
      throw Error("[checkpoint] " + where + " '" + name + "', got " + std::to_string(values.size()) +
                  " numbers, want " + std::to_string(count));
    return values;
  }
  std::vector<double> numbers(const std::string& name) const {
    const auto values = all_of<double>(name, Dtype::fp64);
    return {values.begin(), values.end()};
  }
  /// A number of steps, at most `most`.
  int steps(const std::string& name, double value, int most = std::numeric_limits<int>::max() - 1) const {
    if (!(value >= 0 && value <= most) || value != std::floor(value))
      throw Error(
          fmt::format("[checkpoint] {} '{}', got {} steps, want a whole number up to {}", where, name, value, most));
    return static_cast<int>(value);
  }
  std::optional<Compared> compared(const char* key) const {
    if (known(key) == nullptr) return std::nullopt;
    const auto of_loss = numbers(key, 3);
    Compared out{.step = steps(key, of_loss[0]), .loss = of_loss[1], .apart = of_loss[2]};
    if (const std::string allowed = std::string(key) + "/allowed"; known(allowed) != nullptr) {
      const auto by = numbers(allowed, 2);
      out.spread = by[0];
      out.rounding = by[1];
    }
    return out;
  }
};

/// Throws Error unless the file is of this format and of a run like this one.
void require_same_run(const Entries& file, Trainer& trainer) {
  file.find(kRecipe);  // what is none at all is told so first
  const std::string_view format = file.known(kFormat) != nullptr ? file.text(kFormat) : std::string_view();
  if (format != kVersion)
    throw Error(
        "[checkpoint] " + file.where + ", got " +
        (format.empty() ? "one of an earlier ampcheck, which does not say how the run stood" : std::string(format)) +
        ", want " + std::string(kVersion) + ", as train --save writes it");
  const std::string got(file.text(kRecipe)), want = recipe_of(trainer);
  if (got == want) return;
  const auto [theirs, ours] = first_difference(got, want);
  throw Error("[checkpoint] " + file.where + ", got a run with '" + theirs + "', want '" + ours + "' as this one has");
}

/// Parameters, optimizers and scalers of the run itself, each rank's own where it is sharded.
void take_run(const Entries& file, Trainer& trainer) {
  GradScaler::StateDict scaler;
  for (const auto& [name, tensor] : file.all)
    if (name.starts_with("scaler/")) scaler[name.substr(7)] = file.numbers(name, 1)[0];
  ShardedRanks* const sharded = trainer.sharded();
  for (int r = 0; r < (sharded != nullptr ? sharded->ranks() : 1); ++r) {
    GradScaler& own = sharded != nullptr ? sharded->scaler(r) : trainer.scaler();
    if (own.is_enabled()) own.load_state_dict(scaler);
    if (sharded != nullptr)
      take(file.all, rank_prefix(r), sharded->shards(r), sharded->optimizers(r), file.where);
    else
      take(file.all, "", trainer.parameters(), trainer.optimizers(), file.where);
  }
}

/// Of each tensor in fp8 whether it is a gradient, its scale, and the amaxes of its history.
void take_fp8(const Entries& file, Trainer& trainer) {
  if (trainer.fp8() == nullptr) return;
  for (const auto& [name, tensor] : file.all) {
    if (!name.starts_with(kFp8)) continue;
    const std::vector<double> kept = file.numbers(name);
    if (kept.size() < 2 || !(kept[1] > 0))
      throw Error("[checkpoint] " + file.where + " '" + name + "', got no scale above 0, want one and its history");
    Fp8State::Of of;
    of.gradient = kept[0] != 0;
    of.scale = static_cast<float>(kept[1]);
    for (std::size_t i = 2; i < kept.size(); ++i) of.history.push_back(static_cast<float>(kept[i]));
    trainer.restore_fp8(name.substr(kFp8.size()), of);
  }
}

}  // namespace

std::string checkpoint_bytes(Trainer& trainer) {
  trainer.prepare();
  for (const auto& run : trainer.reference()) run->prepare();
  const Verdict& verdict = trainer.verdict();
  std::vector<NamedTensor> out = {
      {kFormat, text(std::string(kVersion))},
      {kRecipe, text(recipe_of(trainer))},
      {"trainer/steps", numbers({static_cast<double>(trainer.steps()), static_cast<double>(trainer.skips())})},
      {"trainer/spreads", numbers(trainer.spreads())},
      {"trainer/differences", numbers(trainer.differences())},
      {"trainer/roundings", numbers(trainer.roundings())}};
  if (const std::vector<int>& of_each = trainer.skips_by_optimizer(); of_each.size() > 1)
    out.push_back({"trainer/optimizer_skips", numbers({of_each.begin(), of_each.end()})});
  const auto put_compared = [&](const char* key, const std::optional<Compared>& c) {
    if (!c) return;
    out.push_back({key, numbers({static_cast<double>(c->step), c->loss, c->apart})});
    if (c->spread) out.push_back({std::string(key) + "/allowed", numbers({*c->spread, *c->rounding})});
  };
  put_compared(kLeft, verdict.left);
  put_compared(kMost, verdict.most);
  for (const auto& [key, value] : trainer.scaler().state_dict()) out.push_back({"scaler/" + key, numbers({value})});
  if (ShardedRanks* const sharded = trainer.sharded())
    for (int r = 0; r < sharded->ranks(); ++r) put(out, rank_prefix(r), sharded->shards(r), sharded->optimizers(r));
  else
    put(out, "", trainer.parameters(), trainer.optimizers());
  if (trainer.fp8() != nullptr)
    for (const auto& [name, of] : trainer.fp8()->all()) {
      std::vector<double> kept = {static_cast<double>(of.gradient), static_cast<double>(of.scale)};
      kept.insert(kept.end(), of.history.begin(), of.history.end());
      out.push_back({kFp8 + name, numbers(kept)});
    }
  for (std::size_t k = 0; k < trainer.reference().size(); ++k)
    put(out, fp64_prefix(k), trainer.reference()[k]->parameters(), *trainer.reference()[k]->optimizers());
  return safetensors_bytes(out);
}

void resume(Trainer& trainer, std::string_view bytes, const std::string& where) {
  resume(trainer, parse_safetensors(bytes, where), where);
}

void resume(Trainer& trainer, std::vector<NamedTensor> tensors, const std::string& where) {
  const Entries file{std::move(tensors), where};
  trainer.prepare();
  const MemoryScope scope(trainer.stream());
  require_same_run(file, trainer);
  take_run(file, trainer);
  take_fp8(file, trainer);
  const auto counts = file.numbers("trainer/steps", 2);
  const int steps = file.steps("trainer/steps", counts[0]), skips = file.steps("trainer/steps", counts[1], steps);
  for (std::size_t k = 0; k < trainer.reference().size(); ++k) {
    Fp64Run& run = *trainer.reference()[k];
    run.prepare();
    take(file.all, fp64_prefix(k), run.parameters(), *run.optimizers(), where);
    run.resume_at(steps);
  }
  std::vector<double> spreads = file.numbers("trainer/spreads"), differences = file.numbers("trainer/differences"),
                      roundings = file.numbers("trainer/roundings");
  const std::optional<Compared> left = file.compared(kLeft), most = file.compared(kMost);
  std::vector<int> skips_of(trainer.optimizers().size(), skips);
  if (skips_of.size() > 1) {
    const auto of_each = file.numbers("trainer/optimizer_skips", skips_of.size());
    for (std::size_t k = 0; k < skips_of.size(); ++k)
      skips_of[k] = file.steps("trainer/optimizer_skips", of_each[k], steps);
  }
  trainer.resume_at(steps, skips, std::move(skips_of), std::move(spreads), std::move(differences), std::move(roundings),
                    {.left = left, .most = most});
}

}  // namespace ampcheck::checks::train
