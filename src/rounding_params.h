// SPDX-License-Identifier: Apache-2.0
// Internal to src/rounding*: what a conversion loop needs to know about a format, as plain integers.
//
// One formula serves all formats. With the source's magnitude bits `mag` (M fraction bits) and its exponent field e >=
// 1, and E0 the source's field for the format's min_exponent:
//   v = mag - (min(e, E0) - 1) * 2^M           (significand, or code-like number above min_exponent)
//   n = (M - m) + max(0, E0 - e)               (how many low bits of v the format cannot hold)
//   code = round(v / 2^n)                      (carries run into the exponent field by themselves)
// Where the format has the source's exponent range (E0 = 1), or no subnormals, n is constant.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/rounding.h"

namespace ampcheck::rounding_detail {

/// Formats that have conversions of their own.
enum class Known { none, fp16, bf16, e4m3fn, e5m2 };

struct EncodeParams {
  Rounding rounding;
  bool constant_shift;
  bool simple;        ///< one minimum and the NaN select finish the magnitude
  bool inward;        ///< as simple, but finite numbers stop at max_code, one below infinity's code
  bool limit_is_nan;  ///< the minimum is enough for NaN as well
  bool directed;      ///< the limits differ by sign
  bool unusual;       ///< one of the flags below, or flushing
  bool remap;         ///< codes above max_code become over_code
  bool scale;         ///< e8m0
  Known known;  ///< to nearest even or toward zero from fp32, what is beyond becoming infinity (e4m3fn: NaN); else none
  bool drop_negative_zero;  ///< fnuz
  bool nan_positive;        ///< no NaN in the format: its stand-in has no sign
  int code_bits;
  int shift;      ///< M - m
  int max_shift;  ///< from here on nothing but a sticky rest is left (v < 2^(M+1), so v / 2^n < 1/2)
  int storage_shift;
  std::uint64_t first_exponent;  ///< E0 << M
  std::uint64_t most_normal;     ///< the largest magnitude up to which rounding to nearest is plain; 0: nowhere
  std::uint64_t smallest;        ///< a magnitude with n = shift + M + 2
  std::uint64_t rebase;          ///< constant shift: subtracted from mag
  std::uint64_t min_magnitude;   ///< e8m0: smaller magnitudes are raised to this
  std::uint64_t flush_below;     ///< 0 = keep
  std::uint64_t sign_code;
  std::uint64_t max_code;
  std::uint64_t limit_positive;  ///< max_code or max_code + 1
  std::uint64_t limit_negative;
  std::uint64_t over_code;
  std::uint64_t infinity_code;  ///< what infinite inputs become
  std::uint64_t nan_code;       ///< without sign
  std::uint64_t seed;
};

struct DecodeParams {
  Known known;  ///< to fp32
  bool constant_shift;
  bool one_nan;  ///< fnuz: the sign alone is NaN
  int code_bits;
  int shift;  ///< M - m
  int storage_shift;
  int bytes;
  std::uint64_t rebase;
  std::uint64_t magnitude_mask;
  std::uint64_t sign_code;
  std::uint64_t max_code;
  std::uint64_t infinity_code;  ///< all ones: none
  std::uint64_t min_normal_code;
  double min_subnormal;
};

/// `source` is kFp32 or kFp64.
EncodeParams encode_params(const FloatFormat& format, const RoundingMode& mode, const FloatFormat& source);
DecodeParams decode_params(const FloatFormat& format, const FloatFormat& target);

/// Whether the vector loops below hold for this pair; the caller takes another way otherwise.
bool can_encode(const FloatFormat& format, const FloatFormat& source);
bool can_decode(const FloatFormat& format, const FloatFormat& target);

/// The two 32-bit keys of stochastic rounding for elements with these upper index bits.
struct RandomKeys {
  std::uint32_t first;
  std::uint32_t second;
};
RandomKeys random_keys(std::uint64_t seed, std::uint64_t index);

// Vector loops, dispatched at run time. A chunk must not cross a multiple of 2^32 in its index.
void encode_chunk(const EncodeParams& p, const float* in, std::size_t n, std::uint64_t index, int bytes, void* out);
void encode_chunk(const EncodeParams& p, const double* in, std::size_t n, std::uint64_t index, int bytes, void* out);
void decode_chunk(const DecodeParams& p, const void* in, std::size_t n, float* out);
void decode_chunk(const DecodeParams& p, const void* in, std::size_t n, double* out);
void round_chunk(const EncodeParams& p, const DecodeParams& d, const double* in, std::size_t n, std::uint64_t index,
                 double* out);
/// Copy past the caches; both 64-byte aligned, bytes a multiple of 64.
void stream_copy(const void* in, std::size_t bytes, void* out);

}  // namespace ampcheck::rounding_detail
