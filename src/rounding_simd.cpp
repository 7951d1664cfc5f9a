// SPDX-License-Identifier: Apache-2.0
// The conversion loops, compiled once per SIMD target and chosen at run time. src/rounding_params.h has the formula.
#include <algorithm>
#include <cstring>
#include <string>

#include "src/error.h"
#include "src/rounding_params.h"

#ifndef HWY_DISABLE_PCLMUL_AES
#define HWY_DISABLE_PCLMUL_AES  // unused here; with them x86-64-v3 would count as SSSE3 and be compiled again as AVX2
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/rounding_simd.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // must precede highway.h
#include <hwy/highway.h>

#undef INLINE_LAMBDA  // the loops are only fast when everything they call is part of them
#define INLINE_LAMBDA HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace ampcheck::rounding_detail {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

#include "src/rounding_lanes.h"  // inside the namespace of this target

template <class D, class V>
HWY_INLINE void Store(D d, V code, int bytes, std::uint8_t* out) {
  const hn::Rebind<std::uint8_t, D> d8;
  const hn::Rebind<std::uint16_t, D> d16;
  if (bytes == 1) return hn::StoreU(hn::TruncateTo(d8, code), d8, out);
  if (bytes == 2) return hn::StoreU(hn::TruncateTo(d16, code), d16, reinterpret_cast<std::uint16_t*>(out));
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    const hn::Rebind<std::uint32_t, D> d32;
    if (bytes == 4) return hn::StoreU(hn::TruncateTo(d32, code), d32, reinterpret_cast<std::uint32_t*>(out));
  }
  hn::StoreU(code, d, reinterpret_cast<hn::TFromD<D>*>(out));
}

template <class D>
HWY_INLINE hn::Vec<D> Load(D d, int bytes, const std::uint8_t* in) {
  const hn::Rebind<std::uint8_t, D> d8;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto widen = [&](auto codes) INLINE_LAMBDA {
    if constexpr (sizeof(hn::TFromD<D>) == 4)
      return hn::PromoteTo(d, codes);
    else
      return hn::PromoteTo(d, hn::PromoteTo(hn::Rebind<std::uint32_t, D>(), codes));
  };
  if (bytes == 1) return widen(hn::LoadU(d8, in));
  if (bytes == 2) return widen(hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(in)));
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    const hn::Rebind<std::uint32_t, D> d32;
    if (bytes == 4) return hn::PromoteTo(d, hn::LoadU(d32, reinterpret_cast<const std::uint32_t*>(in)));
  }
  return hn::LoadU(d, reinterpret_cast<const hn::TFromD<D>*>(in));
}

constexpr std::size_t kPrefetchAhead = 4096;  // bytes

/// Calls body(in, i, out) for whole vectors, then once on padded copies for the rest. Sizes in bytes per element.
template <class D, class Body>
HWY_INLINE void ForEachVector(D d, const std::uint8_t* in, std::size_t in_bytes, std::size_t n, std::uint8_t* out,
                              std::size_t out_bytes, const Body& body) {
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    // From memory this is bound by reading; the hardware's own prefetching stops at every page. Measured: 1.3 times.
    hwy::Prefetch(in + i * in_bytes + kPrefetchAhead);
    body(in + i * in_bytes, i, out + i * out_bytes);
  }
  if (i == n) return;
  HWY_ALIGN std::uint8_t from[64] = {};
  HWY_ALIGN std::uint8_t to[64];
  std::memcpy(from, in + i * in_bytes, (n - i) * in_bytes);
  body(from, i, to);
  std::memcpy(out + i * out_bytes, to, (n - i) * out_bytes);
}

#undef AMPCHECK_KNOWN_FORMATS  // some formats have fewer operations than the formula that holds for every one
#if HWY_TARGET == HWY_AVX2
#define AMPCHECK_KNOWN_FORMATS 1
#include "src/rounding_avx2.h"
#elif HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
#define AMPCHECK_KNOWN_FORMATS 1
#include "src/rounding_avx512.h"
#else
#define AMPCHECK_KNOWN_FORMATS 0
#endif

