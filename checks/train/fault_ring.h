// SPDX-License-Identifier: Apache-2.0
// The last steps before a fault in full detail, of a run that is sampled. A run has the same bits each time, so what is
// kept is not what every step met but two checkpoints in memory: after a fault the run goes from the older one again,
// and everything is looked at.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "checks/train/trace.h"
#include "checks/train/trainer.h"

namespace ampcheck::checks::train {

/// Skipped steps in a row that are a fault: a scale that comes down from where it began, or grew to, needs fewer.
inline constexpr int kStorm = 8;
/// Steps that are kept unless another number is asked for.
inline constexpr int kRingSteps = 10;

class FaultRing {
 public:
  /// `steps`: how many before and with that of the fault. A checkpoint every `interval` steps (`steps` at least) is
  /// what they cost.
  explicit FaultRing(int steps, int interval = kRecordEvery) : steps_(steps), interval_(std::max(steps, interval)) {}

  /// Before each step; its first call finds a prepared trainer.
  void keep(Trainer& trainer);
  /// After a step: whether it is the first of a fault: the loss is not finite or left the fp64 run's, or the kStorm-th
  /// skipped in a row.
  bool faulted(const StepResult& result);
  /// Runs the last steps again, writes to the trace what of them is not in it and returns the first of them. Nothing,
  /// and nothing is written, if the loss of `last` comes out different, which says that the run does not have the same
  /// bits each time.
  std::optional<int> write(const Trainer& trainer, const StepResult& last, TraceWriter& trace);

 private:
  struct Kept {
    int step = 0;
    std::string bytes;
  };
  int steps_, interval_,
      storm_ = 0,
      written_ = -1;  ///< written_: the last step that the trace got, since two faults may be near to one another
  bool left_ = false;
  std::optional<Kept> older_, newer_;
};

}  // namespace ampcheck::checks::train
