// SPDX-License-Identifier: Apache-2.0
#include "checks/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "checks/train/fp8_check.h"
#include "checks/train/graph_entry.h"
#include "checks/train/loss_rounding.h"
#include "kernels/multi_tensor.h"
#include "src/amp/autocast.h"
#include "src/error.h"
#include "src/parallel.h"

namespace ampcheck::checks::train {

namespace {

/// Keeps the last kSpreadSteps.
void keep_last(std::vector<double>& kept, double value) {
  kept.push_back(value);
  if (kept.size() > Trainer::kSpreadSteps) kept.erase(kept.begin());
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// What does not go together with parameters or gradients in 16 bits.
void require_low_precision(const TrainOptions& o) {
  const OptimizerChoice& c = o.rule.optimizer;
  const bool low = c.weights != Weights::fp32 || o.keep_low_precision_grads;
  if (!low) return;
  const std::string what =
      o.keep_low_precision_grads ? "gradients kept in low precision" : std::string("weights ") + name(c.weights);
  const auto refuse = [&](bool when, const char* got, const char* want) {
    if (when) throw Error("[train] " + what + ", got " + got + ", want " + want);
  };
  refuse(o.dtype == Dtype::fp32, "dtype fp32", "fp16 or bf16");
  if (o.dtype != Dtype::fp16 || !o.scaler.enabled) return;
  refuse(!c.is_fused(),
         "an optimizer in reference arithmetic with a scaler, which takes no fp16 gradients (torch: Attempting to "
         "unscale FP16 gradients.)",
         "it fused, which divides by the scale itself, or no scaler");
}

}  // namespace

/// What does not go together with fp8.
void require_fp8(const TrainOptions& o) {
  if (!o.fp8) return;
  const auto refuse = [](bool when, const char* got, const char* want) {
    if (when) throw Error(std::string("[train] dtype fp8, got ") + got + ", want " + want);
  };
  refuse(o.dtype == Dtype::fp32, "fp32 between the products", "bf16 or fp16 there");
  refuse(static_cast<bool>(o.stream), "device cuda", "the host");
  refuse(o.rule.grad_penalty > 0, "a gradient penalty", "none: the rounding to fp8 has no second derivative");
}

/// What a rank has of its own. The weights are one and the same memory: replicas that start alike and get the same
/// gradients stay alike.
struct Trainer::Rank {
  explicit Rank(const std::string& net, std::uint64_t seed) : parameters(net, seed) {}
  ParameterSet parameters;
  models::Recordings recordings;
  std::optional<Fp8Rank> fp8 = {};
  float loss = 0;
  std::vector<double> losses;
  double grad_norm = 0;
};

bool StepResult::left() const { return !std::isfinite(loss) || (apart && allowed() && std::fabs(*apart) > *allowed()); }

std::optional<double> StepResult::allowed() const {
  if (!spread) return std::nullopt;
  return std::max(*spread, rounding.value_or(0));
}

Trainer::Trainer(const TrainOptions& options)
    : options_(options),
      net_(options.own_net ? *options.own_net : make_net(options.net)),
      parameters_(net_.name, options.seed, weights_dtype(options)) {
  require_low_precision(options_);
  require_fp8(options_);
  scaler_ = options_.scale_rule ? std::make_unique<RuleGradScaler>(*options_.scale_rule, options_.scaler.enabled)
                                : std::make_unique<GradScaler>(options_.scaler);
  if (options_.stream) {
    if (options_.rule.ranks > 1)
      throw Error("[ranks] device cuda, got " + std::to_string(options_.rule.ranks) +
                  " ranks, want one: ranks are threads of the host");
    stream_ = options_.stream();
    scaler_->set_unscale(
        [stream = stream_.get()](std::span<const TensorView> grads, float inv_scale, float& found_inf) {
          kernels::unscale_at_once(*stream, grads, inv_scale, found_inf);
        });
  }
  if (options_.sharding.on && (options_.rule.ranks < 2 || options_.scale_rule))
    throw Error("[ranks] sharded, got " +
                (options_.scale_rule ? std::string("scaler ") + options_.scale_rule->name : "one rank") +
                ", want two ranks or more, and torch's scaler or none");
  options_.rule.optimizer = optimizer_of(net_, options_.rule.optimizer);
  for (LayerOptimizer& other : options_.rule.further) {
    if (other.choice.lr < 0) other.choice.lr = options_.rule.optimizer.lr;
    if (other.choice.weight_decay < 0) other.choice.weight_decay = options_.rule.optimizer.weight_decay;
  }
  if (options_.shadows.local || options_.shadows.carried || options_.watched)
    watch_ = std::make_unique<Watch>(options_.shadows.local, options_.sampling);
  if (options_.judge != JudgeMode::none) judge_ = std::make_unique<LiveJudge>(options_.judge, options_.fp8);
  if (judge_) judge_->listen(options_.hear_calls);
  if (options_.check_steps)
    step_check_ = std::make_unique<StepCheck>(options_.rule, options_.reduce, weights_dtype(options_));
  if (options_.fp8) fp8_ = std::make_unique<Fp8State>(*options_.fp8, options_.planted_fp8);
  if (!options_.shadows.local || !options_.shadows.carried || options_.rule.grad_penalty > 0 || options_.fp8 ||
      scaled_until_update())
    options_.gradient_errors = 0;
  if (!options_.rule.backward_each) return;
  options_.gradient_errors = 0;  // its errors are of one backward
  if (options_.rule.grad_penalty > 0)
    throw Error("[train] backward each, got a gradient penalty, want one backward of the sum: the penalty is of that");
}

bool Trainer::scaled_until_update() const { return low_gradients() && !options_.rule.clips(); }

bool Trainer::low_gradients() const {
  return options_.dtype == Dtype::fp16 && options_.scaler.enabled &&
         (options_.rule.optimizer.weights != Weights::fp32 || options_.keep_low_precision_grads);
}

Trainer::~Trainer() = default;

/// A first forward says which parameters the net has.
void Trainer::prepare() {
  if (optimizers_ || sharded_) return;
  models::Recordings recordings;
  GraphOptions once;
  once.stream = stream_.get();
  once.autocast = options_.autocast;
  Graph graph(parameters_, recordings, once);
  {  // in the run's dtypes, which an op may not take
    const Autocast region(graph.device(), autocast_in(options_.dtype));
    net_.forward(graph, 0);
  }
  own_regions_ = options_.dtype == Dtype::fp32 && graph.used_autocast();
  if (stream_) stream_->wait();
  if (!graph.trains())
    throw Error("[train] net, got none of its " + std::to_string(parameters_.all().size()) +
                " parameters with a gradient, want one to train: a layer with weights that is not under no_grad");
  if (options_.rule.grad_penalty > 0) {  // an op without a double backward is named before the first step
    add_penalty(graph, 1);
    graph.backward(1, 1);
    if (stream_) stream_->wait();
    parameters_.clear_grads();
  }
  if (options_.sharding.on) {
    sharded_ = std::make_unique<ShardedRanks>(parameters_, options_.rule, options_.scaler, options_.sharding);
  } else {
    StepRule rule = options_.rule;
    if (options_.planted_optimizer) rule.optimizer = optimizer_of(net_, *options_.planted_optimizer);
    optimizers_ = std::make_unique<OptimizerSet>(rule, parameters_);
    for (std::size_t k = 0; stream_ && k < optimizers_->size(); ++k)
      optimizers_->at(k).set_multi_tensor([stream = stream_.get()](std::span<const TensorUpdate> tensors,
                                                                   const UpdateRule& update,
                                                                   std::span<UpdateCounts> counts) {
        kernels::update_at_once(*stream, tensors, update, counts);
      });
  }
  skips_of_.assign(options_.rule.optimizers(), 0);
  for (int rank = 0; rank < options_.rule.ranks; ++rank) {
    ranks_.push_back(std::make_unique<Rank>(net_.name, options_.seed));
    ranks_.back()->parameters.share_values(parameters_);
    if (fp8_) ranks_.back()->fp8.emplace(*fp8_);
  }
  if (!options_.shadows.carried) return;
  for (int k = 0; k < std::max(1, options_.spread_seeds); ++k)
    reference_.push_back(std::make_unique<Fp64Run>(net_, options_.rule, options_.seed + static_cast<std::uint64_t>(k)));
  reference_.front()->start_from(parameters_);
}

void Trainer::resume_at(int step, int skips, std::vector<int> skips_of, std::vector<double> spreads,
                        std::vector<double> differences, std::vector<double> roundings, Verdict verdict) {
  step_ = step;
  skips_ = skips;
  skips_of_ = std::move(skips_of);
  spreads_ = std::move(spreads);
  differences_ = std::move(differences);
  roundings_ = std::move(roundings);
  verdict_ = std::move(verdict);
  std::vector<std::int64_t> updates;
  for (const int skipped : skips_of_) updates.push_back(step - skipped);
  if (!sharded_) return optimizers_->resume_at(updates);
  sharded_->resume_at(updates);
  sharded_->gather_values();
}

bool Trainer::compares() const {
  return watch_ && !reference_.empty() && options_.sampling.step(step_) && options_.rule.grad_penalty <= 0;
}

void Trainer::run_fp64(StepResult& result) {
  if (reference_.empty()) return;
  std::vector<double> losses(reference_.size());
  const bool traced = compares();
  reference_.front()->trace_gradient_norm(traced && options_.shadows.local && options_.rule.grad_penalty <= 0 &&
                                          !options_.rule.backward_each);
  apart_.clear();  // before the fp64 run moves its own
  for (const Parameter& parameter : reference_.front()->parameters().all()) {
    if (!traced) break;
    apart_.push_back(to_doubles(parameters_.find(parameter.name)->value.view()));
    const auto fp64 = parameter.value.span<double>();
    for (std::size_t i = 0; i < fp64.size(); ++i) apart_.back()[i] -= fp64[i];
  }
  parallel_for(std::ssize(reference_), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto k = static_cast<std::size_t>(begin); k < static_cast<std::size_t>(end); ++k)
      losses[k] = reference_[k]->step();
  });
  if (traced) {
    double drift = 0;
    std::size_t at = 0;
    for (const Parameter& parameter : reference_.front()->parameters().all()) {
      const std::vector<double>& moved = apart_[at++];
      if (!parameter.grad.defined()) continue;
      const auto grad = reference_.front()->gradient(parameter).span<double>();
      for (std::size_t i = 0; i < grad.size(); ++i) drift += moved[i] * grad[i];
    }
    result.loss_drift = drift / options_.rule.loss_weight;
  }
  result.fp64_loss = losses.front();
  if (options_.rule.grad_penalty > 0) result.fp64_grad_norm = reference_.front()->grad_norm();
  double rounding = 0;  // the records' cotangents are of a rank's share of the weighted loss
  for (const models::StepRecord& record : reference_.front()->records())
    rounding +=
        loss_rounding(record, options_.dtype, options_.autocast) / (options_.rule.loss_weight * options_.rule.ranks);
  keep_last(roundings_, rounding);
  result.rounding = mean_of(roundings_);
  if (losses.size() < 2) return;
  const auto [least, most] = std::minmax_element(losses.begin(), losses.end());
  keep_last(spreads_, *most - *least);
  result.spread = *std::max_element(spreads_.begin(), spreads_.end());
}

