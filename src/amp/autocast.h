// SPDX-License-Identifier: Apache-2.0
// torch.autocast: regions, the cast decision for an op's arguments, the weight-cast cache, custom_fwd and custom_bwd.
//
// What cannot go wrong here and does in torch: a region is a scope, so it cannot be closed out of order or entered
// twice (both leave autocast on in torch); the cache's key holds the dtype (torch serves an inner region the outer
// dtype's weight); no thread clears what is cached for another's region that is still open (torch has one cache for all
// threads, so that how often a weight is cast depends on their timing). What stays as in torch: a cached cast does not
// see an in-place update of its weight until the cache is cleared; stale_casts() tells.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/amp/autocast_tables.h"
#include "src/tensor.h"

namespace ampcheck {

struct AutocastState {
  bool enabled = false;
  Dtype dtype = Dtype::bf16;  ///< kept from an enclosing region where enabled is false
  bool cache_enabled = true;
};

/// This thread's state for a device. A new thread starts disabled.
AutocastState autocast_state(AutocastDevice device);
/// Regions open on this thread, disabled ones too.
int autocast_nesting();

struct AutocastOptions {
  std::optional<Dtype> dtype;  ///< none: the enclosing region's, outermost the device's default
  bool enabled = true;
  std::optional<bool> cache_enabled;  ///< none: as it is
};

/// A region in that dtype; fp32: without autocast.
inline AutocastOptions autocast_in(Dtype dtype) {
  return dtype == Dtype::fp32 ? AutocastOptions{.enabled = false} : AutocastOptions{.dtype = dtype};
}

/// A region: from construction to the end of the scope, also when an exception leaves it.
/// On the CPU a dtype other than bf16 and fp16 gives a disabled region and a warning, as in torch.
class Autocast {
 public:
  explicit Autocast(AutocastDevice device, const AutocastOptions& options = {});
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  /// torch's text; empty if there is none.
  const std::string& warning() const { return warning_; }

 private:
  AutocastDevice device_;
  AutocastState before_;
  std::string warning_;
};

/// The states of all devices on this thread, to be handed to another: one thread per device needs them.
class AutocastSnapshot {
 public:
  AutocastSnapshot();

 private:
  friend class AutocastPropagation;
  std::array<AutocastState, kAutocastDevices> states_;
  int nesting_;
  std::uint64_t outermost_;
};

/// Makes a snapshot this thread's state for the scope.
class AutocastPropagation {
 public:
  explicit AutocastPropagation(const AutocastSnapshot& snapshot);
  ~AutocastPropagation();
  AutocastPropagation(const AutocastPropagation&) = delete;
  AutocastPropagation& operator=(const AutocastPropagation&) = delete;

 private:
  AutocastSnapshot before_;
};

/// work, bound to the regions that are open where this is called; run it on any thread.
template <class Work>
auto with_autocast(Work work) {
  return [snapshot = AutocastSnapshot(), work = std::move(work)](auto&&... arguments) {
    const AutocastPropagation here(snapshot);
    return work(std::forward<decltype(arguments)>(arguments)...);
  };
}

// Decision
// --------------------------------------------------------------------------------------------------------------------

/// Floating point and not fp64. (torch also asks for the region's device: give only arguments that are there.)
inline bool is_autocast_eligible(Dtype dtype) { return is_float(dtype) && dtype != Dtype::fp64; }

/// In-place and out= calls bypass autocast.
enum class CallForm : std::uint8_t { functional, in_place, out };

struct CastDecision {
  CastPolicy policy = CastPolicy::unlisted;  ///< unlisted if disabled or bypassed
  std::vector<Dtype> inputs;                 ///< what each argument is after casting
  std::optional<Dtype> dtype;                ///< the dtype argument: given by the caller, or set by the policy
  std::vector<bool>
      narrowed;  ///< a wider or foreign floating dtype went into fewer bits: 70000 becomes infinite in fp16, silently
};

/// What autocast does to a call. dtype: the caller's explicit dtype= argument, which wins.
/// Throws AmpError (RuntimeError): a banned op, with torch's text; a foreign 16-bit argument to a promoting op.
CastDecision decide_casts(CastPolicy policy, const AutocastState& state, std::span<const Dtype> inputs,
                          std::optional<Dtype> dtype = {}, CallForm form = CallForm::functional);
/// The same for an op by name in this thread's region.
CastDecision decide_casts(AutocastDevice device, std::string_view op, std::span<const Dtype> inputs,
                          std::optional<Dtype> dtype = {}, CallForm form = CallForm::functional);

/// torch's native promotion of tensors of rank >= 1: fp64 over fp32 over 16 bits, fp16 with bf16 gives fp32, floats
/// over integers.
Dtype promoted_dtype(std::span<const Dtype> inputs);

// Casting with the cache
// ------------------------------------------------------------------------------------------------------

/// A tensor and what decides whether its cast is kept.
struct CastSource {
  Tensor tensor;
  bool requires_grad = false, is_leaf = true, is_view = false;
};

/// The tensor in another dtype, rounded to nearest even; the tensor itself if it has it.
Tensor cast_tensor(const Tensor& tensor, Dtype dtype);

/// Whether the cache keeps its cast to `dtype`: in an enabled region of that dtype with its cache on, of an fp32 leaf
/// that requires a gradient and is no view, outside of InferenceMode.
bool keeps_cast(AutocastDevice device, const CastSource& source, Dtype dtype);
/// The same through the cache, if it keeps this cast: until the outermost region ends, for all threads that were handed
/// it. `make`: casts what is not there; null: cast_tensor.
Tensor autocast_cast(AutocastDevice device, const CastSource& source, Dtype dtype,
                     const std::function<Tensor()>& make = nullptr);
/// For all threads, as in torch.
void clear_autocast_cache();
std::size_t cached_casts();
/// Bytes held by cached casts.
std::int64_t cached_cast_bytes();
/// Cached casts whose weight has changed since (compares all their elements).
std::size_t stale_casts();

// custom_fwd and custom_bwd
// ---------------------------------------------------------------------------------------------------

/// What a custom op's forward leaves for its backward.
struct CustomOpContext {
  AutocastDevice device = AutocastDevice::cpu;
  bool fwd_used_autocast = false;
  Dtype dtype = Dtype::bf16;
};

/// torch.amp.custom_fwd for the scope of a forward. Without cast_inputs the region stays as it is and nothing is cast.
/// With it, inside an enabled region: eligible inputs are cast to it and autocast is off within; outside, nothing
/// happens.
class CustomForward {
 public:
  explicit CustomForward(AutocastDevice device, std::optional<Dtype> cast_inputs = {});
  const CustomOpContext& context() const { return context_; }
  /// What an input of this dtype becomes.
  Dtype input_dtype(Dtype dtype) const;
  Tensor input(const Tensor& tensor) const { return cast_tensor(tensor, input_dtype(tensor.dtype())); }

 private:
  CustomOpContext context_;
  std::optional<Dtype> cast_;
  std::optional<Autocast> off_;
};

/// torch.amp.custom_bwd for the scope of a backward: the state its forward ran in.
class CustomBackward {
 public:
  explicit CustomBackward(const CustomOpContext& context);

 private:
  Autocast region_;
};

}  // namespace ampcheck
