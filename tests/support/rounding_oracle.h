// SPDX-License-Identifier: Apache-2.0
// An independent, slow, exact rounding to a floating-point format, written from the definition in 128-bit integers.
// It shares no code with src/rounding*: of a FloatFormat it reads the four defining fields and derives the rest itself.
#pragma once

#include <cstdint>
#include <cstring>

#include "src/rounding.h"

namespace ampcheck::tests {

class RoundingOracle {
 public:
  explicit RoundingOracle(const FloatFormat& format)
      : p_(format.precision),
        bias_(format.bias),
        e_bits_(format.exponent_bits),
        specials_(format.specials),
        tf32_(format.exponent_bits == 8 && format.precision == 11 && format.bias == 127 &&
              format.specials == Specials::ieee) {
    const int top_field = (1 << e_bits_) - 1;
    e_min_ = specials_ == Specials::scale ? -bias_ : 1 - bias_;
    max_exponent_ = (specials_ == Specials::ieee || specials_ == Specials::scale ? top_field - 1 : top_field) - bias_;
    max_significand_ = (u64{1} << p_) - (specials_ == Specials::nan_only ? 2 : 1);
  }

  /// Storage bits of x, by the rules stated in src/rounding.h. Not for stochastic rounding.
  std::uint64_t encode(double x, const RoundingMode& mode) const {
    Parts in = split(x);
    if (specials_ == Specials::scale) in.negative = false;  // the magnitude is what is rounded
    if (in.nan) return store(nan_magnitude(), in.negative && specials_ != Specials::none);
    if (in.infinite) return store(overflow_magnitude(mode.overflow), in.negative);
    if (in.significand == 0) return specials_ == Specials::scale ? 0 : store(0, in.negative);
    const int lead = in.exponent + bit_length(in.significand) - 1;  // 2^lead <= |x| < 2^(lead + 1)
    if (mode.subnormals == Subnormals::flush && specials_ != Specials::scale && lead < e_min_)
      return store(0, in.negative);
    if (specials_ == Specials::scale && lead < e_min_) return 0;  // nothing below 2^-127: not even zero
    const int unit = (lead > e_min_ ? lead : e_min_) - (p_ - 1);  // the format's numbers here are multiples of 2^unit
    const u64 multiple = round_to_unit(in, unit, mode.rounding);
    return finish(multiple, unit, in.negative, mode);
  }

  /// The value of a code, from the definition; NaN for NaN codes.
  double decode(std::uint64_t bits) const {
    u64 code = tf32_ ? bits >> 13 : bits;
    const int magnitude_bits = e_bits_ + p_ - 1;
    const bool negative = specials_ != Specials::scale && ((code >> magnitude_bits) & 1) != 0;
    code &= (u64{1} << magnitude_bits) - 1;
    const u64 field = code >> (p_ - 1);
    const u64 fraction = code & ((u64{1} << (p_ - 1)) - 1);
    const u64 top_field = (u64{1} << e_bits_) - 1;
    const double nan = join(true, 0x7ff, u64{1} << 51);
    switch (specials_) {
      case Specials::ieee:
        if (field == top_field) return fraction != 0 ? nan : join(negative, 0x7ff, 0);
        break;
      case Specials::nan_only:
        if (code == (u64{1} << magnitude_bits) - 1) return nan;
        break;
      case Specials::nan_is_negative_zero:
        if (negative && code == 0) return nan;
        break;
      case Specials::scale:
        if (code == top_field) return nan;
        return value(1, static_cast<int>(code) - bias_, false);
      case Specials::none: break;
    }
    if (field == 0) return value(fraction, e_min_ - (p_ - 1), negative);
    return value((u64{1} << (p_ - 1)) + fraction, static_cast<int>(field) - bias_ - (p_ - 1), negative);
  }

 private:
  using u64 = std::uint64_t;
  using u128 = unsigned __int128;

  /// x = significand * 2^exponent.
  struct Parts {
    bool negative;
    bool nan;
    bool infinite;
    u64 significand;
    int exponent;
  };

  static int bit_length(u64 v) {
    int n = 0;
    for (; v != 0; v >>= 1) ++n;
    return n;
  }

  static Parts split(double x) {
    u64 bits = 0;
    std::memcpy(&bits, &x, sizeof x);
    const u64 fraction = bits % (u64{1} << 52);
    const int field = static_cast<int>((bits >> 52) % 2048);
    Parts out{(bits >> 63) != 0, field == 2047 && fraction != 0, field == 2047 && fraction == 0, fraction, -1074};
    if (field != 0) {
      out.significand = fraction + (u64{1} << 52);
      out.exponent = field - 1075;
    }
    return out;
  }

