// SPDX-License-Identifier: Apache-2.0
//
// Storage types of the kernels: 16-bit codes with exact conversion to fp32 and round-to-nearest-even
// conversion from it, in integers and exact float steps, so host and device give the same bits.
#pragma once

#include <cstdint>

#include "kernels/math.h"

namespace ampcheck::kernels {

/// bfloat16: 8 exponent bits, 8 bits of precision.
struct Bf16 {
  std::uint16_t bits;
};

/// IEEE binary16: 5 exponent bits, 11 bits of precision.
struct Fp16 {
  std::uint16_t bits;
};

AMPCHECK_HD float to_float(float value) { return value; }

AMPCHECK_HD float to_float(Bf16 value) { return math::from_bits(static_cast<std::uint32_t>(value.bits) << 16); }

AMPCHECK_HD float to_float(Fp16 value) {
  constexpr std::uint32_t kRebias = (127u - 15u) << 23;
  const std::uint32_t code = value.bits;
  const std::uint32_t shifted = (code & 0x7fffu) << 13;
  // A subnormal reads as 2^-14 (1 + m) once rebased; taking 2^-14 off is exact.
  const float subnormal = math::from_bits(shifted + kRebias + (1u << 23)) - 0x1p-14f;
  const std::uint32_t normal = shifted + kRebias;
  const std::uint32_t special = normal + kRebias;
  const std::uint32_t finite = math::select((code & 0x7c00u) == 0u, math::to_bits(subnormal), normal);
  const std::uint32_t magnitude = math::select((code & 0x7c00u) == 0x7c00u, special, finite);
  return math::from_bits(magnitude | ((code & 0x8000u) << 16));
}

/// Rounds to the nearest value of T, ties to even: subnormals kept, overflow to infinity, any NaN to
/// the positive quiet NaN (0x7fc0 in bf16, 0x7e00 in fp16). T = float returns the value itself.
template <class T>
AMPCHECK_HD T from_float(float value);

template <>
AMPCHECK_HD float from_float<float>(float value) {
  return value;
}

template <>
AMPCHECK_HD Bf16 from_float<Bf16>(float value) {
  const std::uint32_t given = math::to_bits(value);
  const bool nan = static_cast<std::int32_t>(given & 0x7fffffffu) >
                   static_cast<std::int32_t>(math::kInfinityBits);  // vectors compare signed
  const std::uint32_t bits = math::select(nan, 0x7fc00000u, given);
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

template <>
AMPCHECK_HD Fp16 from_float<Fp16>(float value) {
  constexpr std::uint32_t kRebias = (127u - 15u) << 23;
  constexpr std::uint32_t kMinNormal = 0x38800000u;  // 2^-14
  constexpr std::uint32_t kOverflow = 0x477ff000u;   // 65520, the tie above the largest finite
  const std::uint32_t bits = math::to_bits(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // Below 2^-14 the quantum is 2^-24, the ulp of 1/2: the addition rounds to it, ties to even.
  const std::uint32_t subnormal = math::to_bits(math::from_bits(magnitude) + 0.5f) - 0x3f000000u;
  const std::uint32_t normal = (magnitude - kRebias + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t finite = math::select(magnitude < kMinNormal, subnormal, normal);
  const std::uint32_t number = math::select(magnitude >= kOverflow, 0x7c00u, finite);
  const std::uint32_t code = number | ((bits >> 16) & 0x8000u);
  const bool nan = magnitude > math::kInfinityBits;
  return {static_cast<std::uint16_t>(math::select(nan, 0x7e00u, code))};
}

}  // namespace ampcheck::kernels
