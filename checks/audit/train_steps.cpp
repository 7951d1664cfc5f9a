// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Steps with planted defects, and healthy runs.
#include <array>
#include <cmath>
#include <set>

#include "checks/audit/train_parts.h"
#include "checks/case/options.h"
#include "checks/models/real_data.h"
#include "src/rounding.h"

namespace ampcheck::checks::train_audit {

namespace {

using train::ParameterSet;
using train::RunCode;
using train::Stage;
using train::TrainOptions;

/// Changes every gradient's numbers; `first_alone`: of the first parameter.
void change(ParameterSet& parameters, const std::function<double(double)>& f, bool first_alone = false) {
  for (Parameter& parameter : parameters.all()) {
    if (!parameter.grad.defined()) continue;
    Tensor fresh = Tensor::uninitialized(parameter.grad.dtype(), parameter.grad.shape());
    std::vector<double> values = to_doubles(parameter.grad.view());
    for (double& v : values) v = f(v);
    from_doubles(values, fresh.view());
    parameter.grad = fresh;
    if (first_alone) return;
  }
}

double norm_of(ParameterSet& parameters) {
  double sum = 0;
  for (const Parameter& parameter : parameters.all())
    if (parameter.grad.defined())
      for (const double g : to_doubles(parameter.grad.view())) sum += g * g;
  return std::sqrt(sum);
}

/// Rounded to that many bits of significand.
double cut_to(double v, int bits) {
  if (v == 0 || !std::isfinite(v)) return v;
  const int exponent = std::ilogb(v);
  return std::ldexp(std::round(std::ldexp(v, bits - 1 - exponent)), exponent - bits + 1);
}

double in_format(double v, Dtype dtype) {
  double values[1] = {v};
  round_values(format(dtype), RoundingMode{}, values, values);
  return values[0];
}

struct Defect {
  std::string name;
  std::set<RunCode> due;  ///< the stage that it is in
  std::function<void(TrainOptions&)> plant;
  bool sgd_alone = false;
};

std::function<void(Stage, ParameterSet&, double)> at(Stage stage, std::function<void(ParameterSet&, double)> f) {
  return [stage, f = std::move(f)](Stage now, ParameterSet& parameters, double scale) {
    if (now == stage) f(parameters, scale);
  };
}

Defect gradients_times(double factor) {
  return {"gradients x " + number_text(factor), {RunCode::unscale}, [factor](TrainOptions& o) {
            o.plant = at(Stage::summed,
                         [factor](ParameterSet& p, double) { change(p, [factor](double v) { return factor * v; }); });
          }};
}

Defect rate_times(double factor) {
  return {"learning rate x " + number_text(factor), {RunCode::update}, [factor](TrainOptions& o) {
            o.rule.optimizer.lr = o.rule.optimizer.name == "sgd" ? 0.1 : 3e-3;
            o.planted_optimizer = o.rule.optimizer;
            o.planted_optimizer->lr *= factor;
          }};
}

Defect first_layer_times(double factor) {
  return {"first layer's gradient x " + number_text(factor),
          {RunCode::unscale, RunCode::no_gradient},
          [factor](TrainOptions& o) {
            o.plant = at(Stage::summed, [factor](ParameterSet& p, double) {
              change(
                  p, [factor](double v) { return factor * v; }, true);
            });
          }};
}

Defect cut_gradients(int bits) {
  return {"gradients cut to " + std::to_string(bits) + " bits", {RunCode::unscale}, [bits](TrainOptions& o) {
            o.plant = at(Stage::unscaled,
                         [bits](ParameterSet& p, double) { change(p, [bits](double v) { return cut_to(v, bits); }); });
          }};
}

Defect outputs_times(double factor) {
  return {"outputs of linear and conv2d x " + number_text(factor), {RunCode::op}, [factor](TrainOptions& o) {
            o.fault = [factor](const train::Event& e) {
              const bool layer = e.op.starts_with("linear") || e.op.starts_with("conv2d");
              if (!layer || e.cast || e.phase != train::Phase::forward) return;
              std::vector<double> values = to_doubles(e.got);
              for (double& v : values) v *= factor;
              from_doubles(values, e.got);
            };
          }};
}

Defect casts_times(double factor) {
  return {"gradients x " + number_text(factor) + " in their cast to fp32", {RunCode::cast}, [factor](TrainOptions& o) {
            o.fault = [factor](const train::Event& e) {
              if (!e.cast || e.phase != train::Phase::backward || e.got.dtype != Dtype::fp32) return;
              std::vector<double> values = to_doubles(e.got);
              for (double& v : values) v *= factor;
              from_doubles(values, e.got);
            };
          }};
}

std::vector<Defect> defects() {
  std::vector<Defect> out;
  out.push_back({"clipped before unscaling", {RunCode::unscale}, [](TrainOptions& o) {
                   o.rule.clip_norm = 0.5;
                   o.plant = at(Stage::summed, [](ParameterSet& p, double) {
                     const double factor = std::min(1.0, 0.5 / (norm_of(p) + 1e-6));
                     change(p, [factor](double v) { return factor * v; });
                   });
                 }});
  out.push_back({"never unscaled", {RunCode::unscale}, [](TrainOptions& o) {
                   o.plant = at(Stage::unscaled, [](ParameterSet& p, double scale) {
                     change(p, [scale](double v) { return scale * v; });
                   });
                 }});
  out.push_back({"not clipped", {RunCode::clip}, [](TrainOptions& o) {
                   o.rule.clip_norm = 0.25;
                   o.plant =
                       at(Stage::clipped, [](ParameterSet& p, double) { change(p, [](double v) { return 1.5 * v; }); });
                 }});
  for (const double factor : {0.5, 0.8, 1.25, 2.0}) out.push_back(rate_times(factor));
  out.push_back({"weight decay lost", {RunCode::update}, [](TrainOptions& o) {
                   o.planted_optimizer = o.rule.optimizer;
                   o.rule.optimizer.weight_decay = 0.01;
                   o.planted_optimizer->weight_decay = 0;
                 }});
  out.push_back({"momentum lost",
                 {RunCode::update},
                 [](TrainOptions& o) {
                   o.rule.optimizer.momentum = 0.9;
                   o.planted_optimizer = o.rule.optimizer;
                   o.planted_optimizer->momentum = 0;
                 },
                 true});
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16})
    out.push_back({std::string("micro-batches added up in ") + name(dtype), {RunCode::sum}, [dtype](TrainOptions& o) {
                     o.rule.accumulate = 4;
                     o.plant = at(Stage::accumulated, [dtype](ParameterSet& p, double) {
                       change(p, [dtype](double v) { return in_format(v, dtype); });
                     });
                   }});
  out.push_back({"sum of ranks in place of the mean", {RunCode::unscale, RunCode::mean}, [](TrainOptions& o) {
                   o.rule.ranks = 2;
                   o.plant =
                       at(Stage::summed, [](ParameterSet& p, double) { change(p, [](double v) { return 2 * v; }); });
                 }});
  for (const double factor : {0.0, 0.1, 0.5, 0.8, 0.99, 1.01, 1.25, 1.5, 2.0, 4.0, -1.0})
    out.push_back(gradients_times(factor));
  for (const double factor : {0.0, -1.0}) out.push_back(first_layer_times(factor));
  for (const int bits : {1, 2, 4}) out.push_back(cut_gradients(bits));
  for (const double factor : {0.5, 0.9, 0.99, 1.01, 1.1, 2.0}) out.push_back(outputs_times(factor));
  for (const double factor : {0.8, 1.25}) out.push_back(casts_times(factor));
  return out;
}