#if AMPCHECK_KNOWN_FORMATS
/// The elements that fill whole vectors, where there is such a way; how many that were.
HWY_INLINE std::size_t EncodeKnown(const EncodeParams& p, const std::uint8_t* in, std::size_t n, std::uint8_t* out) {
  const auto by = [&]<Rounding R>() -> std::size_t {
    switch (p.known) {
      case Known::none: return 0;
      case Known::fp16: return EncodeFp16<R>(in, n, out);
      case Known::bf16: return EncodeBf16<R>(in, n, out);
      case Known::e4m3fn: return EncodeFp8<R, true>(in, n, out);
      case Known::e5m2: return EncodeFp8<R, false>(in, n, out);
    }
    return 0;
  };
  return p.rounding == Rounding::nearest_even ? by.template operator()<Rounding::nearest_even>()
                                              : by.template operator()<Rounding::toward_zero>();
}
#endif

template <Rounding R, bool kConst, class D, class Sink>
HWY_NOINLINE void EncodeLoop(D d, const EncodeParams& params, const std::uint8_t* in, std::size_t n,
                             std::uint64_t index, std::size_t out_bytes, std::uint8_t* out, Sink sink) {
  using T = hn::TFromD<D>;
  const EncodeParams p = params;  // a local copy, so that no store can be thought to change it
  const RandomKeys keys = random_keys(p.seed, index);
  const auto lane = hn::Iota(hn::Rebind<std::uint32_t, D>(), 0);
  ForEachVector(d, in, sizeof(T), n, out, out_bytes,
                [&](const std::uint8_t* from, std::size_t i, std::uint8_t* to) INLINE_LAMBDA {
                  auto random = hn::Zero(d);
                  if constexpr (R == Rounding::stochastic) {
                    random = Random31(d, keys, lane, index + i);
                    if constexpr (sizeof(T) == 8) random = hn::ShiftLeft<31>(random);
                  }
                  sink(Encode<R, kConst>(d, p, hn::LoadU(d, reinterpret_cast<const T*>(from)), random), to);
                });
}

template <bool kConst, class D, class Sink>
void EncodeRounding(D d, const EncodeParams& p, const std::uint8_t* in, std::size_t n, std::uint64_t index,
                    std::size_t out_bytes, std::uint8_t* out, Sink sink) {
  const auto run = [&]<Rounding R>() { EncodeLoop<R, kConst>(d, p, in, n, index, out_bytes, out, sink); };
  switch (p.rounding) {
    case Rounding::nearest_even: return run.template operator()<Rounding::nearest_even>();
    case Rounding::toward_zero: return run.template operator()<Rounding::toward_zero>();
    case Rounding::up: return run.template operator()<Rounding::up>();
    case Rounding::down: return run.template operator()<Rounding::down>();
    case Rounding::nearest_away: return run.template operator()<Rounding::nearest_away>();
    case Rounding::to_odd: return run.template operator()<Rounding::to_odd>();
    case Rounding::stochastic: return run.template operator()<Rounding::stochastic>();
  }
}

template <class D, class Sink>
void EncodeAny(D d, const EncodeParams& p, const void* in, std::size_t n, std::uint64_t index, std::size_t out_bytes,
               void* out, Sink sink) {
  const auto* from = static_cast<const std::uint8_t*>(in);
  auto* to = static_cast<std::uint8_t*>(out);
  if (p.constant_shift) return EncodeRounding<true>(d, p, from, n, index, out_bytes, to, sink);
  EncodeRounding<false>(d, p, from, n, index, out_bytes, to, sink);
}

template <class D>
void EncodePacked(D d, const EncodeParams& p, const void* in, std::size_t n, std::uint64_t index, int bytes,
                  void* out) {
  const int storage_shift = p.storage_shift;
  EncodeAny(d, p, in, n, index, static_cast<std::size_t>(bytes), out, [=](auto code, std::uint8_t* to) INLINE_LAMBDA {
    if (storage_shift != 0) code = hn::ShiftLeftSame(code, storage_shift);
    Store(d, code, bytes, to);
  });
}

