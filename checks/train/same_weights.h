// SPDX-License-Identifier: Apache-2.0
// The loss and its gradient in fp64 at the weights that the run has, step by step: what weights that have come apart
// explain in the comparison of whole runs, they do not explain here. How far rounding takes a gradient is measured: the
// step is repeated with every stored number moved by a last place, up, down or not at all, by chance.
#pragma once

#include <cstdint>
#include <vector>

#include "checks/train/event.h"
#include "checks/train/fp64_run.h"
#include "checks/train/run_finding.h"

namespace ampcheck::checks::train {

/// Moves the numbers of a tensor that was just written by a last place; zeros and what is not finite stay. Another
/// `replay`, other moves. The variance is six times that of rounding to nearest.
void nudge(const Event& event, std::uint64_t replay);

class SameWeights {
 public:
  static constexpr int kReplays = 8, kFirstSteps = 15;
  SameWeights(const Net& net, const StepRule& rule, std::uint64_t seed) : fp64_(net, rule, seed) {}

  /// The fp64 loss at these weights, on the batches of this step, and its gradient if it is asked for.
  void begin(int step, ParameterSet& parameters, bool gradient);
  /// Of this step nothing is compared.
  void leave_out();
  /// The gradient of a repetition, times the scale.
  void add_replay(ParameterSet& parameters, double scale);
  /// The run's own.
  void add_gradient(ParameterSet& parameters, double scale);
  /// `rounding`: how far rounding of the loss may take it.
  void add_loss(double loss, double rounding);

  std::vector<RunFinding> findings() const;
  /// Of the last step that was repeated: cosine of the angle between the gradients, and their sizes' ratio.
  double cosine() const { return cosine_; }
  double size() const { return size_; }

 private:
  std::vector<double> taken(ParameterSet& parameters, double scale) const;

  /// A gradient is a departure if it is that many times as far from fp64's as any repetition is from their middle, in
  /// kInARow repeated steps one after the other.
  static constexpr double kBeyond = 8;
  static constexpr int kInARow = 3;
  /// So many losses on one side and none on the other have odds of 2^-19.
  static constexpr int kOneSided = 20;

  Fp64Run fp64_;
  double loss_ = 0;
  int step_ = 0;
  bool compared_ = false;
  std::vector<double> gradient_;
  std::vector<std::vector<double>> replays_;
  int in_a_row_ = 0, departed_at_ = -1;
  double distance_ = 0, radius_ = 0, cosine_ = 1, size_ = 1;
  int above_ = 0, below_ = 0, first_ = -1;
  double gap_ = 0, rounding_ = 0;  ///< sums
};

}  // namespace ampcheck::checks::train
