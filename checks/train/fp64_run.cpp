// SPDX-License-Identifier: Apache-2.0
#include "checks/train/fp64_run.h"

#include <utility>

#include "checks/train/clip_and_decay.h"

namespace ampcheck::checks::train {

Fp64Run::Fp64Run(const Net& net, const StepRule& rule, std::uint64_t seed)
    : net_(net), rule_(rule), values_(net.name, seed), parameters_(net.name, seed, Dtype::fp64) {}
Fp64Run::~Fp64Run() = default;

void Fp64Run::start_from(ParameterSet& parameters) {
  for (const Parameter& parameter : parameters.all())
    parameters_.set(parameter.name, parameter.value.shape(), to_doubles(parameter.value.view()));
}

void Fp64Run::prepare() {
  if (optimizers_) return;
  if (parameters_.all().empty()) {  // the net says which parameters it has
    models::Fp64Tape tape(values_);
    net_.forward(tape, 0);
    for (const auto& [name, shape] : tape.trained_shapes()) parameters_.set(name, shape, values_.values().at(name));
  }
  optimizers_ = std::make_unique<OptimizerSet>(rule_.in_fp64(), parameters_);
}

void Fp64Run::resume_at(std::int64_t step) {
  steps_ = step;
  optimizers_->resume_at(std::vector<std::int64_t>(optimizers_->size(), step));  // no step is skipped here
}

namespace {

/// Adds the cotangents of another loss of the same forward pass.
void add_loss_record(models::StepRecord& sum, const models::StepRecord& more) {
  const auto add = [](std::vector<double>& to, const std::vector<double>& from) {
    if (to.empty()) to.assign(from.size(), 0);
    for (std::size_t i = 0; i < from.size(); ++i) to[i] += from[i];
  };
  for (std::size_t i = 0; i < more.cotangents.size(); ++i) add(sum.cotangents[i], more.cotangents[i]);
  for (const auto& [name, gradient] : more.gradients) add(sum.gradients[name], gradient);
  sum.loss += more.loss;
}

}  // namespace

/// Its share of the step's loss. With a backward for each loss: a forward for each too, as a tape goes back once.
double Fp64Run::run_micro_batch(int micro, int batches, double share) {
  std::size_t losses = 1;
  for (std::size_t k = 0; k < losses; ++k) {
    models::Fp64Tape tape(values_);
    if (rule_.backward_each) tape.take_loss(k);
    const bool last = micro + 1 == batches && !rule_.backward_each;  // whose parameters nobody reads again
    if (last) tape.take_parameters();
    net_.forward(tape, steps_ * batches + micro);
    if (rule_.backward_each) losses = std::max<std::size_t>(1, tape.losses());
    taken_ = tape.trained();
    if (traces_norm_) tape.trace_gradient_norm();
    tape.keep_call_gradients();
    if (rule_.grad_penalty > 0)
      grad_norm_ += share * tape.backward_with_penalty(share * rule_.loss_weight, rule_.grad_penalty);
    else
      tape.backward(share * rule_.loss_weight);
    tape.each_gradient([&](const std::string& name, const std::vector<double>& gradient) {
      Parameter& parameter = *parameters_.find(name);
      Tensor grad = Tensor::uninitialized(Dtype::fp64, parameter.value.shape());
      from_doubles(gradient, grad.view());
      if (parameter.grad.defined())
        ParameterSet::add_grad(parameter, grad);
      else
        parameter.grad = std::move(grad);
    });
    if (!rule_.backward_each) {
      records_.push_back(tape.take_record());
      continue;
    }
    by_loss_.push_back(tape.take_record());
    if (k == 0)
      records_.push_back(by_loss_.back());
    else
      add_loss_record(records_.back(), by_loss_.back());
  }
  return share * records_.back().loss;
}

void Fp64Run::take_values() {
  prepare();
  for (const Parameter& parameter : parameters_.all()) {
    const auto values = parameter.value.span<double>();
    values_.values()[parameter.name].assign(values.begin(), values.end());
  }
}

double Fp64Run::loss() {
  take_values();
  double out = 0;
  const int batches = rule_.accumulate * rule_.ranks;
  for (int micro = 0; micro < batches; ++micro) {
    models::Fp64Tape tape(values_);
    if (micro + 1 == batches) tape.take_parameters();
    net_.forward(tape, steps_ * batches + micro);
    out += tape.take_record().loss;
  }
  return out / batches;
}

double Fp64Run::step() {
  take_values();
  parameters_.clear_grads();
  records_.clear();
  by_loss_.clear();
  double loss = 0;
  grad_norm_ = 0;
  const double share = 1.0 / rule_.accumulate;
  const int batches = rule_.accumulate * rule_.ranks;
  for (int micro = 0; micro < batches; ++micro) loss += run_micro_batch(micro, batches, share);
  if (rule_.ranks > 1) {
    loss /= rule_.ranks;
    grad_norm_ /= rule_.ranks;
    for (Parameter& parameter : parameters_.all())
      if (parameter.grad.defined())
        for (double& g : parameter.grad.span<double>()) g /= rule_.ranks;
  }
  unclipped_.clear();
  for (const Parameter& parameter : parameters_.all())
    if (parameter.grad.defined() && rule_.clips()) {
      Tensor& kept = unclipped_[parameter.name] = Tensor::uninitialized(Dtype::fp64, parameter.grad.shape());
      copy_elements(parameter.grad.view(), kept.view());
    }
  clip(rule_, parameters_.pointers());
  optimizers_->step();
  ++steps_;
  return loss;
}

const Tensor& Fp64Run::gradient(const Parameter& parameter) const {
  const auto kept = unclipped_.find(parameter.name);
  return kept == unclipped_.end() ? parameter.grad : kept->second;
}

void Fp64Run::run_again(int batch, const std::function<void(models::Fp64Tape&)>& use) {
  // The optimizer moved parameters_, not those of the record.
  for (const auto& [id, name] : std::exchange(taken_, {}))
    values_.values()[name] = records_.back().values[static_cast<std::size_t>(id)];
  models::Fp64Tape tape(values_);
  net_.forward(tape, (steps_ - 1) * rule_.accumulate * rule_.ranks + batch);
  use(tape);
}

}  // namespace ampcheck::checks::train
