// SPDX-License-Identifier: Apache-2.0
#include "src/amp/autocast.h"

#include <cstring>
#include <map>
#include <mutex>

#include "src/amp/blocks.h"
#include "src/amp/error.h"
#include "src/amp/grad_mode.h"

namespace ampcheck {

namespace {

struct ThreadState {
  std::array<AutocastState, kAutocastDevices> states;
  int nesting = 0;
  std::uint64_t outermost =
      0;  ///< number of the region that is not inside another, here or where this thread's regions come from
  ThreadState() {
    for (int device = 0; device < kAutocastDevices; ++device)
      states[static_cast<std::size_t>(device)].dtype = default_autocast_dtype(static_cast<AutocastDevice>(device));
  }
};

ThreadState& thread_state() {
  thread_local ThreadState state;
  return state;
}

AutocastState& state_of(AutocastDevice device) { return thread_state().states[static_cast<std::size_t>(device)]; }

/// One cached cast. The source is held, so that its address cannot come to mean another tensor.
struct Cached {
  Tensor source, cast;
};

/// By the outermost region that they were made in, which shares them with all threads that were handed it.
struct Cache {
  std::mutex mutex;
  std::map<std::uint64_t, std::map<std::pair<const void*, Dtype>, Cached>> regions;  ///< those that are open
  std::uint64_t next = 0;
};

Cache& cache() {
  static Cache shared;
  return shared;
}

constexpr char kBanned[] =
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
    "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
    "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
    "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
    "safe to autocast.";

/// torch's at::autocast::prioritize, argument by argument: an error depends on their order.
Dtype prioritized(Dtype low, std::span<const Dtype> inputs) {
  Dtype current = low;
  for (const Dtype next : inputs) {
    if (!is_autocast_eligible(next)) continue;
    if (current == Dtype::fp32 || next == Dtype::fp32)
      current = Dtype::fp32;
    else if (next != low)
      throw AmpError("RuntimeError", "Unexpected floating ScalarType in at::autocast::prioritize");
  }
  return current;
}

}  // namespace

AutocastState autocast_state(AutocastDevice device) { return state_of(device); }
int autocast_nesting() { return thread_state().nesting; }

Autocast::Autocast(AutocastDevice device, const AutocastOptions& options) : device_(device), before_(state_of(device)) {
  AutocastState state = before_;
  state.dtype = options.dtype.value_or(before_.dtype);
  state.enabled = options.enabled;
  state.cache_enabled = options.cache_enabled.value_or(before_.cache_enabled);
  if (device == AutocastDevice::cpu && state.enabled && state.dtype != Dtype::bf16 && state.dtype != Dtype::fp16) {
    warning_ =
        "In CPU autocast, but the target dtype is not supported. Disabling autocast.\n"
        "CPU Autocast only supports dtypes of torch.bfloat16, torch.float16 currently.";
    state.enabled = false;
  }
  state_of(device) = state;
  if (thread_state().nesting++ > 0) return;
  const std::lock_guard lock(cache().mutex);
  cache().regions[thread_state().outermost = ++cache().next];
}

Autocast::~Autocast() {
  state_of(device_) = before_;
  if (--thread_state().nesting > 0) return;
  const std::lock_guard lock(cache().mutex);
  cache().regions.erase(thread_state().outermost);
}

AutocastSnapshot::AutocastSnapshot()
    : states_(thread_state().states), nesting_(thread_state().nesting), outermost_(thread_state().outermost) {}

AutocastPropagation::AutocastPropagation(const AutocastSnapshot& snapshot) {
  thread_state().states = snapshot.states_;
  thread_state().nesting = snapshot.nesting_;
  thread_state().outermost = snapshot.outermost_;
}

AutocastPropagation::~AutocastPropagation() {
  thread_state().states = before_.states_;
  thread_state().nesting = before_.nesting_;
  thread_state().outermost = before_.outermost_;
}

CastDecision decide_casts(CastPolicy policy, const AutocastState& state, std::span<const Dtype> inputs,
                          std::optional<Dtype> dtype, CallForm form) {
  CastDecision decision;
  decision.policy = state.enabled && form == CallForm::functional ? policy : CastPolicy::unlisted;
  decision.inputs.assign(inputs.begin(), inputs.end());
  decision.narrowed.assign(inputs.size(), false);
  decision.dtype = dtype;
  std::optional<Dtype> target;
  switch (decision.policy) {
    case CastPolicy::lower_precision_fp: target = state.dtype; break;
    case CastPolicy::fp32: target = Dtype::fp32; break;
    case CastPolicy::promote: target = prioritized(state.dtype, inputs); break;
    case CastPolicy::fp32_set_opt_dtype:
      if (!dtype && !inputs.empty() && is_autocast_eligible(inputs[0])) decision.dtype = Dtype::fp32;
      break;
    case CastPolicy::fp32_append_dtype:
      if (!dtype && !inputs.empty()) decision.dtype = is_autocast_eligible(inputs[0]) ? Dtype::fp32 : inputs[0];
      break;
    case CastPolicy::banned: throw AmpError("RuntimeError", kBanned);
    case CastPolicy::unlisted: break;
  }
  if (!target) return decision;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!is_autocast_eligible(inputs[i])) continue;
    decision.inputs[i] = *target;
    decision.narrowed[i] = format(inputs[i]).max_finite() > format(*target).max_finite() ||
                           format(inputs[i]).precision > format(*target).precision;
  }
  return decision;
}

