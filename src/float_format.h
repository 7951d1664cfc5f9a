// SPDX-License-Identifier: Apache-2.0
// What a floating-point format is: four integers and a rule for its special codes; every other fact is derived.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

namespace ampcheck {

/// Which codes are not finite numbers.
enum class Specials {
  ieee,                  ///< all-ones exponent: infinity (fraction zero) and NaN
  nan_only,              ///< "fn": no infinity; only the all-ones code (of either sign) is NaN
  nan_is_negative_zero,  ///< "fnuz": no infinity, no -0; the code of -0 is the one NaN
  none,                  ///< every code is a finite number
  scale                  ///< e8m0: no sign, no zero, no fraction; the all-ones code is NaN
};

/// 2^exponent, exact for -1074 <= exponent <= 1023.
constexpr double exact_power_of_two(int exponent) {
  const std::uint64_t bits =
      exponent >= -1022 ? static_cast<std::uint64_t>(exponent + 1023) << 52 : std::uint64_t{1} << (exponent + 1074);
  return std::bit_cast<double>(bits);
}

/// A binary floating-point format. Every finite value of a supported format is exactly a double.
/// A code is sign, exponent field, fraction from the top; the magnitude part is monotone in the value.
struct FloatFormat {
  std::string_view name;
  int exponent_bits;
  int precision;  ///< significand bits, the implicit one included
  int bias;
  Specials specials;

  constexpr int fraction_bits() const { return precision - 1; }
  constexpr bool is_signed() const { return specials != Specials::scale; }
  constexpr bool has_infinity() const { return specials == Specials::ieee; }
  constexpr bool has_nan() const { return specials != Specials::none; }
  constexpr bool has_zero() const { return specials != Specials::scale; }
  constexpr bool has_negative_zero() const { return is_signed() && specials != Specials::nan_is_negative_zero; }
  constexpr bool has_subnormals() const { return specials != Specials::scale && precision > 1; }

  /// Bits used by a code (tf32: 19).
  constexpr int bits() const { return (is_signed() ? 1 : 0) + exponent_bits + fraction_bits(); }
  /// tf32 is stored as the fp32 pattern whose 13 low bits are zero; every other format is stored as its code.
  constexpr int storage_shift() const {
    return exponent_bits == 8 && precision == 11 && bias == 127 && specials == Specials::ieee ? 13 : 0;
  }
  /// Bytes of one element in packed storage: 1, 2, 4 or 8.
  constexpr int storage_bytes() const {
    const int used = bits() + storage_shift();
    return used <= 8 ? 1 : used <= 16 ? 2 : used <= 32 ? 4 : 8;
  }

  /// Exponents e of normal numbers 1.f * 2^e.
  constexpr int min_exponent() const { return specials == Specials::scale ? -bias : 1 - bias; }
  constexpr int max_exponent() const { return static_cast<int>(max_code() >> fraction_bits()) - bias; }

  constexpr double max_finite() const {
    const std::uint64_t implicit = std::uint64_t{1} << fraction_bits();
    const std::uint64_t significand = implicit | (max_code() & (implicit - 1));
    return static_cast<double>(significand) * exact_power_of_two(max_exponent() - fraction_bits());
  }
  constexpr double min_normal() const { return exact_power_of_two(min_exponent()); }
  /// The smallest positive number; equal to min_normal() where there are no subnormals.
  constexpr double min_subnormal() const { return exact_power_of_two(min_exponent() - fraction_bits()); }
  /// Half the distance from 1 to the next number: 2^-precision.
  constexpr double unit_roundoff() const { return exact_power_of_two(-precision); }

