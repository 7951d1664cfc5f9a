// SPDX-License-Identifier: Apache-2.0
// Watches a run: what became zero or infinite where the exact value is neither, how large the error of each op is,
// where non-finite values come from and where they end, and which loss scales would have held the gradients.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checks/models/fp64_tape.h"
#include "checks/train/event.h"
#include "checks/train/gradient_range.h"
#include "checks/train/kept_errors.h"
#include "checks/train/noise.h"
#include "src/amp/tensor_stats.h"

namespace ampcheck::checks::train {

/// What an op does to non-finite values.
enum class FaultRole : std::uint8_t { none, producer, propagator, killer };
const char* name(FaultRole role);

/// What one tensor met, against exact values: the formula at the op's own inputs, or of a cast the tensor before.
struct Tally {
  std::int64_t tensors = 0, elements = 0;
  std::int64_t nonzero = 0;       ///< exact values above noise_of()
  std::int64_t flushed = 0;       ///< of these, zeros for what is smaller than the smallest subnormal
  std::int64_t overflowed = 0;    ///< elements that are not finite where the exact value is
  double error2 = 0, exact2 = 0;  ///< sums of squares of the local error and of the exact values, of finite elements
  double unscaled2 = 0;           ///< sum of squares of the exact values without scale
  double carried_error2 = 0, carried2 = 0;  ///< the same against the fp64 run, gradients without their scale
  std::int64_t intended = 0,
               stagnant = 0;  ///< optimizer: elements with a gradient, and of these those that did not move
  /// forward, with both shadows: how far the error made here moves the loss, to first order: the sum over the elements
  /// of error times fp64 cotangent. Its square summed over tensors, and the product of the two norms: the most that
  /// errors of that size could do.
  double loss_error = 0, loss_error2 = 0, loss_reach = 0;
  /// The same for the 2-norm of the loss's gradient by all parameters, of backward tensors too.
  double norm_error = 0, norm_error2 = 0;
  /// Logits of a cross-entropy, with the fp64 run: rows; those whose argmax is another than the fp64 run's; those where
  /// it could be: the two largest fp64 logits are no further apart than twice the largest error of the row.
  std::int64_t decisions = 0, flipped = 0, undecided = 0;
  double least_margin = 0, margins = 0,
         radii = 0;  ///< the smallest difference of the two largest; sums of it and of the largest errors

  void add(const Tally& other);
  double flushed_share() const { return nonzero > 0 ? static_cast<double>(flushed) / static_cast<double>(nonzero) : 0; }
  double local_error() const;  ///< relative, in the 2-norm
  double carried_error() const;
  Sizes sizes() const;
};

/// An op that made finite values non-finite, or let non-finite ones vanish.
struct FaultEvent {
  int step = 0;
  FaultRole role = FaultRole::none;
  TensorKey where;
};

/// Where a derivative has what belongs to that tensor; null where it has nothing: forward the op's output and what was
/// cast, backward what an op adds to its input's cotangent.
const std::vector<double>* derivative_at(const models::GradientDerivative& of, const models::StepRecord& record,
                                         Phase phase, bool cast, std::string_view op, std::string_view tensor);

class Watch final : public Observer {
 public:
  /// Hears of each tensor after it was looked at, with its own statistics.
  using Listener = std::function<void(const Event&, const TensorKey&, const Tally&, FaultRole, const TensorStats&)>;

  /// `exact`: local shadows; without them casts alone are compared.
  explicit Watch(bool exact, Sampling sampling = {}) : exact_(exact), sampling_(std::move(sampling)) {}
  void listen(Listener listener) { listener_ = std::move(listener); }
  /// Hears of numbers that the host puts in late.
  void listen_to_moves(std::function<void(const LateMove&)> listener) { move_listener_ = std::move(listener); }

  /// Hears of what is computed twice.
  void listen_to_twice(std::function<void(const TwiceComputed&)> listener) { twice_listener_ = std::move(listener); }

