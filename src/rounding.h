// SPDX-License-Identifier: Apache-2.0
// Rounding numbers to a FloatFormat, exact to the bit, in every mode, from fp32 and from fp64 (rounded once).
//
// Rules that hold on every path (scalar, bulk, every SIMD width):
// - Integer arithmetic only: the floating-point environment (rounding direction, flush flags) is never consulted.
// - NaN becomes the format's nan_code() with the sign of the input (fnuz and e8m0 have one NaN and no sign for it).
//   A format without NaN stores +max_finite for every NaN, as CUDA's fp6 and fp4 conversions do.
// - -0 stays -0 where the format has it, else +0.
// - A finite number overflows when its rounding with unbounded exponent exceeds max_finite. As in IEEE 754, toward_zero
//   never overflows, up only to the positive side and down only to the negative; to_odd, which is truncation with a
//   sticky last bit, stops at max_finite too.
// - Infinite inputs go where Overflow says, in every rounding mode: to infinity, NaN or max_finite.
// - e8m0 has no sign and no zero: the magnitude is rounded, and magnitudes below 2^-127, zero among them, give 2^-127
//   (CUDA and torch do the same). Its one-bit significand is always odd, so ties go up and to_odd truncates.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "src/float_format.h"

namespace ampcheck {

enum class Rounding { nearest_even, toward_zero, up, down, nearest_away, to_odd, stochastic };

/// What becomes of overflow and of infinite inputs. A format that lacks what is asked for takes its default.
enum class Overflow {
  format_default,  ///< infinity where the format has one, else NaN, else max_finite
  infinity,
  nan,
  saturate  ///< max_finite, for infinite inputs too (as CUDA's SATFINITE)
};

/// flush: a number with 0 < |x| < min_normal becomes zero of its sign. Decided before rounding, so a number just
/// below min_normal is flushed although it would round up to it.
enum class Subnormals { keep, flush };

/// How to round. Stochastic: up with probability equal to the discarded fraction cut to 31 bits, from a counter-based
/// generator (key: seed, counter: element index), so the result depends on neither order nor SIMD width.
struct RoundingMode {
  Rounding rounding = Rounding::nearest_even;
  Overflow overflow = Overflow::format_default;
  Subnormals subnormals = Subnormals::keep;
  std::uint64_t seed = 0;
};

/// The storage bits of `value` rounded to `format`; `index` is the element index for stochastic rounding.
std::uint64_t encode_scalar(const FloatFormat& format, double value, RoundingMode mode = {}, std::uint64_t index = 0);

/// The exact value of a code; bits above the format's width are ignored. NaN codes give a quiet NaN of their sign.
double decode_scalar(const FloatFormat& format, std::uint64_t bits);

/// Bulk conversion into packed storage: in.size() elements of format.storage_bytes() bytes each, host byte order.
/// Element i has index i for stochastic rounding. `out` may be unaligned and must not overlap `in`.
void encode(const FloatFormat& format, RoundingMode mode, std::span<const float> in, void* out);
void encode(const FloatFormat& format, RoundingMode mode, std::span<const double> in, void* out);

/// out.size() elements of packed storage to values. Exact to double; exact to float for formats inside fp32, rounded to
/// nearest even otherwise.
void decode(const FloatFormat& format, const void* in, std::span<float> out);
void decode(const FloatFormat& format, const void* in, std::span<double> out);

/// out[i] = the value of in[i] rounded to the format; `out` may be `in` itself. Sizes must agree (Error otherwise).
void round_values(const FloatFormat& format, RoundingMode mode, std::span<const double> in, std::span<double> out);

/// SIMD targets that this program holds and this machine can run, best first ("AVX3" is Highway's name for AVX-512).
std::vector<std::string_view> simd_targets();
/// The target that bulk conversions use now.
std::string_view simd_target();
/// For tests and benchmarks: use this target from now on; "" = the best one. Throws Error if it is not available.
void set_simd_target(std::string_view name);

}  // namespace ampcheck
