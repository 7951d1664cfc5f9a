// SPDX-License-Identifier: Apache-2.0
// What one update makes of a weight and its moments, by the optimizers' published rules, with the most that rounding in
// the declared formats may move it.
#pragma once

#include <cstdint>
#include <vector>

#include "checks/train/optimizer_choice.h"
#include "checks/train/rounded.h"

namespace ampcheck::checks::train {

/// One element before the update.
struct UpdateInput {
  static constexpr std::size_t kMostMoments = 2;
  double weight = 0;
  Rounded gradient;             ///< unscaled and clipped
  std::vector<double> moments;  ///< in the order of moment_names(); empty before the first update
};
struct UpdateResult {
  Rounded weight;
  std::vector<Rounded> moments;
};

class UpdateRuleBounds {
 public:
  /// `choice` with its defaults; `weights`: the format of what moves (masters are fp32).
  UpdateRuleBounds(const OptimizerChoice& choice, Dtype weights, Dtype first, Dtype second);
  std::vector<const char*> moment_names() const;
  /// `lr`: of this update; `number`: its number, from 1.
  UpdateResult operator()(const UpdateInput& input, double lr, std::int64_t number) const;

 private:
  Rounded stored(const Rounded& moment) const { return in_first_.settle(moment); }
  Rounded stored_square(const Rounded& moment) const { return in_second_.settle(moment); }
  UpdateResult sgd(const UpdateInput& input, Rounded g, double lr) const;
  UpdateResult adam(const UpdateInput& input, Rounded g, double lr, std::int64_t number) const;
  UpdateResult adagrad(const UpdateInput& input, Rounded g, double lr) const;
  UpdateResult rmsprop(const UpdateInput& input, Rounded g, double lr) const;

  OptimizerChoice choice_;
  Arithmetic in_, in_weights_, in_first_, in_second_;  ///< computed in, and stored in
};

}  // namespace ampcheck::checks::train
