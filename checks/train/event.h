// SPDX-License-Identifier: Apache-2.0
// What happens in a training step, in its order: each tensor that an op, a cast, the sum over ranks, the unscaling, the
// clipping or the optimizer wrote, as an observer sees it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/tensor.h"

namespace ampcheck {
struct ShadowStats;
struct TensorStats;
}  // namespace ampcheck

namespace ampcheck::checks::train {

class GradientRange;

enum class Phase : std::uint8_t { forward, backward, all_reduce, unscale, clip, optimizer };
inline constexpr int kPhases = 6;
/// A gradient on its way to the parameter, between ranks too.
inline bool is_gradient(Phase phase) { return phase == Phase::backward || phase == Phase::all_reduce; }
/// "forward", "backward", ...
const char* name(Phase phase);

/// A recorded run of more than kRecordWhole steps is looked at in full at every kRecordEvery-th, unless told otherwise.
/// A step with its trace costs up to 1.7 times as much, with local shadows five times (ampcheck_bench, train/): over
/// fifty steps 2 % and 10 %.
inline constexpr int kRecordEvery = 50, kRecordWhole = 100;
/// Of a recorded run with both shadows every so many-th step is asked for the errors of its gradients, which cost as
/// much as ten steps of the fp64 run or more.
inline constexpr int kGradientErrorsEvery = 10;

/// Which steps and ops are looked at.
struct Sampling {
  int every = 1, from = 0;  ///< steps from, from + every, ...
  std::string ops = "*";    ///< pattern with * and ? of names of ops and of parameters ("linear_1", "layer0.weight")

  bool step(int number) const { return number >= from && (number - from) % every == 0; }
};

/// One tensor that was just written. Views are valid during the call alone.
struct Event {
  int step = 0;
  int rank = 0;  ///< forward and backward: which rank ran it
  Phase phase = Phase::forward;
  bool cast = false;        ///< the tensor is another one in another dtype; `op` is the op that asked for it
  std::string_view op;      ///< "linear_1", or a parameter's name from unscale on
  std::string_view layer;   ///< name of the op's trained tensors, "layer0"; empty without one
  std::string_view tensor;  ///< "y", "dweight"; of a cast what is cast
  TensorView got;
  Dtype from = Dtype::fp32;  ///< of a cast: the dtype before
  int source =
      -1;  ///< forward: number in its graph of the tensor that is cast, or of an op's output; a reshape keeps it
  TensorView exact;  ///< local shadow, fp64: the formula at the op's own inputs; of a narrowing cast what was cast;
                     ///< data null: none
  std::optional<double> largest_exact;  ///< its largest finite magnitude, where somebody has looked
  TensorView
      narrow;  ///< of a backward cast to a wider format what was cast, and its statistics, where a watch has them
  const TensorStats* narrow_stats = nullptr;
  const ShadowStats* shadow = nullptr;  ///< of got against exact, where a watch has them already
  const GradientRange* range =
      nullptr;  ///< of a gradient in 16 bits its exact values without the loss scale, where a watch has counted them
  /// all_reduce in 16 bits: of each element's exact mean and the largest number that a rank sent the smaller magnitude,
  /// below which nothing arrives; and the largest magnitude that a sum may have on its way. With the scale.
  std::span<const double> sent;
  double most_sent = 0;
  std::span<const double> carried;             ///< the fp64 run's own; of all_reduce and later, where there is one
  double cancelled = -1, most_cancelled = -1;  ///< forward, with a local shadow, if asked for: bits that the op loses
                                               ///< (checks/models/cancellation.h); below 0: not known
  double scale = 1;                            ///< gradients: what they are multiplied by
  bool by_gradient = false;                    ///< a gradient by a gradient, of which the loss scale cancels
  std::int64_t intended = 0,
               stagnant = 0;  ///< optimizer: elements with a gradient, and of these those that stayed what they were
  /// Optimizer: of masters, elements meant to move whose copy stayed; elements whose second moment is zero beside a
  /// gradient; or whose eps is.
  std::int64_t copy_stagnant = 0, second_moment_zero = 0, epsilon_zero = 0;
  /// If asked for: an op's inputs as its kernel read them, and backward the incoming gradient in the output's shape.
  const std::vector<std::pair<std::string, TensorView>>* inputs = nullptr;
  TensorView cotangent;
  bool inputs_finite = true;     ///< every element of every input is finite, of a backward op those of the forward too
  bool cotangent_finite = true;  ///< backward: of what it passes on; an input's values a backward may not need at all

  bool has_exact() const { return exact.data != nullptr && exact.count() > 0; }
};

/// fp64 values as a tensor of that shape, for reading alone.
TensorView view_of(std::span<const double> values, const Shape& shape);

/// Every element is finite; any dtype of floating point.
bool all_finite(const TensorView& view);

/// fp64 or fp32, in one pass: the largest finite magnitude, 0 without one, and whether every element is finite.
struct Magnitudes {
  double largest_finite = 0;
  bool all_finite = true;
};
Magnitudes magnitudes(const TensorView& view);

/// The host puts numbers into the device's memory in the middle of a pass, and so waits first until the device is idle.
struct LateMove {
  int step = 0;
  const char* what = "";      ///< "data", "integers" of an op, or the "map" of moved elements
  std::string_view after;     ///< the call before; empty: none by name
  std::int64_t launched = 0;  ///< kernels of this pass before it
  std::int64_t bytes = 0;
};

/// Two gradients of one tensor that were added.
struct GradientSum {
  std::string_view of;     ///< "layer0.weight", or of an op's output the op: "relu_1"
  bool parameter = false;  ///< which of the two
  TensorView got, first, second;
  double scale = 1;  ///< what all three are multiplied by
};

/// An op's output that was computed twice: in the forward, and again for the backward or by the inference.
struct TwiceComputed {
  int step = 0, rank = 0;
  bool inferred = false;  ///< the second is the inference's; no: what the backward goes by
  std::string_view op, layer;
  TensorView first, second;  ///< of the same shape
};

/// What an observer found in a tensor.
struct Seen {
  bool all_finite = true;
  std::shared_ptr<const TensorStats> stats = nullptr;  ///< of a gradient in 16 bits, if it took them
};

class Observer {
 public:
  Observer() = default;
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  virtual ~Observer() = default;
  /// Whether see() is to be called for the tensors of this op now, and whether with a local shadow.
  virtual bool wants(std::string_view op) const = 0;
  virtual bool wants_exact(std::string_view op) const = 0;
  /// Whether events with a local shadow are to say what cancels.
  virtual bool wants_cancellation() const { return false; }
  /// Whether events of ops are to have their inputs, and whether sums of gradients are told.
  virtual bool wants_inputs() const { return false; }
  virtual void see_sum(const GradientSum&) {}
  virtual bool wants_twice() const { return false; }
  virtual void see_twice(const TwiceComputed&) {}
  virtual Seen see(const Event& event) = 0;
  virtual void moved_late(const LateMove&) {}
};

}  // namespace ampcheck::checks::train