CastDecision decide_casts(AutocastDevice device, std::string_view op, std::span<const Dtype> inputs,
                          std::optional<Dtype> dtype, CallForm form) {
  return decide_casts(cast_policy(device, op), state_of(device), inputs, dtype, form);
}

Dtype promoted_dtype(std::span<const Dtype> inputs) {
  std::optional<Dtype> result;
  for (const Dtype next : inputs) {
    if (!result || *result == next) {
      result = next;
    } else if (!is_float(*result) || !is_float(next)) {
      if (is_float(*result)) continue;
      if (is_float(next))
        result = next;
      else
        result = bytes(next) > bytes(*result) ? next : *result;
    } else if (*result == Dtype::fp64 || next == Dtype::fp64) {
      result = Dtype::fp64;
    } else {
      if (bytes(*result) == 1 || bytes(next) == 1)
        throw AmpError("RuntimeError", "Promotion for Float8 Types is not supported");
      result = Dtype::fp32;
    }
  }
  if (!result) throw Error("[autocast] promoted dtype, got no inputs, want at least one");
  return *result;
}

Tensor cast_tensor(const Tensor& tensor, Dtype dtype) {
  if (tensor.dtype() == dtype) return tensor;
  Tensor cast = Tensor::uninitialized(dtype, tensor.shape());
  double buffer[kBlock];
  for (std::int64_t at = 0; at < tensor.count(); at += kBlock) {
    const std::int64_t n = std::min<std::int64_t>(kBlock, tensor.count() - at);
    load_block(tensor.view(), at, n, buffer);
    store_block(cast.view(), at, n, buffer);
  }
  return cast;
}

bool keeps_cast(AutocastDevice device, const CastSource& source, Dtype dtype) {
  const AutocastState& state = state_of(device);
  return state.enabled && state.cache_enabled && dtype == state.dtype && source.tensor.dtype() == Dtype::fp32 &&
         source.requires_grad && source.is_leaf && !source.is_view && !inference_mode() &&
         source.tensor.count() > 0;  // without elements an address names no tensor
}

Tensor autocast_cast(AutocastDevice device, const CastSource& source, Dtype dtype,
                     const std::function<Tensor()>& make) {
  const std::pair<const void*, Dtype> key{source.tensor.data(), dtype};
  const bool kept = keeps_cast(device, source, dtype);
  const auto find = [&]() -> Cached* {
    const auto region = cache().regions.find(thread_state().outermost);
    return region == cache().regions.end() ? nullptr
                                           : &region->second[key];  // else it ended before a thread that was handed it
  };
  if (kept) {
    const std::lock_guard lock(cache().mutex);
    if (const Cached* entry = find(); entry != nullptr && entry->cast.defined()) return entry->cast;
  }
  Tensor cast = make ? make() : cast_tensor(source.tensor, dtype);
  if (!kept) return cast;
  const std::lock_guard lock(cache().mutex);
  Cached* const entry = find();
  if (entry == nullptr) return cast;
  if (!entry->cast.defined()) *entry = {source.tensor, std::move(cast)};
  return entry->cast;
}

namespace {

template <class Visit>
void each_cached(const Visit& visit) {
  const std::lock_guard lock(cache().mutex);
  for (const auto& [region, casts] : cache().regions)
    for (const auto& [key, entry] : casts)
      if (entry.cast.defined()) visit(entry);
}

}  // namespace

void clear_autocast_cache() {
  const std::lock_guard lock(cache().mutex);
  for (auto& [region, casts] : cache().regions) casts.clear();
}

std::size_t cached_casts() {
  std::size_t count = 0;
  each_cached([&](const Cached&) { ++count; });
  return count;
}

std::int64_t cached_cast_bytes() {
  std::int64_t total = 0;
  each_cached([&](const Cached& entry) { total += entry.cast.count() * bytes(entry.cast.dtype()); });
  return total;
}

std::size_t stale_casts() {
  std::size_t stale = 0;
  each_cached([&](const Cached& entry) {
    const Tensor now = cast_tensor(entry.source, entry.cast.dtype());
    const auto size = static_cast<std::size_t>(now.count()) * static_cast<std::size_t>(bytes(now.dtype()));
    stale += std::memcmp(now.data(), entry.cast.data(), size) != 0;
  });
  return stale;
}

CustomForward::CustomForward(AutocastDevice device, std::optional<Dtype> cast_inputs) {
  const AutocastState state = autocast_state(device);
  context_ = {device, state.enabled && !cast_inputs, state.dtype};
  if (!cast_inputs || !state.enabled) return;
  cast_ = cast_inputs;
  AutocastOptions off;
  off.enabled = false;
  off_.emplace(device, off);
}

Dtype CustomForward::input_dtype(Dtype dtype) const { return cast_ && is_autocast_eligible(dtype) ? *cast_ : dtype; }

CustomBackward::CustomBackward(const CustomOpContext& context)
    : region_(context.device, AutocastOptions{context.dtype, context.fwd_used_autocast, {}}) {}

}  // namespace ampcheck
