// SPDX-License-Identifier: Apache-2.0
#include "checks/train/sharded.h"

#include <algorithm>
#include <barrier>
#include <cstring>
#include <exception>
#include <thread>

#include "src/parallel.h"
#include "src/thread_scope.h"

namespace ampcheck::checks::train {

/// One number of each rank, met by threads that wait for one another.
struct ShardedRanks::AllReduce {
  explicit AllReduce(std::size_t ranks) : values(ranks, 0.0f), all(static_cast<std::ptrdiff_t>(ranks)) {}
  float sum(std::size_t rank, float value) {
    values[rank] = value;
    all.arrive_and_wait();
    float out = 0;
    for (const float v : values) out += v;
    all.arrive_and_wait();  // before the next sum's numbers come
    return out;
  }
  std::vector<float> values;
  std::barrier<> all;
};

struct ShardedRanks::Rank {
  Rank(const StepRule& rule, Dtype weights, const GradScalerOptions& options, AllReduceSum sum)
      : parameters("shard", 0, weights), scaler(options, std::move(sum)), step_rule(rule) {}
  /// Once it has its parameters.
  void prepare() { optimizers = std::make_unique<OptimizerSet>(step_rule, parameters); }
  ParameterSet parameters;  ///< the shards, of one dimension
  ShardedGradScaler scaler;
  StepRule step_rule;
  std::unique_ptr<OptimizerSet> optimizers;
  bool stepped = true;
};

namespace {

/// The stretch of n elements that rank r of `ranks` owns.
struct Stretch {
  std::int64_t from, count;
};
Stretch stretch_of(std::int64_t n, std::int64_t rank, std::int64_t ranks) {
  const std::int64_t chunk = (n + ranks - 1) / ranks, from = std::min(n, rank * chunk);
  return {from, std::min(chunk, n - from)};
}

}  // namespace

ShardedRanks::ShardedRanks(ParameterSet& whole, const StepRule& rule, const GradScalerOptions& scaler,
                           const ShardingOptions& sharding)
    : whole_(whole), rule_(rule), all_reduce_(std::make_unique<AllReduce>(static_cast<std::size_t>(rule.ranks))) {
  for (int r = 0; r < rule.ranks; ++r) {
    const auto believes = sharding.believes;
    const StepRule own_rule = sharding.follows ? sharding.follows(r, rule) : rule;
    ranks_.push_back(std::make_unique<Rank>(own_rule, whole.dtype(), scaler, [this, r, believes](float own) {
      const float agreed = all_reduce_->sum(static_cast<std::size_t>(r), own);
      return believes ? believes(r, own, agreed) : agreed;
    }));
    for (const Parameter& parameter : whole.all()) {
      const Stretch own = stretch_of(parameter.value.count(), r, rule.ranks);
      ranks_.back()->parameters.set(parameter.name, {own.count},
                                    std::vector<double>(static_cast<std::size_t>(own.count)));
    }
    ranks_.back()->prepare();
  }
  scatter_values();
}

ShardedRanks::~ShardedRanks() = default;

ParameterSet& ShardedRanks::shards(int rank) { return ranks_[static_cast<std::size_t>(rank)]->parameters; }
GradScaler& ShardedRanks::scaler(int rank) { return ranks_[static_cast<std::size_t>(rank)]->scaler; }
OptimizerSet& ShardedRanks::optimizers(int rank) { return *ranks_[static_cast<std::size_t>(rank)]->optimizers; }

void ShardedRanks::copy(bool gradients, bool to_whole) {
  for (Parameter& whole : whole_.all())
    for (int r = 0; r < ranks(); ++r) {
      Parameter& shard = *shards(r).find(whole.name);
      const Stretch own = stretch_of(whole.value.count(), r, ranks());
      if (gradients && !whole.grad.defined()) {
        shard.clear_grad();
        continue;
      }
      if (gradients && !to_whole) shard.grad = Tensor::uninitialized(whole.grad.dtype(), {own.count});
      const Tensor &part = gradients ? shard.grad : shard.value, &all = gradients ? whole.grad : whole.value;
      const std::int64_t size = bytes(part.dtype());
      char *const here = static_cast<char*>(part.data()), *const there =
                                                              static_cast<char*>(all.data()) + own.from * size;
      if (own.count > 0)
        std::memcpy(to_whole ? there : here, to_whole ? here : there, static_cast<std::size_t>(own.count * size));
    }
}

void ShardedRanks::gather_values() { copy(false, true); }
void ShardedRanks::gather_gradients() { copy(true, true); }
void ShardedRanks::scatter_values() { copy(false, false); }
void ShardedRanks::scatter_gradients() { copy(true, false); }

/// A rank that fails leaves the others to go on without it.
void ShardedRanks::on_every_rank(const std::function<void(Rank&)>& work) {
  std::vector<std::exception_ptr> errors(ranks_.size());
  const int most = ampcheck::threads();
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    threads.emplace_back([&, r] {
      const ThreadScope scope(most);
      try {
        work(*ranks_[r]);
      } catch (...) {
        errors[r] = std::current_exception();
        all_reduce_->all.arrive_and_drop();
      }
    });
  threads.clear();  // joined
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

void ShardedRanks::unscale() {
  on_every_rank([](Rank& rank) { rank.optimizers->unscale(rank.scaler); });
}

std::vector<Clipping> ShardedRanks::clip() {
  std::vector<Parameter*> all;
  for (const auto& rank : ranks_)
    for (Parameter* parameter : rank->parameters.pointers()) all.push_back(parameter);
  return train::clip(rule_, all);
}

int ShardedRanks::step() {
  on_every_rank([](Rank& rank) {
    rank.optimizers->step(rank.scaler);
    rank.scaler.update();
    rank.stepped = true;
    for (std::size_t k = 0; k < rank.optimizers->size(); ++k) rank.stepped &= rank.optimizers->stepped(k);
  });
  return static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->stepped; }));
}

void ShardedRanks::resume_at(std::span<const std::int64_t> updates) {
  for (const auto& rank : ranks_) rank->optimizers->resume_at(updates);
}

bool ShardedRanks::stepped(std::size_t k) const {
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const auto& rank) { return rank->optimizers->stepped(k); });
}

UpdateCounts ShardedRanks::counts() const {
  UpdateCounts out;
  for (const auto& rank : ranks_) out.add(rank->optimizers->counts());
  return out;
}

UpdateCounts ShardedRanks::counts(std::size_t i) const {
  UpdateCounts out;
  for (const auto& rank : ranks_) out.add(rank->optimizers->counts(i));
  return out;
}

void ShardedRanks::reset_counts() {
  for (const auto& rank : ranks_) rank->optimizers->reset_counts();
}

bool ShardedRanks::agree() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const auto& rank) {
    return rank->scaler.get_scale() == ranks_.front()->scaler.get_scale() && rank->stepped == ranks_.front()->stepped;
  });
}

}  // namespace ampcheck::checks::train
