// SPDX-License-Identifier: Apache-2.0
// Parameters, gradients and optimizer state sharded over the ranks (torch's FSDP, DeepSpeed's ZeRO stage 3): a rank
// owns one stretch of each parameter's elements. A step gathers the values for the forward and the backward, scatters
// the mean of the gradients, and unscales, checks and updates each shard by itself, every rank with an optimizer and a
// ShardedGradScaler of its own, which agree on what was found. Shards have the weights' dtype and the gradients theirs;
// fp32 masters of 16-bit weights are in the state of the optimizer that owns the shard.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "checks/train/clip_and_decay.h"
#include "checks/train/fp64_run.h"
#include "src/amp/sharded_grad_scaler.h"

namespace ampcheck::checks::train {

struct ShardingOptions {
  bool on = false;
  /// What a rank takes for the found flag of all, from its own and the agreed one: a planted fault. None: the agreed
  /// one.
  std::function<float(int rank, float own, float agreed)> believes = nullptr;
  /// The rule that a rank's optimizers follow: a planted fault. None: the run's.
  std::function<StepRule(int rank, const StepRule& rule)> follows = nullptr;
};

class ShardedRanks {
 public:
  /// Shards of what `whole` has: elements [r c, (r + 1) c) of n are rank r's, c = n / ranks rounded up, as in the
  /// ring's reduce-scatter.
  ShardedRanks(ParameterSet& whole, const StepRule& rule, const GradScalerOptions& scaler,
               const ShardingOptions& sharding);
  ~ShardedRanks();

  int ranks() const { return static_cast<int>(ranks_.size()); }
  ParameterSet& shards(int rank);
  GradScaler& scaler(int rank);
  OptimizerSet& optimizers(int rank);

  /// All-gather: the shards' values, or their gradients, into the whole tensors.
  void gather_values();
  void gather_gradients();
  /// The whole tensors' values, or gradients, to the ranks that own them: for gradients, with the sum over ranks, a
  /// reduce-scatter.
  void scatter_values();
  void scatter_gradients();
  /// On every rank, all at once: divides the shards' gradients by the scale, and agrees on what was found.
  void unscale();
  /// Clips by the norm of all shards together, if the rule says so.
  std::vector<Clipping> clip();
  /// The optimizer's step, unless something was found, the scaler's update and the schedule, on every rank. How many
  /// ranks stepped.
  int step();
  void resume_at(std::span<const std::int64_t> updates);
  /// Whether optimizer k of every rank moved something in the last step.
  bool stepped(std::size_t k) const;
  UpdateCounts counts() const;
  /// Of parameter i alone: elements with a gradient, and those of them that stayed what they were.
  UpdateCounts counts(std::size_t i) const;
  void reset_counts();
  /// Whether all ranks have the same scale: where not, they did not agree.
  bool agree() const;

 private:
  struct Rank;
  void on_every_rank(const std::function<void(Rank&)>& work);
  void copy(bool gradients, bool to_whole);

  ParameterSet& whole_;
  StepRule rule_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  struct AllReduce;
  std::unique_ptr<AllReduce> all_reduce_;
};

}  // namespace ampcheck::checks::train