float Trainer::add_penalty(Graph& graph, float seed) {
  const models::Var norm = graph.norm(graph.gradients(graph.parameter_vars(), seed, seed), 1 / seed);
  graph.add_loss(norm, options_.rule.grad_penalty);
  return graph.view(norm).as<const float>()[0];
}

/// The micro-batches of one rank, with gradients of its own. `told`: to the watch and the fault, which hear of one rank
/// after the other.
void Trainer::run_rank(Rank& rank, int number, float scale, bool told) {
  GraphOptions options;
  if (told) {
    options.observer = watch_.get();
    options.fault = options_.fault;
    options.calls = judge_.get();
  }
  options.step = step_;
  options.rank = number;
  options.stream = stream_.get();
  if (nudge_) options.fault = nudge_;
  if (rank.fp8) {
    rank.fp8->record(!nudge_);
    options.fp8 = &*rank.fp8;
  }
  options.kernels_of = options_.kernels_of.empty() ? nullptr : &options_.kernels_of;
  options.autocast = options_.autocast;
  options.keep_low_precision_grads = options_.keep_low_precision_grads;
  options.keep_activations = options_.keep_activations;
  const int micro_batches = options_.rule.accumulate, ranks = options_.rule.ranks;
  const float share = 1.0f / static_cast<float>(micro_batches);
  rank.loss = 0;
  rank.losses.clear();
  rank.grad_norm = 0;
  ParameterSet& parameters = ranks > 1 ? rank.parameters : parameters_;
  parameters.clear_grads();
  for (int micro = 0; micro < micro_batches; ++micro) {
    const int index = micro * ranks + number;
    if (told && watch_)
      watch_->begin(
          step_, reference_.empty() ? nullptr : &reference_.front()->records()[static_cast<std::size_t>(index)],
          micro == 0 && number == 0, options_.rule.loss_weight * ranks, share / static_cast<float>(ranks), index);
    if (told && judge_) judge_->begin(step_, index, micro_batches * ranks);
    Graph graph(parameters, rank.recordings, options);
    {
      const Autocast region(graph.device(), autocast_in(options_.dtype));
      net_.forward(graph, static_cast<std::int64_t>(step_) * micro_batches * ranks + index);
    }
    rank.loss += share * graph.loss();
    const auto weight = static_cast<float>(options_.rule.loss_weight);
    if (options_.rule.grad_penalty > 0)
      rank.grad_norm += static_cast<double>(
          share *
          add_penalty(graph, scale * weight));  // the AMP recipe: the norm of unscaled gradients of the scaled loss
    const std::vector<float> losses = net_.losses.empty() ? std::vector<float>{} : graph.losses();
    rank.losses.resize(losses.size());
    for (std::size_t k = 0; k < losses.size(); ++k)
      rank.losses[k] += static_cast<double>(share) * static_cast<double>(losses[k]);
    backward(graph, number, index, scale * share * weight, scale, told);
    if (nudge_) continue;
    plant(Stage::accumulated, parameters);
  }
  if (stream_) stream_->wait();  // from here on the host reads gradients
}

