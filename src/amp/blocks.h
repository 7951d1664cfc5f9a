// SPDX-License-Identifier: Apache-2.0
// Dense tensors by blocks that stay in the first cache: any storage in, numbers of the type that computes, and back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "src/rounding.h"
#include "src/tensor.h"

namespace ampcheck {

inline constexpr int kBlock = 1024;

/// The dtypes that parameters, gradients and moments may have.
inline bool is_computed(Dtype dtype) {
  return dtype == Dtype::fp32 || dtype == Dtype::fp64 || dtype == Dtype::fp16 || dtype == Dtype::bf16;
}

inline std::byte* element_at(const TensorView& view, std::int64_t at) {
  return static_cast<std::byte*>(view.data) + at * bytes(view.dtype);
}

/// Whether elements lie in memory as numbers of type T.
template <class T>
bool lies_as(const TensorView& view) {
  return view.dtype == (std::is_same_v<T, double> ? Dtype::fp64 : Dtype::fp32);
}

/// Where elements of type T already lie in memory, their address there; else `buffer`.
template <class T>
T* block_in_place(const TensorView& view, std::int64_t at, T* buffer) {
  return lies_as<T>(view) ? reinterpret_cast<T*>(element_at(view, at)) : buffer;
}

/// out[i] = element at + i; exact but for fp64 read as float, which rounds.
template <class T>
void load_block(const TensorView& view, std::int64_t at, std::int64_t n, T* out) {
  const auto count = static_cast<std::size_t>(n);
  if (lies_as<T>(view))
    std::memcpy(out, element_at(view, at), count * sizeof(T));
  else if (view.dtype == Dtype::fp32)  // to double: one instruction for several
    std::copy_n(reinterpret_cast<const float*>(element_at(view, at)), count, out);
  else
    decode(format(view.dtype), element_at(view, at), std::span<T>(out, count));
}

/// Element at + i = in[i], rounded once to nearest even; overflow goes to infinity.
template <class T>
void store_block(const TensorView& view, std::int64_t at, std::int64_t n, const T* in) {
  const auto count = static_cast<std::size_t>(n);
  if (lies_as<T>(view))
    std::memcpy(element_at(view, at), in, count * sizeof(T));
  else
    encode(format(view.dtype), {}, std::span<const T>(in, count), element_at(view, at));
}

}  // namespace ampcheck