void use_defaults(TrainOptions& o, const char* net, Dtype dtype, const char* optimizer) {
  o.net.model = net;
  o.net.data = models::find_data("");
  o.dtype = dtype;
  o.scaler.enabled = dtype == Dtype::fp16;
  o.scaler.init_scale = 1024;  // no step is skipped, so that every step shows the defect
  o.rule.optimizer.name = optimizer;
  if (std::string_view(optimizer) != "sgd") o.rule.optimizer.lr = 3e-3;
  o.judge = train::JudgeMode::sampled;
  o.check_steps = true;
}

Trial run_defect(const Defect& defect, const char* net, Dtype dtype, const char* optimizer) {
  Trial out;
  out.part = Part::step;
  out.name = defect.name + ", " + optimizer;
  out.net = net;
  out.dtype = dtype;
  TrainOptions options;
  use_defaults(options, net, dtype, optimizer);
  defect.plant(options);
  train::Trainer trainer(options);
  out.what = verdict_of(trainer, kSteps);
  out.found = !out.what.empty();
  for (const train::RunFinding& f : trainer.findings()) {
    if (!defect.due.contains(f.code)) continue;
    if (!out.named) out.step = f.step;
    out.named = true;
  }
  return out;
}

constexpr std::array kNets = {"mlp", "conv", "transformer"};

