// SPDX-License-Identifier: Apache-2.0
#include "checks/train/fault_ring.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "checks/train/checkpoint.h"

namespace ampcheck::checks::train {

void FaultRing::keep(Trainer& trainer) {
  if (newer_ && trainer.steps() < newer_->step + interval_) return;
  older_ = std::exchange(newer_, Kept{trainer.steps(), checkpoint_bytes(trainer)});
}

bool FaultRing::faulted(const StepResult& result) {
  storm_ = result.stepped ? 0 : storm_ + 1;
  const bool left = result.left(), begins = left && !left_;
  left_ = left;
  return begins || storm_ == kStorm;
}

std::optional<int> FaultRing::write(const Trainer& trainer, const StepResult& last, TraceWriter& trace) {
  const int first = std::max({last.step - steps_ + 1, written_ + 1, older_ ? older_->step : newer_->step});
  if (first > last.step) return first;
  const Kept& from = newer_->step <= first ? *newer_ : *older_;
  TrainOptions options = trainer.options();
  const Sampling recorded = std::exchange(options.sampling, {.every = 1, .from = first, .ops = options.sampling.ops});
  options.watched = true;
  Trainer again(options);
  resume(again, from.bytes, "the run's own checkpoint");
  trace.hold();
  again.watch()->listen(
      [&](const Event& e, const TensorKey& key, const Tally& tally, FaultRole role, const TensorStats& stats) {
        if (e.step >= first && !recorded.step(e.step)) trace.tensor(e, key, tally, role, stats);
      });
  StepResult result;
  while (again.steps() <= last.step) {
    result = again.step();
    if (result.step >= first && !recorded.step(result.step)) trace.step(result);
  }
  const bool same = result.loss == last.loss || (std::isnan(result.loss) && std::isnan(last.loss));
  trace.release(same);
  if (same) written_ = last.step;
  return same ? std::optional(first) : std::nullopt;
}

}  // namespace ampcheck::checks::train