  /// `carried`: the same micro-batch of the fp64 run, or null. It outlives the step. `loss_weight`: its cotangents are
  /// those of that times the loss; `share`: of a micro-batch in the step's gradient.
  void begin(int step, const models::StepRecord* carried, bool first_micro_batch, double loss_weight = 1,
             double share = 1, int batch = 0);
  /// The backward that follows is of one loss of several: what its gradients are compared with, or null.
  void of_loss(const models::StepRecord* carried) { carried_ = carried; }
  /// Keeps the errors of the steps from now on, or no more: five times as many numbers as the steps write.
  void keep_errors(bool on) { keeps_errors_ = on; }
  bool keeps_errors() const { return keeps_errors_; }
  const KeptErrors& errors() const { return errors_; }
  bool wants(std::string_view op) const override;
  bool wants_exact(std::string_view op) const override { return exact_ && wants(op); }
  bool wants_cancellation() const override { return listener_ != nullptr; }
  bool wants_inputs() const override { return keeps_errors_ && carried_ != nullptr; }
  void see_sum(const GradientSum& sum) override { errors_.add_sum(sum, batch_); }
  bool wants_twice() const override { return twice_listener_ != nullptr; }
  void see_twice(const TwiceComputed& pair) override { twice_listener_(pair); }
  Seen see(const Event& event) override;
  void moved_late(const LateMove& move) override {
    if (move_listener_) move_listener_(move);
  }

  /// Of the tensors of the last step.
  std::map<TensorKey, Tally> of_step() const;
  const std::map<TensorKey, Tally>& of_run() const { return of_run_; }
  /// After the update. Steps that a scaler skips may be many: of their backwards the first one's faults are kept.
  void end(bool skipped);
  /// In their order, of each step the first of each role and phase; no more than kMostFaults.
  const std::vector<FaultEvent>& faults() const { return faults_; }
  /// Gradients that this run keeps in 16 bits, between ranks too: by element the smaller of the exact value and the
  /// fp64 run's, as far as they are known. What a pass has flushed earlier is missing in its exact values: from there
  /// on the fp64 run's alone, and of what is flushed itself no more than this scale flushes. By TensorKey::str().
  const std::map<std::string, GradientRange>& ranges() const { return ranges_; }

  static constexpr std::size_t kMostFaults = 64;

 private:
  const std::vector<double>* carried_of(const Event& event) const;
  const std::vector<double>* cotangent_of(const Event& event) const;
  struct Known;
  Known& place_of(const Event& event);
  FaultRole note_fault(const Event& event, const TensorKey& key, bool finite);
  struct Block;
  void add_range(GradientRange& range, const Event& event, const Block& block) const;
  struct Shadows;
  std::optional<TensorStats> statistics_of(const Event& event) const;
  Shadows shadows_of(const Event& event, Known& place);
  std::optional<ShadowStats> compare_cast(const Event& event, const Shadows& with, Tally& tally) const;
  void compare_exact(const Event& event, const Shadows& with, std::int64_t at, std::int64_t n, const double* got,
                     Tally& tally, double& adjoint2) const;
  double compare_all(const Event& event, const Shadows& with, Tally& tally) const;
  void conclude(const Event& event, const Shadows& with, double adjoint2, Tally& tally);

  bool exact_;
  Sampling sampling_;
  Listener listener_;
  std::function<void(const LateMove&)> move_listener_;
  std::function<void(const TwiceComputed&)> twice_listener_;
  int step_ = 0, batch_ = 0;
  bool keeps_errors_ = false;
  KeptErrors errors_;  ///< of the step
  double loss_weight_ = 1, share_ = 1;
  bool pass_lost_ = false, step_lost_ = false;  ///< a gradient was flushed in this backward pass, or in any of the step
  std::string logits_;                          ///< the call whose output a cross-entropy reads
  const models::StepRecord* carried_ = nullptr;
  /// Where what belongs to a tensor is, found once: steps name the same tensors in the same order.
  struct Known {
    const TensorKey* key = nullptr;
    Tally of_step = {};
    Tally* of_run = nullptr;
    GradientRange* range = nullptr;
  };
  std::map<TensorKey, Known> places_;
  std::vector<Known*> order_;
  std::size_t next_ = 0;  ///< in order_
  std::map<TensorKey, Tally> of_run_;
  std::map<std::string, GradientRange> ranges_;
  GradientRange range_of_event_;  ///< for a listener
  std::vector<FaultEvent> faults_;
  bool knows_skip_ = false;  ///< faults_ has those of a skipped step
};

}  // namespace ampcheck::checks::train
