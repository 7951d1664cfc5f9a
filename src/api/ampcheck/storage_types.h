// SPDX-License-Identifier: Apache-2.0
// Half and BFloat16 for kernels on the CPU: bits, and conversions from and to float that round to nearest even. Types of
// your own do as well (DtypeOf in ampcheck/op.h).
#pragma once

#include <cstdint>
#include <cstring>

namespace ampcheck {
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

struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float x) {
    const auto u = detail::bits_as<std::uint32_t>(x);
    bits = static_cast<std::uint16_t>(x != x ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  operator float() const { return detail::bits_as<float>(static_cast<std::uint32_t>(bits) << 16); }
};

struct Half {
  std::uint16_t bits = 0;
  Half() = default;
  explicit Half(float x) {
    const auto u = detail::bits_as<std::uint32_t>(x);
    const std::uint32_t sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    std::uint32_t out = 0;
    if (magnitude > 0x7f800000u) out = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    else if (magnitude >= 0x477ff000u) out = 0x7c00u;  // 65520 and above round to infinity
    else if (magnitude < 0x38800000u)                  // below 2^-14: a multiple of 2^-24, which adding 1/2 rounds to
      out = detail::bits_as<std::uint32_t>(detail::bits_as<float>(magnitude) + 0.5f) - 0x3f000000u;
    else out = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    bits = static_cast<std::uint16_t>(sign | out);
  }
  operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return detail::bits_as<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    if (magnitude >= 0x400u) return detail::bits_as<float>(sign | ((magnitude << 13) + 0x38000000u));
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
};

}  // namespace op
}  // namespace ampcheck
