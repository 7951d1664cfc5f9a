// SPDX-License-Identifier: Apache-2.0
// What low precision did to a run: when it left the fp64 run, which gradients vanished where, and which scale would
// have kept them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checks/train/trainer.h"

namespace ampcheck::checks::train {

/// One tensor of a run with its tally.
struct Place {
  TensorKey where;
  Tally tally;
};

struct Diagnosis {
  std::vector<RunFinding> findings;    ///< Trainer::findings()
  std::optional<int> left_at;          ///< first step whose loss is not finite or beyond the spread of the fp64 seeds
  std::optional<FaultEvent> producer;  ///< first op that made finite values non-finite, skipped steps of a scaler aside
  std::optional<FaultEvent> caught;    ///< the first one in a step that the scaler skipped
  std::optional<FaultEvent> killer;
  std::vector<Place>
      vanished;  ///< gradients with elements flushed to zero, largest share first; without noise (checks/train/noise.h)
  std::vector<Place> least_exact;  ///< tensors by local error, largest first; without noise
  std::optional<Place> worst;      ///< worst_of() the run
  ScaleAdvice scale;
  std::vector<int> skipped;         ///< steps
  UpdateCounts updates;             ///< of all steps
  std::optional<int> disagreed_at;  ///< first step at which sharded ranks did not do the same

  /// Share of all non-zero gradient elements in 16 bits that became zero.
  double vanished_share = 0;
};

Diagnosis diagnose(const Trainer& trainer, std::span<const StepResult> steps);

/// The tensor that is worst: by what overflowed, then by the share of a gradient flushed to zero, then by local error.
/// Noise is left out.
std::optional<Place> worst_of(const std::map<TensorKey, Tally>& tallies);

}  // namespace ampcheck::checks::train