/// Of the sum of the losses, or of one after the other.
void Trainer::backward(Graph& graph, int rank, int batch, float seed, double scale, bool told) {
  const auto check_parts = [&] {
    if (nudge_ || !step_check_ || !step_check_->checks()) return;
    if (stream_) stream_->wait();
    for (const auto& [name, gradient] : graph.parameter_gradients()) step_check_->add_part(rank, name, gradient.view());
  };
  if (!options_.rule.backward_each) {
    graph.backward(seed, scale);
    return check_parts();
  }
  const std::size_t losses = graph.losses().size();
  for (std::size_t k = 0; k < losses; ++k) {
    if (told && watch_ && !reference_.empty())
      watch_->of_loss(&reference_.front()->records_by_loss()[static_cast<std::size_t>(batch) * losses + k]);
    graph.backward_of(k, seed, scale, /*retain_graph=*/k + 1 < losses);
    check_parts();
  }
}

double Trainer::run_micro_batches(StepResult& result) {
  const auto scale_of = [](GradScaler& scaler) {
    return scaler.loss_gradient(Tensor(Dtype::fp32, {})).span<float>()[0];
  };
  const float scale = scale_of(scaler());
  std::vector<float> scales(ranks_.size(), scale);
  for (std::size_t r = 0; sharded_ && r < scales.size(); ++r)
    scales[r] = scale_of(sharded_->scaler(static_cast<int>(r)));
  const bool looked_at = options_.fault || judge_ || step_check_ || (watch_ && options_.sampling.step(step_)),
             told = looked_at && !nudge_;
  if (watch_ && !told && !nudge_) watch_->begin(step_, nullptr, true);
  const std::int64_t ranks = std::ssize(ranks_);
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      run_rank(*ranks_[static_cast<std::size_t>(r)], static_cast<int>(r), scales[static_cast<std::size_t>(r)], told);
  };
  if (ranks > 1 && !told)
    parallel_for(ranks, 1, run);
  else
    run(0, ranks);
  end_fp8();
  float loss = 0;
  double norm = 0;
  for (const auto& rank : ranks_) {
    loss += rank->loss;
    norm += rank->grad_norm;
  }
  for (const auto& rank : ranks_) {
    result.losses.resize(rank->losses.size());
    for (std::size_t k = 0; k < rank->losses.size(); ++k)
      result.losses[k] += rank->losses[k] / static_cast<double>(ranks);
  }
  if (options_.rule.grad_penalty > 0) result.grad_norm = norm / static_cast<double>(ranks);
  if (ranks == 1) return loss;
  reduce_gradients(scale);
  return loss / static_cast<float>(ranks);
}