  static double join(bool negative, u64 field, u64 fraction) {
    const u64 bits = (u64{negative} << 63) + (field << 52) + fraction;
    double x = 0;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }

  /// significand * 2^exponent, which must be a double.
  static double value(u64 significand, int exponent, bool negative) {
    if (significand == 0) return join(negative, 0, 0);
    while (significand < (u64{1} << 52) && exponent > -1074) {
      significand *= 2;
      --exponent;
    }
    if (significand < (u64{1} << 52)) return join(negative, 0, significand);
    return join(negative, static_cast<u64>(exponent + 1075), significand - (u64{1} << 52));
  }

  /// |x| / 2^unit as an integer.
  static u64 round_to_unit(const Parts& in, int unit, Rounding rounding) {
    int drop = unit - in.exponent;
    if (drop <= 0) return in.significand << -drop;
    if (drop > 100) drop = 100;  // the significand has 53 bits: below a quarter either way
    const u128 scale = u128{1} << drop;
    const u128 down = in.significand / scale;
    const u128 rest = in.significand % scale;
    if (rest == 0) return static_cast<u64>(down);
    const u128 twice = 2 * rest;
    const bool odd = down % 2 != 0;
    bool away = false;
    switch (rounding) {
      case Rounding::nearest_even: away = twice > scale || (twice == scale && odd); break;
      case Rounding::nearest_away: away = twice >= scale; break;
      case Rounding::toward_zero: away = false; break;
      case Rounding::up: away = !in.negative; break;
      case Rounding::down: away = in.negative; break;
      case Rounding::to_odd: away = !odd; break;
      case Rounding::stochastic: break;
    }
    return static_cast<u64>(down + (away ? 1 : 0));
  }

  /// Code of multiple * 2^unit, or what overflow makes of it.
  u64 finish(u64 multiple, int unit, bool negative, const RoundingMode& mode) const {
    if (multiple >> p_ != 0) {  // rounded up to the next power of two
      multiple /= 2;
      ++unit;
    }
    const int exponent = unit + p_ - 1;
    const bool normal = multiple >> (p_ - 1) != 0;
    if (normal && (exponent > max_exponent_ || (exponent == max_exponent_ && multiple > max_significand_))) {
      const bool inward = mode.rounding == Rounding::toward_zero || mode.rounding == Rounding::to_odd ||
                          (mode.rounding == Rounding::up && negative) || (mode.rounding == Rounding::down && !negative);
      return store(inward ? max_magnitude() : overflow_magnitude(mode.overflow), negative);
    }
    if (specials_ == Specials::scale) return static_cast<u64>(exponent + bias_);
    if (!normal) return store(multiple, negative);
    return store((static_cast<u64>(exponent + bias_) << (p_ - 1)) + (multiple - (u64{1} << (p_ - 1))), negative);
  }

  u64 max_magnitude() const {
    const u64 fraction = max_significand_ - (u64{1} << (p_ - 1));
    return (static_cast<u64>(max_exponent_ + bias_) << (p_ - 1)) + (p_ == 1 ? 0 : fraction);
  }
  u64 nan_magnitude() const {
    const u64 all = (u64{1} << (e_bits_ + p_ - 1)) - 1;
    switch (specials_) {
      case Specials::ieee: return all - ((u64{1} << (p_ - 2)) - 1);  // top exponent, top fraction bit
      case Specials::nan_only:
      case Specials::scale: return all;
      case Specials::nan_is_negative_zero: return all + 1;
      case Specials::none: break;
    }
    return max_magnitude();
  }
  u64 overflow_magnitude(Overflow overflow) const {
    if (overflow == Overflow::saturate || specials_ == Specials::none) return max_magnitude();
    if (specials_ != Specials::ieee || overflow == Overflow::nan) return nan_magnitude();
    return ((u64{1} << e_bits_) - 1) << (p_ - 1);
  }

  u64 store(u64 magnitude, bool negative) const {
    const u64 sign = u64{1} << (e_bits_ + p_ - 1);
    u64 code = magnitude;
    if (specials_ == Specials::nan_is_negative_zero && magnitude % sign == 0) return code;  // +0, or the NaN itself
    if (negative && specials_ != Specials::scale) code += sign;
    return tf32_ ? code << 13 : code;
  }

  int p_;
  int bias_;
  int e_bits_;
  Specials specials_;
  bool tf32_;
  int e_min_ = 0;
  int max_exponent_ = 0;
  u64 max_significand_ = 0;
};

}  // namespace ampcheck::tests
