// SPDX-License-Identifier: Apache-2.0
// Which op's error is in the error of each parameter's gradient, to first order. With d the direction of that error,
// the error's size is <d, low-precision gradient - fp64 gradient>, and an op's part of it <D, error made there>, where
// D is the derivative of <d, gradient> by what the op wrote: of a forward tensor through the whole backward, of a
// backward tensor through the rest of it. An op also makes something of the errors of its inputs that no derivative
// has: with inputs x' and incoming gradient g' for x and g it gives f(x') - f(x) - f'(x) (x' - x) more, and its
// gradients likewise. That is a mask or a maximum that falls otherwise, or a product of two errors. With the roundings
// of sums of gradients, which no op writes, all parts together are the size.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "checks/train/fp64_run.h"
#include "checks/train/watch.h"

namespace ampcheck::checks::train {

/// What the errors of one tensor, over the micro-batches and ranks of a step, are in the size of a gradient's error;
/// negative: they make it smaller.
struct GradientPart {
  TensorKey from;
  double moves = 0;
  double rounding =
      0;  ///< the most that rounding each of its elements once, or the gradient itself to fp32, could move it
};

struct GradientError {
  std::string parameter;
  double error = 0, size = 0;       ///< 2-norms of the error and of the fp64 gradient, of all ranks together, unscaled
  double apart = 0;                 ///< the part of weights that had come apart in earlier steps
  std::vector<GradientPart> parts;  ///< of the tensors that move it at all, in the order of the step
  std::vector<GradientPart> inherited;  ///< of ops, by their outputs: what they make of errors of their inputs beyond
                                        ///< their derivatives
  std::vector<std::pair<std::string, double>> sums;  ///< by what the gradients that were added are of
};

struct GradientErrorInputs {
  const StepRule& rule;
  double roundoff;  ///< of one rounding: that of the run's 16 bits, fp16's in an fp32 run
  const KeptErrors& errors;
  const std::vector<std::vector<double>>& apart;  ///< of each parameter, before the step: weights less the fp64 run's
};

/// Of the step that `fp64` just made and whose unscaled gradients `low` has; in the order of the parameters. None where
/// a gradient is not finite. Of rules without clipping and penalty. At the cost of two fp64 backwards for each
/// micro-batch and parameter.
std::vector<GradientError> gradient_errors(Fp64Run& fp64, ParameterSet& low, const GradientErrorInputs& inputs);

}  // namespace ampcheck::checks::train
