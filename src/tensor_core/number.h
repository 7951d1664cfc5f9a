// SPDX-License-Identifier: Apache-2.0
// Numbers as a tensor core takes them apart, for the reference models.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "src/tensor_core/instruction.h"

namespace ampcheck::tensor_core::detail {

/// A number of a format as the core sees it: (-1)^negative significand 2^(exponent - fraction bits of the format), with
/// the exponent of a subnormal number that of the smallest normal one.
struct Number {
  enum class Kind { finite, infinite, nan } kind = Kind::finite;
  bool negative = false;
  std::int64_t significand = 0;
  int exponent = 0;
};

inline Number number_of(const FloatFormat& f, std::uint32_t code) {
  code >>= f.storage_shift();
  Number out;
  out.negative = (code & f.sign_code()) != 0;
  const std::uint64_t magnitude = code & f.magnitude_mask();
  if (f.has_infinity() && magnitude == f.infinity_code()) out.kind = Number::Kind::infinite;
  if (magnitude > f.max_code() && out.kind == Number::Kind::finite) out.kind = Number::Kind::nan;
  const std::int64_t implicit = std::int64_t{1} << f.fraction_bits();
  const auto field = static_cast<int>(magnitude >> f.fraction_bits());
  out.significand = (static_cast<std::int64_t>(magnitude) & (implicit - 1)) | (field > 0 ? implicit : 0);
  out.exponent = std::max(field, 1) - f.bias;
  return out;
}

/// A product or c: significand 2^(exponent - bits).
struct Term {
  bool negative;
  std::int64_t significand;
  int exponent, bits;
};

/// In units of 2^last, cut off toward zero.
inline std::int64_t aligned(const Term& term, int last) {
  const int up = term.exponent - term.bits - last;
  const std::int64_t size = up >= 0 ? term.significand << up : up > -64 ? term.significand >> -up : 0;
  return term.negative ? -size : size;
}

inline std::uint32_t infinity_of(Output output, bool negative) {
  const FloatFormat& f = format_of(output);
  return static_cast<std::uint32_t>(f.infinity_code() | (negative ? f.sign_code() : 0));
}

inline std::uint32_t nan_of(Output output) { return output == Output::fp16 ? 0x7fffu : 0x7fffffffu; }

/// sum 2^last as fp32, cut off toward zero after `bits` of the fraction.
inline std::uint32_t truncated(std::int64_t sum, int last, int bits) {
  const bool negative = sum < 0;
  auto size = static_cast<std::uint64_t>(negative ? -sum : sum);
  const int exponent = std::max(last + static_cast<int>(std::bit_width(size)) - 1, kFp32.min_exponent());
  const int down = exponent - bits - last;  // of the last bit that stays
  size = down >= 64 ? 0 : down >= 0 ? size >> down : size << -down;
  if (size == 0) return 0;
  if (exponent > kFp32.max_exponent()) return infinity_of(Output::fp32, negative);
  const auto implicit = std::uint64_t{1} << bits;
  const auto field = size >= implicit ? static_cast<std::uint64_t>(exponent + kFp32.bias) : 0;
  const std::uint64_t fraction = (size & (implicit - 1)) << (kFp32.fraction_bits() - bits);
  return static_cast<std::uint32_t>(field << kFp32.fraction_bits() | fraction | (negative ? kFp32.sign_code() : 0));
}

}  // namespace ampcheck::tensor_core::detail