/// The scales of the next step, from what all ranks met in all micro-batches.
void Trainer::end_fp8() {
  if (!fp8_ || nudge_) return;
  std::map<std::string, Fp8State::Met, std::less<>> all;
  for (const auto& rank : ranks_) {
    for (const auto& [name, met] : rank->fp8->met()) {
      Fp8State::Met& most = all.try_emplace(name, met).first->second;
      most.amax = std::max(most.amax, met.amax);
    }
    rank->fp8->met().clear();
  }
  fp8_->update(all);
  if (judge_ && judge_->fp8() != nullptr) judge_->fp8()->end_step();
}

void Trainer::restore_fp8(const std::string& tensor, const Fp8State::Of& of) {
  fp8_->restore(tensor, of);
  if (judge_ && judge_->fp8() != nullptr) judge_->fp8()->restore(tensor, of);
}

void Trainer::reduce_gradients(float scale) {
  for (Parameter& parameter : parameters_.all()) {
    std::vector<TensorView> of_ranks;
    for (const auto& rank : ranks_)
      if (const Parameter* own = rank->parameters.find(parameter.name); own->grad.defined())
        of_ranks.push_back(own->grad.view());
    if (of_ranks.empty()) continue;
    if (of_ranks.size() != ranks_.size())
      throw Error("[ranks] '" + parameter.name + "', got a gradient on " + std::to_string(of_ranks.size()) + " of " +
                  std::to_string(ranks_.size()) + " ranks, want one on all or on none");
    const Tensor mean = all_reduce_mean(of_ranks, options_.reduce);
    // Each rank has it in its gradient's dtype; what the wire loses of fp32 is told in the wire's.
    parameter.grad = in_dtype(mean, of_ranks.front().dtype);
    if (watch_ && !nudge_ && watch_->wants(parameter.name)) {
      Event event;
      event.step = step_;
      event.phase = Phase::all_reduce;
      event.op = event.layer = parameter.name;
      event.tensor = "grad";
      event.got = narrows(mean.dtype(), parameter.grad.dtype()) ? parameter.grad.view() : mean.view();
      event.scale = scale;
      for (const TensorView& view : of_ranks) event.inputs_finite = event.inputs_finite && all_finite(view);
      const std::vector<double> exact = exact_mean(of_ranks);
      event.exact = view_of(exact, mean.shape());
      std::optional<Sent> sent;
      if (options_.reduce.compress) {
        sent = sent_by(of_ranks, options_.reduce);
        event.sent = sent->least;
        event.most_sent = sent->most;
      }
      std::vector<double> carried;
      if (!reference_.empty()) {
        carried =
            to_doubles(reference_.front()->gradient(*reference_.front()->parameters().find(parameter.name)).view());
        event.carried = carried;
      }
      watch_->see(event);
    }
  }
}

