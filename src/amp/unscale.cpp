// SPDX-License-Identifier: Apache-2.0
#include "src/amp/unscale.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "src/amp/blocks.h"
#include "src/amp/error.h"
#include "src/parallel.h"

namespace ampcheck {

namespace {

constexpr std::int64_t kGrain = 1 << 16;

const char* torch_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::i32: return "Int";
    case Dtype::i64: return "Long";
    case Dtype::u8: return "Byte";
    case Dtype::e4m3fn: return "Float8_e4m3fn";
    case Dtype::e5m2: return "Float8_e5m2";
    case Dtype::fp64: return "Double";
    case Dtype::fp32: return "Float";
    case Dtype::fp16: return "Half";
    case Dtype::bf16: break;
  }
  return "BFloat16";
}

/// Adding one to an all-ones exponent carries into the sign bit: one addition and one or per element, which vectorise.
bool any_not_finite(const float* values, std::int64_t n) {
  std::uint32_t carry = 0;
  for (std::int64_t i = 0; i < n; ++i) carry |= (std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffu) + 0x00800000u;
  return (carry >> 31) != 0;
}
bool any_not_finite(const double* values, std::int64_t n) {
  std::uint64_t carry = 0;
  for (std::int64_t i = 0; i < n; ++i)
    carry |= (std::bit_cast<std::uint64_t>(values[i]) & ~(std::uint64_t{1} << 63)) + (std::uint64_t{1} << 52);
  return (carry >> 63) != 0;
}

/// Elements [begin, end) of a dense tensor; whether one was not finite.
template <class T>
bool unscale_dense(const TensorView& grad, float inv_scale, std::int64_t begin, std::int64_t end) {
  T buffer[kBlock];
  bool bad = false;
  for (std::int64_t at = begin; at < end; at += kBlock) {
    const std::int64_t n = std::min<std::int64_t>(kBlock, end - at);
    T* values = block_in_place(grad, at, buffer);
    if (values == buffer) load_block(grad, at, n, buffer);
    bad = any_not_finite(values, n) || bad;
    if (inv_scale == 1.0f) continue;
    const T factor = inv_scale;
    for (std::int64_t i = 0; i < n; ++i) values[i] *= factor;
    if (values == buffer) store_block(grad, at, n, buffer);
  }
  return bad;
}

template <class T>
bool unscale_strided(const TensorView& grad, float inv_scale) {
  bool bad = false;
  const std::int64_t n = grad.count();
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t at = grad.offset(i);
    T value;
    load_block(grad, at, 1, &value);
    bad = !std::isfinite(value) || bad;
    if (inv_scale == 1.0f) continue;
    value *= static_cast<T>(inv_scale);
    store_block(grad, at, 1, &value);
  }
  return bad;
}

template <class T>
bool unscale(const TensorView& grad, float inv_scale) {
  if (!grad.is_dense()) return unscale_strided<T>(grad, inv_scale);
  std::atomic<bool> bad = false;
  parallel_for(grad.count(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    if (unscale_dense<T>(grad, inv_scale, begin, end)) bad.store(true, std::memory_order_relaxed);
  });
  return bad.load();
}

void require_one_element(const TensorView& view, Dtype dtype, const std::string& what, const char* kind) {
  if (view.count() != 1) throw AmpError("RuntimeError", what + " must be a 1-element tensor.");
  if (view.dtype != dtype) throw AmpError("RuntimeError", what + " must be " + kind + " tensor.");
}

bool overlaps(const TensorView& view) {
  for (int axis = 0; axis < view.shape.rank; ++axis)
    if (view.shape[axis] > 1 && view.strides[axis] == 0) return view.count() != 0;
  return false;
}

}  // namespace

void check_and_unscale(std::span<const TensorView> grads, float inv_scale, float& found_inf) {
  for (const TensorView& grad : grads) {
    if (!is_computed(grad.dtype))
      throw AmpError("NotImplementedError",
                     std::string("\"_amp_foreach_non_finite_check_and_unscale_cpu\" not implemented for '") +
                         torch_name(grad.dtype) + "'");
    if (overlaps(grad))
      throw AmpError("RuntimeError",
                     "unsupported operation: more than one element of the written-to tensor refers to a single memory "
                     "location. Please clone() the tensor before performing the operation.");
    if (grad.dtype == Dtype::fp64 ? unscale<double>(grad, inv_scale) : unscale<float>(grad, inv_scale))
      found_inf = 1.0f;
  }
}

float inverse_scale(float scale) { return static_cast<float>(1.0 / static_cast<double>(scale)); }

void update_scale(float& scale, std::int32_t& tracker, float found_inf, double growth, double backoff,
                  std::int32_t interval) {
  if (found_inf != 0.0f) {
    scale = static_cast<float>(static_cast<double>(scale) * backoff);
    tracker = 0;
    return;
  }
  const auto successful = static_cast<std::int32_t>(static_cast<std::uint32_t>(tracker) + 1u);
  if (successful != interval) {  // equality, not >=: a tracker beyond the interval waits for the next backoff
    tracker = successful;
    return;
  }
  const auto grown = static_cast<float>(static_cast<double>(scale) * growth);
  if (std::isfinite(grown)) scale = grown;
  tracker = 0;
}

void check_and_unscale(std::span<const TensorView> grads, const TensorView& found_inf, const TensorView& inv_scale) {
  require_one_element(inv_scale, Dtype::fp32, "inv_scale", "a float");
  require_one_element(found_inf, Dtype::fp32, "found_inf", "a float");
  check_and_unscale(grads, *inv_scale.as<float>(), *found_inf.as<float>());
}

void update_scale(const TensorView& scale, const TensorView& tracker, const TensorView& found_inf, double growth,
                  double backoff, std::int32_t interval) {
  require_one_element(tracker, Dtype::i32, "growth_tracker", "an int");
  require_one_element(scale, Dtype::fp32, "current_scale", "a float");
  require_one_element(found_inf, Dtype::fp32, "found_inf", "a float");
  update_scale(*scale.as<float>(), *tracker.as<std::int32_t>(), *found_inf.as<float>(), growth, backoff, interval);
}

}  // namespace ampcheck