/// Settings by number: neighbours differ in most of them.
TrainOptions healthy(std::size_t index, std::string& name) {
  TrainOptions o;
  o.net.model = kNets[index % 3];
  o.net.data = models::find_data("");
  o.dtype = std::array{Dtype::fp16, Dtype::bf16, Dtype::fp32}[(index / 3 + index) % 3];
  constexpr std::array kOptimizers = {"sgd", "adam", "adamw", "rmsprop", "adagrad"};
  train::OptimizerChoice& c = o.rule.optimizer;
  c.name = kOptimizers[(index / 2) % 5];
  if (c.name != "sgd") c.lr = 3e-3;
  const bool low = o.dtype != Dtype::fp32;
  const std::size_t kind = (index / 5) % 4;
  c.fused = kind == 1;
  if (kind == 2 && low) c.weights = train::Weights::master;
  constexpr std::array kRules = {"", "apex", "deepspeed", "megatron"};
  o.scaler.enabled = o.dtype == Dtype::fp16;
  const std::string rule = kRules[(index / 7) % 4];
  const std::size_t ranks = (index / 11) % 4;
  if (o.scaler.enabled && !rule.empty() && ranks != 3)
    for (const ScaleRule& r : scale_rules())
      if (rule == r.name) o.scale_rule = r;
  if (o.scale_rule) o.scale_rule->init_scale = 0x1p16;  // Megatron's 2^32 skips all ten steps on its way down
  o.rule.ranks = ranks == 0 ? 1 : 2;
  o.sharding.on = ranks == 3;
  if (ranks == 2 && low) o.reduce.compress = o.dtype;
  o.rule.accumulate = (index / 13) % 3 == 2 ? 2 : 1;
  if ((index / 17) % 3 == 1) o.rule.clip_norm = 1;
  o.seed = 1 + index;
  o.shadows = {.local = true, .carried = true};
  o.judge = train::JudgeMode::sampled;
  o.check_steps = true;
  name = o.net.model + " " + ampcheck::name(o.dtype) + " " + c.name + (c.fused ? " fused" : "") +
         (c.weights == train::Weights::master ? " master" : "") + " scaler " + scaler_name(o) + " ranks " +
         std::to_string(o.rule.ranks) + (o.sharding.on ? " sharded" : "") + (o.reduce.compress ? " compressed" : "") +
         " accumulate " + std::to_string(o.rule.accumulate) + (o.rule.clip_norm > 0 ? " clipped" : "") + " seed " +
         std::to_string(o.seed);
  return o;
}

Trial run_healthy(std::size_t index) {
  Trial out;
  out.part = Part::healthy;
  const TrainOptions options = healthy(index, out.name);
  out.net = options.net.model;
  out.dtype = options.dtype;
  train::Trainer trainer(options);
  out.what = verdict_of(trainer, kSteps);
  out.found = !out.what.empty();
  return out;
}

}  // namespace

std::vector<Work> step_works(bool quick) {
  std::vector<Work> out;
  std::size_t number = 0;
  for (const Defect& defect : defects())
    for (const char* net : kNets)
      for (const Dtype dtype : {Dtype::fp16, Dtype::bf16})
        for (const char* optimizer : {"sgd", "adam"}) {
          if (defect.sgd_alone && std::string_view(optimizer) != "sgd") continue;
          const bool unscales = defect.name == "never unscaled" || defect.name == "clipped before unscaling";
          if (unscales && dtype != Dtype::fp16) continue;  // without a scale nothing is planted
          if (quick && number++ % 41 != 0) continue;
          out.push_back({defect.name, [=] { return std::vector<Trial>{run_defect(defect, net, dtype, optimizer)}; }});
        }
  return out;
}

std::vector<Work> healthy_works(bool quick) {
  constexpr std::size_t kRuns = 300, kQuickEvery = 41;
  std::vector<Work> out;
  for (std::size_t i = 0; i < kRuns; i += quick ? kQuickEvery : 1)
    out.push_back({"healthy run " + std::to_string(i + 1), [i] { return std::vector<Trial>{run_healthy(i)}; }});
  return out;
}

}  // namespace ampcheck::checks::train_audit