void Trainer::tell(Phase phase, const std::vector<bool>& finite_before) {
  if (!watch_) return;
  std::size_t index = 0;
  const bool moves = phase == Phase::optimizer;
  for (Parameter& parameter : parameters_.all()) {
    const std::size_t at = index++;
    if (!parameter.grad.defined() || !watch_->wants(parameter.name)) continue;
    if (moves && !stepped(optimizers().of(at))) continue;
    Event event;
    event.step = step_;
    event.phase = phase;
    event.op = event.layer = parameter.name;
    event.tensor = moves ? "value" : "grad";
    event.got = (moves ? parameter.value : parameter.grad).view();
    event.inputs_finite = finite_before.empty() ? all_finite(parameter.grad.view()) : finite_before[at];
    std::vector<double> carried;
    if (!reference_.empty()) {
      const Parameter& fp64 = *reference_.front()->parameters().find(parameter.name);
      carried = to_doubles((moves                     ? fp64.value
                            : phase == Phase::unscale ? reference_.front()->gradient(fp64)
                                                      : fp64.grad)
                               .view());
      event.carried = carried;
    }
    if (moves) {
      const UpdateCounts counts = sharded_ ? sharded_->counts(at) : optimizers_->counts(at);
      event.intended = counts.with_grad;
      event.stagnant = counts.with_grad_stagnant;
      event.copy_stagnant = counts.copy_stagnant;
      event.second_moment_zero = counts.second_moment_zero;
      event.epsilon_zero = counts.epsilon_zero;
    }
    watch_->see(event);
  }
}

