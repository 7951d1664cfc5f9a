// SPDX-License-Identifier: Apache-2.0
// One step from the same state: from the gradients that the backward passes gave, the step once more in fp64 (sum over
// micro-batches, mean over ranks, division by the loss scale, clipping, update from the same weights and moments), each
// stage from what the run had before it. What the run has after it may differ by no more than rounding in the declared
// formats can make.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checks/train/fp64_run.h"
#include "checks/train/ranks.h"
#include "checks/train/run_finding.h"
#include "checks/train/update_rule.h"

namespace ampcheck::checks::train {

/// What an optimizer did in a step: by the rule its rate and the number of the update, and whether it was made.
struct UpdateMade {
  double lr = 0;
  std::int64_t number = 1;
  bool stepped = true;
};

/// What a moment in 16 bits lost since the run began: beside the same averages of the same gradients in fp64.
struct MomentLoss {
  std::string name;  ///< torch's: exp_avg, exp_avg_sq, momentum_buffer, ...
  Dtype dtype = Dtype::fp32;
  std::int64_t elements = 0, zero = 0;  ///< not zero in fp64; of these, stored as zero
  double error = 0;                     ///< relative, in the 2-norm
  double median = 1;                    ///< of the stored ones by those in fp64
};

class StepCheck {
 public:
  StepCheck(const StepRule& rule, const ReduceOptions& reduce, Dtype weights);

  /// `checked`: whether this step is looked at at all.
  void begin(int step, bool checked);
  bool checks() const { return checked_; }
  /// Whether moments are in 16 bits and every step until now was checked.
  bool follows_moments() const { return follows_moments_; }
  /// What the backward of one micro-batch of a rank gave.
  void add_part(int rank, const std::string& parameter, const TensorView& gradient);
  /// The step's gradients after the sum over micro-batches and ranks.
  void summed(ParameterSet& parameters);
  /// After unscaling, where the optimizer does not divide by the scale itself.
  void unscaled(ParameterSet& parameters, double scale);
  /// After clipping, of a rule that clips.
  void clipped(ParameterSet& parameters);
  /// What is updated together: everything, or the shards of a rank.
  struct Part {
    const ParameterSet* parameters;
    const OptimizerSet* optimizers;
  };
  /// Before and after the update. `made`: by optimizer.
  void before_update(const std::vector<Part>& parts, double divided_by);
  void after_update(const std::vector<Part>& parts, const std::vector<UpdateMade>& made);
  /// Whether the step was rightly made or skipped. `scaler`: one that looks for what is not finite; `whose`: of
  /// several optimizers.
  void skipped(bool stepped, bool found_inf, bool scaler, const std::string& whose);

  /// Of moments in 16 bits; empty where a step was not checked.
  std::vector<MomentLoss> moment_losses(const std::vector<Part>& parts) const;
  /// One of each code, the first.
  const std::vector<RunFinding>& findings() const { return findings_; }

 private:
  struct Difference;
  struct Before {
    std::vector<double> weights, gradient;
    std::vector<std::vector<double>> moments;
  };
  void note(RunCode code, const std::string& where, const Difference& difference, const char* of_what);
  struct Parts {
    std::vector<double> sum, size;  ///< of the micro-batches; of their magnitudes
    int count = 0;
    Dtype dtype = Dtype::fp32;
  };
  static std::vector<Rounded> sum_of(const Parts& parts);
  std::vector<Rounded> mean_of(const std::map<int, Parts>& ranks) const;
  using OfPart = std::pair<std::size_t, std::string>;  ///< its number, and a parameter
  void compare_weights(const OfPart& whose, const Parameter& parameter, const OptimizerState& state,
                       const Before& before, const UpdateRuleBounds& update, const UpdateMade& made);
  void compare_part(std::size_t number, const Part& part, const std::vector<UpdateMade>& made);
  /// Of those that are clipped with optimizer k.
  double norm_of_gradients(std::size_t k) const;
  Rounded clip_factor(std::size_t k, ParameterSet& parameters) const;
  std::vector<std::vector<double>>& exact_moments(const OfPart& whose, const Before& before);

  StepRule rule_;
  ReduceOptions reduce_;
  std::vector<UpdateRuleBounds> updates_;  ///< by optimizer
  int step_ = 0;
  bool checked_ = false;
  std::map<std::string, std::map<int, Parts>> parts_;     ///< by parameter and rank
  std::map<std::string, std::vector<double>> gradients_;  ///< as they were at the last stage
  std::map<OfPart, Before> before_;
  bool follows_moments_ = false;
  std::map<OfPart, std::vector<std::vector<double>>> exact_;  ///< moments in fp64
  double divided_by_ = 1;
  std::vector<RunFinding> findings_;
};

}  // namespace ampcheck::checks::train
