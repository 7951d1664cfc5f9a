// SPDX-License-Identifier: Apache-2.0
// Which tensors of a run are noise: zero by a symmetry, as the gradient of a bias before a softmax, so that what they
// hold is the rounding of something larger, and what becomes of it says nothing about the format. One rule for all that
// names the worst of a run.
#pragma once

#include <array>
#include <map>
#include <optional>

#include "checks/train/event.h"

namespace ampcheck::checks::train {

/// Root mean squares of a tensor's exact values over the run, without scale: by the formula at the op's own inputs, and
/// by the fp64 run.
struct Sizes {
  std::optional<double> exact, fp64;
};

class Noise {
 public:
  /// All tensors first.
  void add(Phase phase, const Sizes& sizes);
  /// Where there is a fp64 run: what is below its own rounding (kNoiseShare) of the largest tensor of the phase. Else
  /// what is below fp32's, whose roundings an op's own inputs have.
  bool is(Phase phase, const Sizes& sizes) const;

 private:
  std::array<double, kPhases> exact_{}, fp64_{};  ///< largest
};

}  // namespace ampcheck::checks::train