/// Before the gradients of a step: the watch keeps errors in some steps, and everything counts from zero.
void Trainer::start_counting() {
  const int looked_at = (step_ - options_.sampling.from) / options_.sampling.every;
  if (watch_)
    watch_->keep_errors(options_.gradient_errors > 0 && compares() && looked_at % options_.gradient_errors == 0);
  parameters_.clear_grads();
  if (sharded_)
    sharded_->reset_counts();
  else
    optimizers_->reset_counts();
}

/// How far the loss is from the fp64 run's, and what the run's verdict makes of it.
void Trainer::compare_losses(StepResult& result) {
  if (result.fp64_loss) {
    keep_last(differences_, result.loss - *result.fp64_loss);
    result.apart = mean_of(differences_);
  }
  const Compared compared{step_, result.loss, result.apart.value_or(0), result.spread, result.rounding};
  if (!verdict_.left && result.left()) verdict_.left = compared;
  if (result.apart && (!verdict_.most || std::fabs(*result.apart) > std::fabs(verdict_.most->apart)))
    verdict_.most = compared;
}

/// Whether somebody needs the norms of the gradients. Otherwise the optimizer counts what is not finite.
bool Trainer::wants_norms() const {
  return options_.norms || watch_ || step_check_ || sharded_ || stream_ || scaler_->is_enabled() ||
         options_.rule.clips();
}

StepResult Trainer::step() {
  prepare();
  StepResult result;
  result.step = step_;
  run_fp64(result);
  start_counting();
  begin_checks();
  result.loss = run_micro_batches(result);
  if (same_weights_) {
    // What the loss is computed from is no more exact than the products that it comes from.
    const double coarser = fp8_ ? kE4m3fn.unit_roundoff() / format(options_.dtype).unit_roundoff() : 1;
    same_weights_->add_loss(result.loss, coarser * result.rounding.value_or(0));
  }
  compare_losses(result);
  result.scale = scaler().get_scale();
  unscale_gradients(result);
  update(result);
  count(result);
  if (watch_) watch_->end(!result.stepped);
  ++step_;
  return result;
}

}  // namespace ampcheck::checks::train
