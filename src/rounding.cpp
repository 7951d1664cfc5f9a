// SPDX-License-Identifier: Apache-2.0
#include "src/rounding.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "src/error.h"
#include "src/rounding_params.h"

namespace ampcheck {
namespace rounding_detail {
namespace {

/// Distance in binades below min_exponent from which only a sticky rest is left.
constexpr int dropped_after(const FloatFormat& source) { return source.fraction_bits() + 2; }

std::uint64_t overflow_code(const FloatFormat& format, Overflow overflow) {
  if (overflow == Overflow::saturate || format.specials == Specials::none) return format.max_code();
  if (overflow == Overflow::nan || !format.has_infinity()) return format.nan_code();
  return format.infinity_code();
}

/// Which overflow is an overflow: IEEE 754-2019 7.4.
bool overflows(Rounding rounding, bool negative) {
  switch (rounding) {
    case Rounding::toward_zero:
    case Rounding::to_odd: return false;
    case Rounding::up: return !negative;
    case Rounding::down: return negative;
    case Rounding::nearest_even:
    case Rounding::nearest_away:
    case Rounding::stochastic: break;
  }
  return true;
}

/// Rounding of e8m0's one-bit significand, which is always odd.
Rounding scale_rounding(Rounding rounding) {
  if (rounding == Rounding::nearest_even) return Rounding::nearest_away;
  return rounding == Rounding::to_odd ? Rounding::toward_zero : rounding;
}

void set_overflow(EncodeParams& p, const FloatFormat& format, Overflow overflow) {
  const std::uint64_t over = overflow_code(format, overflow);
  const auto limit = [&](bool negative) {
    return over == p.max_code || !overflows(p.rounding, negative) ? p.max_code : p.max_code + 1;
  };
  p.limit_positive = limit(false);
  p.limit_negative = limit(true);
  p.over_code = over;
  p.remap = over > p.max_code + 1;
  p.infinity_code = over;
}

Known known(const FloatFormat& format) {
  if (format == kFp16) return Known::fp16;
  if (format == kBf16) return Known::bf16;
  if (format == kE4m3fn) return Known::e4m3fn;
  return format == kE5m2 ? Known::e5m2 : Known::none;
}

/// Which of the loops' shorter ways give the same codes; after everything else is known.
void set_short_ways(EncodeParams& p, const FloatFormat& format, const RoundingMode& mode, const FloatFormat& source) {
  p.limit_is_nan = p.infinity_code == p.nan_code;
  p.directed = p.limit_positive != p.limit_negative;
  p.unusual = p.drop_negative_zero || p.nan_positive || p.flush_below != 0;
  const bool plain =
      !p.directed && !p.remap && !p.scale && !p.unusual && format.max_exponent() <= source.max_exponent();
  p.simple = plain && p.infinity_code == p.limit_positive;
  p.inward = plain && p.infinity_code == p.limit_positive + 1;
  const bool beyond = mode.rounding == Rounding::nearest_even ? p.simple && p.limit_positive > p.max_code
                                                              : mode.rounding == Rounding::toward_zero && p.inward;
  if (source == kFp32 && beyond) p.known = known(format);
  // Up to max_finite nothing overflows; zeros and subnormals of formats without their own rules go the common way.
  if (source == kFp64 && !p.scale && !p.drop_negative_zero && !p.nan_positive && p.shift > 0)
    p.most_normal = std::bit_cast<std::uint64_t>(format.max_finite());
}

}  // namespace

EncodeParams encode_params(const FloatFormat& format, const RoundingMode& mode, const FloatFormat& source) {
  EncodeParams p{};
  const int fraction = source.fraction_bits();
  const int first = format.min_exponent() + source.bias;
  p.scale = format.specials == Specials::scale;
  p.rounding = p.scale ? scale_rounding(mode.rounding) : mode.rounding;
  p.constant_shift = p.scale || first == 1;
  p.drop_negative_zero = format.specials == Specials::nan_is_negative_zero;
  p.nan_positive = format.specials == Specials::none;
  p.code_bits = format.bits();
  p.shift = fraction - format.fraction_bits();
  p.max_shift = dropped_after(source);
  p.storage_shift = format.storage_shift();
  p.first_exponent = static_cast<std::uint64_t>(std::max(first, 0)) << fraction;
  p.smallest = static_cast<std::uint64_t>(std::max(first - dropped_after(source) + p.shift, 1)) << fraction;
  if (p.scale) {  // code = exponent - min_exponent: one less than a format with subnormals has
    p.rebase = p.first_exponent;
    p.min_magnitude = first > 0 ? p.first_exponent : std::uint64_t{1} << (fraction - 1 + first);
  }
  if (mode.subnormals == Subnormals::flush && format.has_subnormals()) p.flush_below = p.first_exponent;
  p.sign_code = format.sign_code();
  p.max_code = format.max_code();
  p.nan_code = format.nan_code();
  p.seed = mode.seed;
  set_overflow(p, format, mode.overflow);
  set_short_ways(p, format, mode, source);
  if (p.shift == 0 && p.constant_shift) p.rounding = Rounding::toward_zero;  // nothing to round; the limits stay
  return p;
}

DecodeParams decode_params(const FloatFormat& format, const FloatFormat& target) {
  DecodeParams p{};
  if (target == kFp32) p.known = known(format);
  const int first = format.min_exponent() + target.bias;
  const bool scale = format.specials == Specials::scale;
  p.constant_shift = scale || first == 1;
  p.one_nan = format.specials == Specials::nan_is_negative_zero;
  p.code_bits = format.bits();
  p.shift = target.fraction_bits() - format.fraction_bits();
  p.storage_shift = format.storage_shift();
  p.bytes = format.storage_bytes();
  p.rebase = static_cast<std::uint64_t>(scale ? first : first - 1) << target.fraction_bits();
  p.magnitude_mask = format.magnitude_mask();
  p.sign_code = format.sign_code();
  p.max_code = format.max_code();
  p.infinity_code = format.has_infinity() ? format.infinity_code() : ~std::uint64_t{0};
  p.min_normal_code = std::uint64_t{1} << format.fraction_bits();
  p.min_subnormal = format.min_subnormal();
  return p;
}

bool can_encode(const FloatFormat& format, const FloatFormat& source) {
  const int first = format.min_exponent() + source.bias;
  const int shift = source.fraction_bits() - format.fraction_bits();
  if (format.specials == Specials::scale) return first >= 0;
  // Between 1 and the other bound the source's own subnormals would need normalising.
  return (first == 1 && shift >= 0) || (first > dropped_after(source) && shift > 0);
}

bool can_decode(const FloatFormat& format, const FloatFormat& target) {
  const int first = format.min_exponent() + target.bias;
  const bool subnormals_normal = first - format.fraction_bits() >= 1;  // so that no flush mode can touch them
  return format.precision <= target.precision && format.max_exponent() <= target.max_exponent() &&
         (first == 1 || (first > 1 && (subnormals_normal || format.specials == Specials::scale)));
}

RandomKeys random_keys(std::uint64_t seed, std::uint64_t index) {
  // SplitMix64's finaliser (Steele, Lea, Flood 2014) of the seed and the upper half of the counter.
  std::uint64_t z = seed + 0x9e3779b97f4a7c15u * ((index >> 32) + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return {static_cast<std::uint32_t>(z), static_cast<std::uint32_t>(z >> 32)};
}

namespace {

/// lowbias32, a 32-bit bijection with low avalanche bias (C. Wellons, hash-prospector).
std::uint32_t mix32(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

std::uint64_t random31(std::uint64_t seed, std::uint64_t index) {
  const RandomKeys keys = random_keys(seed, index);
  return mix32(mix32(static_cast<std::uint32_t>(index) + keys.first) ^ keys.second) >> 1;
}

/// v / 2^n rounded to an integer, n <= 62 + what may be dropped.
std::uint64_t round_shift(const EncodeParams& p, std::uint64_t v, int n, bool negative, std::uint64_t index) {
  if (n == 0) return v;
  if (p.rounding == Rounding::stochastic) {
    const int dropped = std::max(n - 62, 0);
    const int kept = n - dropped;
    return ((v >> std::min(dropped, 63)) + ((random31(p.seed, index) << 31) >> (62 - kept))) >> kept;
  }
  n = std::min(n, p.max_shift);
  const std::uint64_t unit = std::uint64_t{1} << n;
  const std::uint64_t floor = v >> n;
  switch (p.rounding) {
    case Rounding::nearest_even: return (v + (unit / 2 - 1) + (floor & 1)) >> n;
    case Rounding::nearest_away: return (v + unit / 2) >> n;
    case Rounding::up: return (v + (negative ? 0 : unit - 1)) >> n;
    case Rounding::down: return (v + (negative ? unit - 1 : 0)) >> n;
    case Rounding::to_odd: return floor | ((v & (unit - 1)) != 0 ? 1 : 0);
    case Rounding::toward_zero:
    case Rounding::stochastic: break;
  }
  return floor;
}

std::uint64_t encode_one(const EncodeParams& p, double value, std::uint64_t index) {
  constexpr int kFraction = 52;
  constexpr std::uint64_t kImplicit = std::uint64_t{1} << kFraction;
  constexpr std::uint64_t kInfinity = std::uint64_t{0x7ff} << kFraction;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
  std::uint64_t mag = bits & ~(std::uint64_t{1} << 63);
  const bool negative = (bits >> 63) != 0 && !p.scale;
  const bool nan = mag > kInfinity;
  std::uint64_t code = 0;
  if (mag >= kInfinity) {
    code = nan ? p.nan_code : p.infinity_code;
  } else if (mag >= p.flush_below) {
    mag = std::max(mag, p.min_magnitude);
    const std::uint64_t exponent = std::min(std::max(mag & kInfinity, kImplicit), p.first_exponent);
    const std::uint64_t v = p.constant_shift ? mag - p.rebase : mag - exponent + kImplicit;
    const int below = p.constant_shift ? 0 : static_cast<int>((p.first_exponent - exponent) >> kFraction);
    code =
        std::min(round_shift(p, v, p.shift + below, negative, index), negative ? p.limit_negative : p.limit_positive);
    if (p.remap && code > p.max_code) code = p.over_code;
  }
  const bool signless = (p.drop_negative_zero && code == 0) || (p.nan_positive && nan);
  return (code | (negative && !signless ? p.sign_code : 0)) << p.storage_shift;
}

}  // namespace
}  // namespace rounding_detail

using namespace rounding_detail;

std::uint64_t encode_scalar(const FloatFormat& format, double value, RoundingMode mode, std::uint64_t index) {
  return encode_one(encode_params(format, mode, kFp64), value, index);
}

double decode_scalar(const FloatFormat& format, std::uint64_t bits) {
  const std::uint64_t code = bits >> format.storage_shift();
  const std::uint64_t mag = code & format.magnitude_mask();
  const std::uint64_t sign = (code & format.sign_code()) != 0 ? std::uint64_t{1} << 63 : 0;
  constexpr std::uint64_t kQuietNan = 0x7ff8000000000000u;
  if (format.specials == Specials::nan_is_negative_zero && mag == 0 && sign != 0)
    return std::bit_cast<double>(kQuietNan);
  const auto with_sign = [&](std::uint64_t magnitude) { return std::bit_cast<double>(magnitude | sign); };
  if (mag > format.max_code())
    return with_sign(format.has_infinity() && mag == format.infinity_code() ? kFp64.infinity_code() : kQuietNan);
  const int fraction_bits = format.fraction_bits();
  const std::uint64_t fraction = mag & ((std::uint64_t{1} << fraction_bits) - 1);
  const int field = static_cast<int>(mag >> fraction_bits);
  const bool normal = field != 0 || format.specials == Specials::scale;
  const std::uint64_t significand = fraction | (normal ? std::uint64_t{1} << fraction_bits : 0);
  if (significand == 0) return with_sign(0);
  // value = significand * 2^unit; its leading bit has weight 2^lead.
  const int unit = (normal ? field - format.bias : format.min_exponent()) - fraction_bits;
  const int top = 63 - std::countl_zero(significand);
  const int lead = unit + top;
  if (lead < kFp64.min_exponent()) return with_sign(significand << (unit + 1074));
  return with_sign((static_cast<std::uint64_t>(lead + 1022) << 52) + (significand << (52 - top)));
}

namespace {

constexpr std::size_t kChunk = 2048;            // elements; a divisor of 2^32, input and output stay in L1
constexpr std::size_t kStreamFrom = 16u << 20;  // output bytes: from here on the caches cannot hold it
constexpr std::size_t kCacheLine = 64;

/// Elements that a chunk starting at `done` may have.
std::size_t chunk_size(std::size_t done, std::size_t total) { return std::min(kChunk - done % kChunk, total - done); }

struct Packed {
  std::byte* data;
  std::size_t bytes;
  std::byte* at(std::size_t i) const { return data + i * bytes; }
};

void store_scalar(const Packed& out, std::size_t i, std::uint64_t bits) {
  std::memcpy(out.at(i), &bits, out.bytes);  // little endian, as every supported host
}

std::uint64_t load_scalar(const std::byte* in, std::size_t bytes) {
  std::uint64_t code = 0;
  std::memcpy(&code, in, bytes);
  return code;
}

template <class T>
void encode_direct(const EncodeParams& p, std::span<const T> in, const Packed& out) {
  const int bytes = static_cast<int>(out.bytes);
  const bool aligned = reinterpret_cast<std::uintptr_t>(out.data) % kCacheLine == 0;
  if (!aligned || in.size() * out.bytes < kStreamFrom) {
    for (std::size_t i = 0; i < in.size();) {
      const std::size_t n = chunk_size(i, in.size());
      encode_chunk(p, in.data() + i, n, i, bytes, out.at(i));
      i += n;
    }
    return;
  }
  alignas(kCacheLine) std::array<std::byte, kChunk * sizeof(std::uint64_t)> buffer;
  for (std::size_t i = 0; i < in.size(); i += kChunk) {
    const std::size_t n = std::min(kChunk, in.size() - i);
    encode_chunk(p, in.data() + i, n, i, bytes, buffer.data());
    if (n == kChunk)
      stream_copy(buffer.data(), n * out.bytes, out.at(i));
    else
      std::memcpy(out.at(i), buffer.data(), n * out.bytes);
  }
}

}  // namespace

void encode(const FloatFormat& format, RoundingMode mode, std::span<const double> in, void* out) {
  const Packed packed{static_cast<std::byte*>(out), static_cast<std::size_t>(format.storage_bytes())};
  const EncodeParams p = encode_params(format, mode, kFp64);
  if (can_encode(format, kFp64)) return encode_direct(p, in, packed);
  for (std::size_t i = 0; i < in.size(); ++i) store_scalar(packed, i, encode_one(p, in[i], i));
}

void encode(const FloatFormat& format, RoundingMode mode, std::span<const float> in, void* out) {
  const Packed packed{static_cast<std::byte*>(out), static_cast<std::size_t>(format.storage_bytes())};
  if (can_encode(format, kFp32)) return encode_direct(encode_params(format, mode, kFp32), in, packed);
  // Wider than fp32 in some direction: every float is a double, and from there it is rounded once.
  const EncodeParams p = encode_params(format, mode, kFp64);
  const DecodeParams widen = decode_params(kFp32, kFp64);
  const bool vector = can_encode(format, kFp64);
  std::array<double, kChunk> wide;
  for (std::size_t i = 0; i < in.size();) {
    const std::size_t n = chunk_size(i, in.size());
    decode_chunk(widen, in.data() + i, n, wide.data());
    if (vector) encode_chunk(p, wide.data(), n, i, static_cast<int>(packed.bytes), packed.at(i));
    for (std::size_t j = 0; j < n && !vector; ++j) store_scalar(packed, i + j, encode_one(p, wide[j], i + j));
    i += n;
  }
}

void decode(const FloatFormat& format, const void* in, std::span<double> out) {
  if (can_decode(format, kFp64)) return decode_chunk(decode_params(format, kFp64), in, out.size(), out.data());
  const auto bytes = static_cast<std::size_t>(format.storage_bytes());
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = decode_scalar(format, load_scalar(static_cast<const std::byte*>(in) + i * bytes, bytes));
}

void decode(const FloatFormat& format, const void* in, std::span<float> out) {
  if (can_decode(format, kFp32)) return decode_chunk(decode_params(format, kFp32), in, out.size(), out.data());
  const auto bytes = static_cast<std::size_t>(format.storage_bytes());
  std::array<double, kChunk> wide;
  for (std::size_t i = 0; i < out.size(); i += kChunk) {
    const std::size_t n = std::min(kChunk, out.size() - i);
    const std::span<double> values(wide.data(), n);
    decode(format, static_cast<const std::byte*>(in) + i * bytes, values);
    encode(kFp32, {}, std::span<const double>(values), out.data() + i);
  }
}

void round_values(const FloatFormat& format, RoundingMode mode, std::span<const double> in, std::span<double> out) {
  if (in.size() != out.size())
    throw Error("[round_values] output size, got " + std::to_string(out.size()) + ", want " +
                std::to_string(in.size()));
  EncodeParams p = encode_params(format, mode, kFp64);
  if (can_encode(format, kFp64) && can_decode(format, kFp64)) {
    DecodeParams d = decode_params(format, kFp64);
    p.storage_shift = d.storage_shift = 0;  // the codes stay in registers
    for (std::size_t i = 0; i < in.size();) {
      const std::size_t n = chunk_size(i, in.size());
      round_chunk(p, d, in.data() + i, n, i, out.data() + i);
      i += n;
    }
    return;
  }
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = decode_scalar(format, encode_one(p, in[i], i));
}

}  // namespace ampcheck
