// SPDX-License-Identifier: Apache-2.0
/// @file
/// Half, BFloat16, Float8E4M3 and Float8E5M2 for kernels on the CPU: bits, and conversions from and to float that round
/// to nearest even. Types of your own do as well (DtypeOf in ampcheck/op.h).
#pragma once

#include <cstdint>
#include <cstring>

/// A toolkit that says whether a low-precision number is wrong, or only rounded.
namespace ampcheck {
/// What an op of a library is described with.
namespace op __attribute__((visibility("hidden"))) {

  namespace detail {

  template <class To, class From>
  To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
  }

  }  // namespace detail

  /// bfloat16: sign, 8 bits of exponent, 7 of fraction; the upper half of a float.
  struct BFloat16 {
    std::uint16_t bits = 0;  ///< Its code.
    BFloat16() = default;    ///< Zero.
    /// Rounded to nearest even; a NaN stays one.
    explicit BFloat16(float x) {
      const auto u = detail::bits_as<std::uint32_t>(x);
      bits = static_cast<std::uint16_t>(x != x ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
    /// Exact.
    operator float() const { return detail::bits_as<float>(static_cast<std::uint32_t>(bits) << 16); }
  };

  /// IEEE 754 binary16: sign, 5 bits of exponent, 10 of fraction; largest finite 65504, smallest subnormal 2^-24.
  struct Half {
    std::uint16_t bits = 0;  ///< Its code.
    Half() = default;        ///< Zero.
    /// Rounded to nearest even; what rounds to more than 65504 becomes infinite, a NaN stays one.
    explicit Half(float x) {
      const auto u = detail::bits_as<std::uint32_t>(x);
      const std::uint32_t sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
      std::uint32_t out = 0;
      if (magnitude > 0x7f800000u)
        out = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
      else if (magnitude >= 0x477ff000u)
        out = 0x7c00u;                   // 65520 and above round to infinity
      else if (magnitude < 0x38800000u)  // below 2^-14: a multiple of 2^-24, which adding 1/2 rounds to
        out = detail::bits_as<std::uint32_t>(detail::bits_as<float>(magnitude) + 0.5f) - 0x3f000000u;
      else
        out = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
      bits = static_cast<std::uint16_t>(sign | out);
    }
    /// Exact.
    operator float() const {
      const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
      if (magnitude >= 0x7c00u) return detail::bits_as<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
      if (magnitude >= 0x400u) return detail::bits_as<float>(sign | ((magnitude << 13) + 0x38000000u));
      const float value = static_cast<float>(magnitude) * 0x1p-24f;
      return sign != 0 ? -value : value;
    }
  };

  namespace detail {

  /// One byte: sign, exponent, `Fraction` bits of fraction. `Ieee`: with infinities (e5m2), else one NaN code a sign
  /// and 448 the largest (e4m3fn).
  template <int Fraction, bool Ieee>
  struct Float8 {
    static constexpr int kBias = (1 << (6 - Fraction)) - 1;
    static constexpr std::uint32_t kLargest = Ieee ? 0x7bu : 0x7eu, kBeyond = Ieee ? 0x7cu : 0x7fu, kNaN = 0x7fu;
    std::uint8_t bits = 0;
    Float8() = default;
    /// What rounds to more than the largest number becomes infinity, or NaN where there is none; a kernel may saturate
    /// instead.
    explicit Float8(float x) {
      const auto u = bits_as<std::uint32_t>(x);
      const std::uint32_t sign = (u >> 24) & 0x80u, magnitude = u & 0x7fffffffu;
      constexpr std::uint32_t kShift = 23 - Fraction, kDown = (127 - kBias) << 23;
      std::uint32_t out = kNaN;
      if (magnitude <
          ((128u - kBias)
           << 23)) {  // below 2^(1 - bias): a multiple of its spacing, which adding 2^(24 - bias - Fraction) rounds to
        const std::uint32_t add = (151u - kBias - Fraction) << 23;
        out = bits_as<std::uint32_t>(bits_as<float>(magnitude) + bits_as<float>(add)) - add;
      } else if (magnitude <= 0x7f800000u) {
        out = magnitude >= 0x47800000u
                  ? kBeyond
                  : (magnitude - kDown + (1u << (kShift - 1)) - 1u + ((magnitude >> kShift) & 1u)) >> kShift;
        if (out > kLargest) out = kBeyond;
      }
      bits = static_cast<std::uint8_t>(sign | out);
    }
    operator float() const {
      const std::uint32_t magnitude = bits & 0x7fu;
      float value = magnitude >= (1u << Fraction)
                        ? bits_as<float>((magnitude << (23 - Fraction)) + ((127u - kBias) << 23))
                        : static_cast<float>(magnitude) * bits_as<float>((128u - kBias - Fraction) << 23);
      if (magnitude > kLargest) value = bits_as<float>(Ieee && magnitude == kBeyond ? 0x7f800000u : 0x7fc00000u);
      return (bits & 0x80u) != 0 ? -value : value;
    }
  };

  }  // namespace detail

  /// OCP OFP8 E4M3: 3 bits of fraction, no infinity, largest 448, smallest subnormal 2^-9.
  using Float8E4M3 = detail::Float8<3, false>;
  /// OCP OFP8 E5M2: 2 bits of fraction, with infinity, largest finite 57344, smallest subnormal 2^-16.
  using Float8E5M2 = detail::Float8<2, true>;

}  // namespace op
}  // namespace ampcheck
