// SPDX-License-Identifier: Apache-2.0
// Part of src/rounding_simd.cpp, for processors with AVX2 but no AVX-512: fp32 to nearest even or toward zero in fp16,
// bf16, e4m3fn and e5m2 with fewer operations than the formula that holds for every format. No include guard: it is
// read where that target is compiled.

/// x, its NaN made one without payload.
HWY_INLINE hn::Vec<D32> WithoutPayload(D32 d, hn::Vec<D32> x) {
  const auto mag = hn::And(x, Constant(d, 0x7fffffffu));
  const auto nan = hn::VecFromMask(d, Greater(d, mag, Constant(d, Wide<std::uint32_t>::kInfinity)));
  return hn::Xor(x, hn::And(nan, hn::Xor(mag, Constant(d, Wide<std::uint32_t>::kQuietNan))));
}

HWY_INLINE hn::Vec<D32> LoadAhead(D32 d, const std::uint8_t* in) {
  hwy::Prefetch(in + kPrefetchAhead);
  return hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(in));
}

HWY_INLINE void StoreVector(__m256i v, std::uint8_t* out) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), v); }

/// fp16 by the processor's own conversion: the right bits, of subnormals too, whatever the environment flushes.
template <Rounding R>
HWY_NOINLINE std::size_t EncodeFp16(const std::uint8_t* in, std::size_t n, std::uint8_t* out) {
  constexpr int kRounding = R == Rounding::nearest_even ? _MM_FROUND_TO_NEAREST_INT : _MM_FROUND_TO_ZERO;
  const D32 d;
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const auto x = WithoutPayload(d, LoadAhead(d, in + i * 4));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i * 2),
                     _mm256_cvtps_ph(_mm256_castsi256_ps(x.raw), kRounding | _MM_FROUND_NO_EXC));
  }
  return i;
}

template <Rounding R>
HWY_NOINLINE std::size_t EncodeBf16(const std::uint8_t* in, std::size_t n, std::uint8_t* out) {
  const D32 d;
  const auto below_half = Constant(d, 0x7fffu), one = Constant(d, 1);
  const auto code_of = [&](const std::uint8_t* from) INLINE_LAMBDA {
    auto x = WithoutPayload(d, LoadAhead(d, from));
    if constexpr (R == Rounding::nearest_even) x = hn::Add(hn::Add(x, below_half), hn::And(hn::ShiftRight<16>(x), one));
    return hn::ShiftRight<16>(x).raw;
  };
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i packed =
        _mm256_packus_epi32(code_of(in + i * 4), code_of(in + i * 4 + 32));  // within each half of the vector
    StoreVector(_mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0)), out + i * 2);
  }
  return i;
}

/// e5m2 or e4m3fn by way of fp16, whose codes go on below theirs (those of e4m3fn 2^-8 lower). To nearest, x is rounded
/// to odd at 7 bits first, which fp16 holds down to half the smallest number of either: nothing is rounded twice.
template <Rounding R, bool kE4m3>
HWY_NOINLINE std::size_t EncodeFp8(const std::uint8_t* in, std::size_t n, std::uint8_t* out) {
  constexpr bool kNearest = R == Rounding::nearest_even;
  constexpr int kShift = kE4m3 ? 7 : 8;
  const D32 d;
  const hn::RebindToFloat<D32> df;
  const auto below = Constant(d, 0x1ffffu), above = Constant(d, 0xfffe0000u);
  const auto scale = hn::Set(df, 0x1p-8f);
  const __m256i infinity = _mm256_set1_epi16(0x7c00);
  const auto half_of = [&](const std::uint8_t* from) INLINE_LAMBDA {
    auto x = LoadAhead(d, from);
    if constexpr (kNearest) x = hn::And(hn::Or(x, hn::Add(hn::And(x, below), below)), above);
    auto value = hn::BitCast(df, x);
    if constexpr (kE4m3) value = hn::Mul(value, scale);
    return _mm256_cvtps_ph(value.raw, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  };
  const auto sixteen = [&](const std::uint8_t* from) INLINE_LAMBDA {
    const __m128i first = half_of(from), second = half_of(from + 32);
    const __m256i halves = _mm256_set_m128i(second, first);
    const __m256i mag = _mm256_and_si256(halves, _mm256_set1_epi16(0x7fff));
    __m256i sum = _mm256_min_epu16(mag, infinity);
    if constexpr (kNearest) {
      const __m256i last = _mm256_and_si256(_mm256_srli_epi16(sum, kShift), _mm256_set1_epi16(1));
      sum = _mm256_add_epi16(_mm256_add_epi16(sum, _mm256_set1_epi16((1 << (kShift - 1)) - 1)), last);
    }
    __m256i code = _mm256_srli_epi16(sum, kShift);
    // e4m3fn has NaN alone beyond 448; toward zero, only what is infinite or NaN gets there.
    if constexpr (kE4m3) code = _mm256_min_epu16(code, _mm256_set1_epi16(kNearest ? 0x7f : 0x7e));
    if constexpr (!kE4m3)
      code = _mm256_or_si256(code, _mm256_and_si256(_mm256_cmpgt_epi16(mag, infinity), _mm256_set1_epi16(0x7e)));
    else if constexpr (!kNearest)
      code = _mm256_or_si256(
          code, _mm256_and_si256(_mm256_cmpgt_epi16(mag, _mm256_set1_epi16(0x7bff)), _mm256_set1_epi16(0x7f)));
    return _mm256_or_si256(code, _mm256_and_si256(_mm256_srli_epi16(halves, 8), _mm256_set1_epi16(0x80)));
  };
  std::size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m256i packed = _mm256_packus_epi16(sixteen(in + i * 4), sixteen(in + i * 4 + 64));
    StoreVector(_mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0)), out + i);
  }
  return i;
}
