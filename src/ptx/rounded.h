// SPDX-License-Identifier: Apache-2.0
// Halves and bfloats as floats and back, and sums that are rounded once whatever the format: exact, without branches
// where a loop over lanes has to be vector code.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "src/ptx/lanes.h"

namespace ampcheck::ptx {

inline float widened(Half h) {
  const std::uint32_t magnitude = std::uint32_t{h.bits & 0x7fffu} << 13;
  // 2^112 moves the exponent, and makes subnormals normal; the all-ones exponent is set by hand.
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  const std::uint32_t bits = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : std::bit_cast<std::uint32_t>(scaled);
  return std::bit_cast<float>(bits | std::uint32_t{h.bits & 0x8000u} << 16);
}
inline float widened(BFloat h) { return std::bit_cast<float>(std::uint32_t{h.bits} << 16); }

/// To nearest, ties to even; every NaN becomes 0x7fff, as on a GPU.
inline Half narrowed(float x, Half) {
  const std::uint32_t all = std::bit_cast<std::uint32_t>(x), u = all & 0x7fffffffu, sign = all >> 16 & 0x8000u;
  const std::uint32_t normal = (u + 0xfffu + (u >> 13 & 1u) - (112u << 23)) >> 13;
  const std::uint32_t small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(u) + 0.5f) - 0x3f000000u;
  const std::uint32_t finite = u < 0x38800000u ? small : u >= 0x47800000u ? 0x7c00u : normal;
  return {static_cast<std::uint16_t>(u > 0x7f800000u ? 0x7fffu : finite | sign)};
}
inline BFloat narrowed(float x, BFloat) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t value = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
  return {static_cast<std::uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : value)};
}

/// a + b, rounded to odd: another rounding of it to a format of at most 51 digits is as if it were the first.
inline double sum_to_odd(double a, double b) {
  const double s = a + b, bb = s - a, error = (a - (s - bb)) + (b - bb);
  const auto bits = std::bit_cast<std::uint64_t>(s);
  if (!(error != 0) || !std::isfinite(s) || (bits & 1) != 0) return s;
  return std::bit_cast<double>((error < 0) == (s < 0) ? bits | 1 : bits - 1);
}

/// The float next to d toward zero, with its last bit set where d is no float.
inline float float_to_odd(double d) {
  const auto f = static_cast<float>(d);
  if (static_cast<double>(f) == d || std::isnan(d)) return f;
  const auto bits = std::bit_cast<std::uint32_t>(f);
  return std::bit_cast<float>((std::fabs(static_cast<double>(f)) > std::fabs(d) ? bits - 1 : bits) | 1u);
}

enum class Direction : std::uint8_t { nearest, zero, down, up };

/// A double that is exact or rounded to odd, to float.
inline float directed(double d, Direction direction) {
  const auto f = static_cast<float>(d);
  const double got = f;
  if (direction == Direction::nearest || got == d || std::isnan(d)) return f;
  const auto bits = std::bit_cast<std::uint32_t>(f);
  const bool too_large = got > d;  // toward +infinity
  const bool wrong = direction == Direction::zero   ? std::fabs(got) > std::fabs(d)
                     : direction == Direction::down ? too_large
                                                    : !too_large;
  if (!wrong) return f;
  if ((bits & 0x7fffffffu) == 0) return direction == Direction::down ? -0x1p-149f : 0x1p-149f;
  const bool shrink = direction == Direction::zero || (direction == Direction::down) == (got > 0);
  return std::bit_cast<float>(shrink ? bits - 1 : bits + 1);
}

template <class H>
H fused(H a, H b, H c) {
  const double product = static_cast<double>(widened(a)) * widened(b);
  return narrowed(float_to_odd(sum_to_odd(product, widened(c))), H{});
}

inline float flushed(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits);
}
/// 0 to 1, and 0 for NaN.
template <class T>
inline T saturated(T x) {
  return x > T{1} ? T{1} : x > T{0} ? x : T{0};
}

/// PTX's min and max: the operand that is no NaN; -0 is below +0.
template <class T, bool largest, bool keeps_nan>
inline T extremum(T a, T b) {
  const bool first = largest ? (a > b || (a == b && !std::signbit(a))) : (a < b || (a == b && std::signbit(a)));
  const T value = first ? a : b;
  if constexpr (keeps_nan) return a != a ? a : b != b ? b : value;
  return a != a ? b : b != b ? a : value;
}

}  // namespace ampcheck::ptx