  // Codes without sign and without the storage shift.
  constexpr std::uint64_t sign_code() const { return is_signed() ? std::uint64_t{1} << (bits() - 1) : 0; }
  constexpr std::uint64_t magnitude_mask() const { return (std::uint64_t{1} << (exponent_bits + fraction_bits())) - 1; }
  constexpr std::uint64_t max_code() const {
    switch (specials) {
      case Specials::ieee: return infinity_code() - 1;
      case Specials::nan_only: return magnitude_mask() - 1;
      case Specials::scale: return magnitude_mask() - 1;
      case Specials::nan_is_negative_zero:
      case Specials::none: break;
    }
    return magnitude_mask();
  }
  /// Code of infinity; meaningful only with has_infinity().
  constexpr std::uint64_t infinity_code() const { return ((std::uint64_t{1} << exponent_bits) - 1) << fraction_bits(); }
  /// The NaN that encoding writes: ieee, the quiet NaN without payload; a format without NaN has max_code() here.
  constexpr std::uint64_t nan_code() const {
    switch (specials) {
      case Specials::ieee: return infinity_code() | (std::uint64_t{1} << (fraction_bits() - 1));
      case Specials::nan_is_negative_zero: return sign_code();
      case Specials::nan_only:
      case Specials::scale: return magnitude_mask();
      case Specials::none: break;
    }
    return max_code();
  }

  /// Same set of values and codes; the name does not count.
  friend constexpr bool operator==(const FloatFormat& a, const FloatFormat& b) {
    return a.exponent_bits == b.exponent_bits && a.precision == b.precision && a.bias == b.bias &&
           a.specials == b.specials;
  }
};

// name, exponent bits, precision, bias, specials. Sources: IEEE 754-2019; OCP 8-bit Floating Point 1.0 (e4m3fn, e5m2);
// OCP Microscaling 1.0 (e2m3fn, e3m2fn, e2m1fn, e8m0fnu); the ml_dtypes table for the others.
inline constexpr FloatFormat kFp64{"fp64", 11, 53, 1023, Specials::ieee};
inline constexpr FloatFormat kFp32{"fp32", 8, 24, 127, Specials::ieee};
inline constexpr FloatFormat kTf32{"tf32", 8, 11, 127, Specials::ieee};
inline constexpr FloatFormat kFp16{"fp16", 5, 11, 15, Specials::ieee};
inline constexpr FloatFormat kBf16{"bf16", 8, 8, 127, Specials::ieee};
inline constexpr FloatFormat kE4m3fn{"e4m3fn", 4, 4, 7, Specials::nan_only};
inline constexpr FloatFormat kE5m2{"e5m2", 5, 3, 15, Specials::ieee};
inline constexpr FloatFormat kE4m3fnuz{"e4m3fnuz", 4, 4, 8, Specials::nan_is_negative_zero};
inline constexpr FloatFormat kE5m2fnuz{"e5m2fnuz", 5, 3, 16, Specials::nan_is_negative_zero};
inline constexpr FloatFormat kE4m3b11fnuz{"e4m3b11fnuz", 4, 4, 11, Specials::nan_is_negative_zero};
inline constexpr FloatFormat kE4m3{"e4m3", 4, 4, 7, Specials::ieee};
inline constexpr FloatFormat kE3m4{"e3m4", 3, 5, 3, Specials::ieee};
inline constexpr FloatFormat kE8m0fnu{"e8m0fnu", 8, 1, 127, Specials::scale};
inline constexpr FloatFormat kE2m3fn{"e2m3fn", 2, 4, 1, Specials::none};
inline constexpr FloatFormat kE3m2fn{"e3m2fn", 3, 3, 3, Specials::none};
inline constexpr FloatFormat kE2m1fn{"e2m1fn", 2, 2, 1, Specials::none};

/// The built-in formats, in the order above.
std::span<const FloatFormat> all_formats();

/// A built-in format by name, or nullptr.
const FloatFormat* find_format(std::string_view name);

/// A built-in name, or a format written e<E>m<M>[b<bias>][suffix] with M stored fraction bits: "e5m7", "e4m3b11fnuz".
/// The bias is 2^(E-1)-1 (fnuz: 2^(E-1)) unless given. Suffix: none = ieee, "fn" = one NaN and no infinity,
/// "fnuz" = that and no -0, "f" = finite numbers only. 2 <= E <= 11, 1 <= M <= 52, all values inside fp64.
/// Throws Error on anything else.
FloatFormat parse_format(std::string_view text);

}  // namespace ampcheck