void EncodeFloats(const EncodeParams& p, const float* in, std::size_t n, std::uint64_t index, int bytes, void* out) {
#if AMPCHECK_KNOWN_FORMATS
  const std::size_t done =
      EncodeKnown(p, reinterpret_cast<const std::uint8_t*>(in), n, static_cast<std::uint8_t*>(out));
  in += done;
  n -= done;
  index += done;
  out = static_cast<std::uint8_t*>(out) + done * static_cast<std::size_t>(bytes);
#endif
  EncodePacked(D32(), p, in, n, index, bytes, out);
}

/// fp64 to nearest even in 16 bits where numbers are normal or zero there, on the upper halves alone: their last bit is
/// set where the lower half is not zero, which rounds alike. Other numbers go the way of all. Returns how many that
/// fill whole vectors were made.
std::size_t EncodeDoublesIn16(const EncodeParams& params, const double* in, std::size_t n, std::uint16_t* out) {
  const EncodeParams p = params;
  if (p.rounding != Rounding::nearest_even || p.constant_shift || p.most_normal == 0 || p.shift < 34 ||
      p.storage_shift != 0)
    return 0;
  const D64 d;
  const hn::Repartition<std::uint32_t, D64> w;
  const hn::Rebind<std::uint16_t, decltype(w)> d16;
  const auto upper_half = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); };
  const int shift = p.shift - 32;
  const auto one = Constant(w, 1), most = Constant(w, upper_half(p.most_normal) - 1),
             least = Constant(w, upper_half(p.first_exponent) - 1);
  const auto rebase = Constant(w, upper_half(p.first_exponent) - (1u << 20)),
             below_half = Constant(w, (1u << (shift - 1)) - 1), sign_code = Constant(w, p.sign_code);
  std::size_t i = 0;
  for (; i + hn::Lanes(w) <= n; i += hn::Lanes(w)) {
    hwy::Prefetch(in + i + kPrefetchAhead / sizeof(double));
    const auto* const from = reinterpret_cast<const std::uint64_t*>(in + i);
    const auto first = hn::LoadU(d, from), second = hn::LoadU(d, from + hn::Lanes(d));
    const auto upper = hn::ConcatOdd(w, hn::BitCast(w, second), hn::BitCast(w, first)),
               lower = hn::ConcatEven(w, hn::BitCast(w, second), hn::BitCast(w, first));
    const auto mag =
        hn::Or(hn::And(upper, Constant(w, 0x7fffffffu)), hn::IfThenZeroElse(hn::Eq(lower, hn::Zero(w)), one));
    const auto zero = hn::Eq(mag, hn::Zero(w));
    if (HWY_UNLIKELY(!hn::AllTrue(w, hn::Or(zero, hn::AndNot(Greater(w, mag, most), Greater(w, mag, least)))))) {
      const hn::Rebind<std::uint16_t, D64> half16;
      hn::StoreU(hn::TruncateTo(half16, Encode<Rounding::nearest_even, false>(d, p, first, first)), half16, out + i);
      hn::StoreU(hn::TruncateTo(half16, Encode<Rounding::nearest_even, false>(d, p, second, second)), half16,
                 out + i + hn::Lanes(d));
      continue;
    }
    const auto v = hn::Sub(mag, rebase), odd = hn::And(hn::ShiftRightSame(v, shift), one);
    const auto code = hn::IfThenZeroElse(zero, hn::ShiftRightSame(hn::Add(hn::Add(v, below_half), odd), shift));
    hn::StoreU(hn::TruncateTo(d16, hn::OrAnd(code, SignMask(w, upper), sign_code)), d16, out + i);
  }
  return i;
}

void EncodeDoubles(const EncodeParams& p, const double* in, std::size_t n, std::uint64_t index, int bytes, void* out) {
  if (bytes == 2) {
    const std::size_t done = EncodeDoublesIn16(p, in, n, static_cast<std::uint16_t*>(out));
    in += done;
    n -= done;
    index += done;
    out = static_cast<std::uint16_t*>(out) + done;
  }
  EncodePacked(D64(), p, in, n, index, bytes, out);
}

