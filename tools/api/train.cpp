// SPDX-License-Identifier: Apache-2.0
// ampcheck/train.h on top of the trainer that `ampcheck train` runs.
#include "src/api/ampcheck/train.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "checks/doors/plugin.h"
#include "checks/train/checkpoint.h"
#include "checks/train/diagnosis.h"
#include "checks/train/trace.h"
#include "checks/train/trainer.h"
#include "kernels/stream.h"
#include "src/amp/error.h"
#include "src/file_bytes.h"
#include "tools/api/train_types.h"
#include "tools/choose/device_choice.h"
#include "tools/choose/plugins.h"
#include "tools/choose/scaler_choice.h"
#include "tools/report/output.h"

namespace ampcheck::train {

namespace {

namespace inner = checks::train;

inner::Weights inner_weights(Weights weights) {
  if (weights == Weights::master) return inner::Weights::master;
  return weights == Weights::low ? inner::Weights::low : inner::Weights::fp32;
}

inner::Net inner_net(Net net) {
  if (!net.forward) throw UsageError("[net] forward, got none, want the net's forward and loss");
  inner::Net out;
  out.name = net.name.empty() ? "net" : net.name;
  out.rate = net.rate;
  out.momentum = net.momentum;
  out.losses = std::move(net.losses);
  out.forward = [forward = std::move(net.forward)](checks::models::Tape& tape, std::int64_t batch) {
    Internals::with_tape(tape, [&](Tape& t) { forward(t, batch); });
  };
  return out;
}

inner::StepRule rule_of(const Options& options) {
  const Optimizer& o = options.optimizer;
  inner::StepRule out;
  out.optimizer = {.name = o.name,
                   .lr = o.lr,
                   .momentum = o.momentum,
                   .weight_decay = o.weight_decay,
                   .nesterov = o.nesterov,
                   .fused = o.fused,
                   .weights = inner_weights(o.weights),
                   .moments = {}};
  if (o.moments) out.optimizer.moments = inner_dtype(*o.moments);
  if (o.second_moment) out.optimizer.second_moment = inner_dtype(*o.second_moment);
  for (const LayerOptimizer& more : options.further)
    out.further.push_back({.layers = more.layers,
                           .choice = {.name = more.name,
                                      .lr = more.lr,
                                      .momentum = more.momentum,
                                      .weight_decay = more.weight_decay,
                                      .nesterov = more.nesterov},
                           .clip_norm = more.clip_norm,
                           .clip_value = more.clip_value});
  out.backward_each = options.backward_each;
  out.schedule = o.schedule;
  out.accumulate = options.accumulate;
  out.loss_weight = options.loss_weight;
  out.grad_penalty = options.grad_penalty;
  out.clip_norm = options.clip_norm;
  out.clip_value = options.clip_value;
  return out;
}

void require_sane(const Options& o) {
  const auto refuse = [](bool when, const char* what, double got, const char* want) {
    if (when) throw UsageError(std::string("[") + what + "] got " + std::to_string(got) + ", want " + want);
  };
  refuse(o.accumulate < 1, "accumulate", o.accumulate, "at least 1");
  refuse(o.every < 1, "every", o.every, "at least 1");
  refuse(o.spread_seeds < 0, "spread_seeds", o.spread_seeds, "0 or more");
  refuse(!(o.clip_norm >= 0), "clip_norm", o.clip_norm, "0 or more");
  refuse(!(o.clip_value >= 0), "clip_value", o.clip_value, "0 or more");
  for (const LayerOptimizer& more : o.further) {
    if (more.layers.empty()) throw UsageError("[further] layers, got none, want the names of some");
    refuse(std::isnan(more.clip_norm), "further clip_norm", more.clip_norm, "a number");
    refuse(std::isnan(more.clip_value), "further clip_value", more.clip_value, "a number");
  }
  refuse(!(o.grad_penalty >= 0), "grad_penalty", o.grad_penalty, "0 or more");
  if (o.dtype != Dtype::fp16 && o.dtype != Dtype::bf16 && o.dtype != Dtype::fp32)
    throw UsageError(std::string("[dtype] got ") + ampcheck::name(inner_dtype(o.dtype)) + ", want fp16, bf16 or fp32");
}

inner::TrainOptions inner_options(Net net, const Options& options) {
  require_sane(options);
  inner::TrainOptions out;
  out.own_net = inner_net(std::move(net));
  out.dtype = inner_dtype(options.dtype);
  tools::choose_scaler(options.scaler.rule, options.scaler.init_scale, options.scaler.growth_interval, out);
  out.rule = rule_of(options);
  out.seed = options.seed;
  out.shadows = {.local = options.local_shadow, .carried = options.carried_shadow};
  out.spread_seeds = options.spread_seeds;
  out.sampling.every = options.every;
  out.norms = options.norms;
  out.watched = !options.record.empty();
  if (out.watched) out.gradient_errors = std::max(1, inner::kGradientErrorsEvery / options.every);
  if (options.device == Device::cuda) {
    tools::require_device(ampcheck::Device::cuda);
    out.stream = kernels::make_cuda_stream;
  }
  return out;
}

}  // namespace

struct Trainer::State {
  State(Net net, const Options& given) : options(given), trainer(inner_options(std::move(net), given)) {}