/// Rounding to nearest even where all numbers are normal or zero: no code is made. False where some are not; then
/// nothing counts.
bool RoundNormals(const EncodeParams& params, const double* in, std::size_t n, double* out) {
  const D64 d;
  const hn::RebindToFloat<D64> df;
  const EncodeParams p = params;
  const auto magnitude = Constant(d, ~std::uint64_t{0} >> 1), most = Constant(d, p.most_normal),
             least = Constant(d, p.first_exponent - 1), one = Constant(d, 1);
  const auto below_half = Constant(d, (std::uint64_t{1} << (p.shift - 1)) - 1),
             rest = Constant(d, (std::uint64_t{1} << p.shift) - 1);
  auto all = hn::Eq(one, one);
  const auto round = [&](auto value) INLINE_LAMBDA {
    const auto x = hn::BitCast(d, value), mag = hn::And(x, magnitude);
    all = hn::And(all, hn::Or(hn::Eq(mag, hn::Zero(d)), hn::AndNot(Greater(d, mag, most), Greater(d, mag, least))));
    const auto even = hn::Add(hn::Add(x, below_half),
                              hn::And(hn::ShiftRightSame(x, p.shift), one));  // the sign stays: nothing overflows
    return hn::BitCast(df, hn::AndNot(rest, even));
  };
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) hn::StoreU(round(hn::LoadU(df, in + i)), df, out + i);
  for (; i < n; ++i) out[i] = hn::GetLane(round(hn::Set(df, in[i])));
  return hn::AllTrue(d, all);
}

void RoundDoubles(const EncodeParams& p, const DecodeParams& params, const double* in, std::size_t n,
                  std::uint64_t index, double* out) {
  const D64 d;
  const bool plain = p.rounding == Rounding::nearest_even && !p.constant_shift && p.flush_below == 0 &&
                     p.most_normal != 0 && p.shift > 0;
  constexpr std::size_t kStep = 512;
  for (std::size_t start = 0; start < n; start += kStep) {
    const std::size_t step = std::min(kStep, n - start);
    HWY_ALIGN double room[kStep];  // `out` may be `in`
    if (plain && RoundNormals(p, in + start, step, room)) {
      std::memcpy(out + start, room, step * sizeof(double));
      continue;
    }
    EncodeAny(d, p, in + start, step, index + start, sizeof(double), out + start,
              [d, decode = params](auto code, std::uint8_t* to)
                  INLINE_LAMBDA { hn::StoreU(Decode(d, decode, code), d, reinterpret_cast<std::uint64_t*>(to)); });
  }
}

template <class D>
void DecodePacked(D d, const DecodeParams& params, const void* in, std::size_t n, void* out) {
  const DecodeParams p = params;
  ForEachVector(d, static_cast<const std::uint8_t*>(in), static_cast<std::size_t>(p.bytes), n,
                static_cast<std::uint8_t*>(out), sizeof(hn::TFromD<D>),
                [&](const std::uint8_t* from, std::size_t, std::uint8_t* to) INLINE_LAMBDA {
                  const auto code = hn::ShiftRightSame(Load(d, p.bytes, from), p.storage_shift);
                  hn::StoreU(Decode(d, p, code), d, reinterpret_cast<hn::TFromD<D>*>(to));
                });
}

#if AMPCHECK_KNOWN_FORMATS
/// fp16 by the processor's own conversion, but for NaN, which loses its payload. How many fill whole vectors.
std::size_t DecodeFp16(const DecodeParams& params, const std::uint16_t* in, std::size_t n, float* out) {
  const D32 d;
  const hn::RebindToFloat<D32> df;
  const hn::Rebind<std::int16_t, D32> d16;
  const hn::Rebind<hwy::float16_t, D32> half;
  const DecodeParams p = params;
  const auto magnitude = hn::Set(d16, 0x7fff), infinity = hn::Set(d16, 0x7c00);
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const auto code = hn::LoadU(d16, reinterpret_cast<const std::int16_t*>(in + i));
    if (HWY_LIKELY(hn::AllFalse(d16, hn::Gt(hn::And(code, magnitude), infinity))))
      hn::StoreU(hn::PromoteTo(df, hn::BitCast(half, code)), df, out + i);
    else
      hn::StoreU(Decode(d, p, hn::PromoteTo(d, hn::BitCast(hn::Rebind<std::uint16_t, D32>(), code))), d,
                 reinterpret_cast<std::uint32_t*>(out + i));
  }
  return i;
}
#endif