  void open_record() {
    if (options.record.empty() || trace) return;
    const bool resumed = trainer.steps() > 0;
    tools::require_writable(options.record);
    if (resumed) inner::require_trace_of(options.record, trainer);
    trace.emplace(options.record, trainer, options.planned_steps, resumed);
    trainer.watch()->listen([this](const inner::Event& e, const inner::TensorKey& key, const inner::Tally& tally,
                                   inner::FaultRole role,
                                   const TensorStats& stats) { trace->tensor(e, key, tally, role, stats); });
    trainer.watch()->listen_to_moves([this](const inner::LateMove& move) { trace->moved_late(move); });
  }

  Parameter& parameter(const std::string& name) {
    if (Parameter* found = trainer.parameters().find(name)) return *found;
    std::string known;
    for (const Parameter& each : trainer.parameters().all()) known += (known.empty() ? "" : ", ") + each.name;
    throw UsageError("[trainer] parameter, got '" + name + "', want one of " + known);
  }

  Options options;
  inner::Trainer trainer;
  std::vector<inner::StepResult> steps;
  std::vector<StepResult> results;
  std::optional<inner::TraceWriter> trace;
};

Trainer::Trainer(Net net, const Options& options)
    : state_(with_public_errors([&] { return std::make_unique<State>(std::move(net), options); })) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

void Trainer::set_parameter(const std::string& name, const Shape& shape, const std::vector<double>& values) {
  with_public_errors([&] { state_->trainer.set_parameter(name, inner_shape(shape), values); });
}

StepResult Trainer::step() {
  return with_public_errors([&] {
    state_->trainer.prepare();
    state_->open_record();
    try {
      state_->steps.push_back(state_->trainer.step());
    } catch (const AmpError& error) {
      throw RunError("[trainer] step " + std::to_string(state_->trainer.steps()) + ": " + error.what());
    } catch (const checks::KernelError& error) {
      throw RunError(error.what());
    }
    if (state_->trace) state_->trace->step(state_->steps.back());
    state_->results.push_back(public_result(state_->steps.back()));
    return state_->results.back();
  });
}

int Trainer::steps() const { return state_->trainer.steps(); }
const std::vector<StepResult>& Trainer::results() const { return state_->results; }

Diagnosis Trainer::diagnosis() const {
  if (state_->steps.empty()) throw UsageError("[trainer] diagnosis, got no step, want one at least");
  return public_diagnosis(inner::diagnose(state_->trainer, state_->steps));
}

std::vector<std::string> Trainer::parameters() const {
  return with_public_errors([&] {
    state_->trainer.prepare();
    std::vector<std::string> out;
    for (const Parameter& parameter : state_->trainer.parameters().all()) out.push_back(parameter.name);
    return out;
  });
}

Shape Trainer::parameter_shape(const std::string& name) const {
  return public_shape(state_->parameter(name).value.shape());
}
std::vector<double> Trainer::parameter(const std::string& name) const {
  return to_doubles(state_->parameter(name).value.view());
}
std::vector<double> Trainer::gradient(const std::string& name) const {
  const Tensor& grad = state_->parameter(name).grad;
  return grad.defined() ? to_doubles(grad.view()) : std::vector<double>{};
}

void Trainer::save(const std::string& path) const {
  with_public_errors([&] {
    state_->trainer.prepare();
    tools::write_file(path, inner::checkpoint_bytes(state_->trainer));
  });
}

void Trainer::resume(const std::string& path) {
  with_public_errors([&] {
    tools::require_readable(path);
    state_->trainer.prepare();
    inner::resume(state_->trainer, read_bytes(path, "checkpoint"), path);
  });
}

std::vector<std::string> use_library(const std::string& path) {
  return with_public_errors([&] {
    std::vector<std::string> out;
    for (const checks::OpDef& op : checks::load_plugin(path).ops) {
      tools::require_certified(op);
      checks::models::use_op(op);
      out.push_back(op.signature.name);
    }
    return out;
  });
}

}  // namespace ampcheck::train