void DecodeFloats(const DecodeParams& p, const void* in, std::size_t n, float* out) {
#if AMPCHECK_KNOWN_FORMATS
  if (p.known == Known::fp16) {
    const auto* const codes = static_cast<const std::uint16_t*>(in);
    const std::size_t done = DecodeFp16(p, codes, n, out);
    return DecodePacked(D32(), p, codes + done, n - done, out + done);
  }
#endif
  DecodePacked(D32(), p, in, n, out);
}
void DecodeDoubles(const DecodeParams& p, const void* in, std::size_t n, double* out) {
  DecodePacked(D64(), p, in, n, out);
}

void StreamCopy(const void* in, std::size_t bytes, void* out) {
  const hn::ScalableTag<std::uint8_t> d;
  const auto* from = static_cast<const std::uint8_t*>(in);
  auto* to = static_cast<std::uint8_t*>(out);
  for (std::size_t i = 0; i < bytes; i += hn::Lanes(d)) hn::Stream(hn::Load(d, from + i), d, to + i);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ampcheck::rounding_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ampcheck {
namespace rounding_detail {

HWY_EXPORT(EncodeFloats);
HWY_EXPORT(EncodeDoubles);
HWY_EXPORT(RoundDoubles);
HWY_EXPORT(DecodeFloats);
HWY_EXPORT(DecodeDoubles);
HWY_EXPORT(StreamCopy);

void encode_chunk(const EncodeParams& p, const float* in, std::size_t n, std::uint64_t index, int bytes, void* out) {
  HWY_DYNAMIC_DISPATCH(EncodeFloats)(p, in, n, index, bytes, out);
}
void encode_chunk(const EncodeParams& p, const double* in, std::size_t n, std::uint64_t index, int bytes, void* out) {
  HWY_DYNAMIC_DISPATCH(EncodeDoubles)(p, in, n, index, bytes, out);
}
void round_chunk(const EncodeParams& p, const DecodeParams& d, const double* in, std::size_t n, std::uint64_t index,
                 double* out) {
  HWY_DYNAMIC_DISPATCH(RoundDoubles)(p, d, in, n, index, out);
}
void decode_chunk(const DecodeParams& p, const void* in, std::size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(DecodeFloats)(p, in, n, out);
}
void decode_chunk(const DecodeParams& p, const void* in, std::size_t n, double* out) {
  HWY_DYNAMIC_DISPATCH(DecodeDoubles)(p, in, n, out);
}
void stream_copy(const void* in, std::size_t bytes, void* out) { HWY_DYNAMIC_DISPATCH(StreamCopy)(in, bytes, out); }

}  // namespace rounding_detail

namespace {

/// Asked once, before anything is forced: Highway's own answer shrinks to the forced target.
const std::vector<std::int64_t>& available_targets() {
  static const std::vector<std::int64_t> targets = hwy::SupportedAndGeneratedTargets();
  return targets;
}

std::string_view& forced_target() {
  static std::string_view name;
  return name;
}

}  // namespace

std::vector<std::string_view> simd_targets() {
  std::vector<std::string_view> names;
  for (const std::int64_t target : available_targets()) names.emplace_back(hwy::TargetName(target));
  return names;
}

std::string_view simd_target() { return forced_target().empty() ? simd_targets().front() : forced_target(); }

void set_simd_target(std::string_view name) {
  std::int64_t chosen = 0;
  std::int64_t all = 0;
  for (const std::int64_t target : available_targets()) {
    all |= target;
    if (name != hwy::TargetName(target)) continue;
    chosen = target;
    forced_target() = hwy::TargetName(target);
  }
  if (chosen == 0 && !name.empty())
    throw Error("[set_simd_target] target not available, got '" + std::string(name) +
                "', want '' or one of simd_targets()");
  if (name.empty()) forced_target() = {};
  hwy::SetSupportedTargetsForTest(chosen);  // 0 = what the machine has
  hwy::GetChosenTarget().Update(chosen != 0 ? chosen : all);
}

}  // namespace ampcheck
#endif  // HWY_ONCE
