// SPDX-License-Identifier: Apache-2.0
// Part of src/rounding_simd.cpp, for processors with AVX-512: what src/rounding_avx2.h does, in vectors twice as wide
// and with masks. No include guard: it is read where that target is compiled.

HWY_INLINE __m512i LoadAhead(const std::uint8_t* in) {
  hwy::Prefetch(in + kPrefetchAhead);
  return _mm512_loadu_si512(in);
}

/// x, its NaN made one without payload: there is seldom one.
HWY_INLINE __m512i WithoutPayload(__m512i x) {
  const __m512i mag = _mm512_and_si512(x, _mm512_set1_epi32(0x7fffffff));
  const __mmask16 nan =
      _mm512_cmpgt_epi32_mask(mag, _mm512_set1_epi32(static_cast<int>(Wide<std::uint32_t>::kInfinity)));
  if (HWY_LIKELY(nan == 0)) return x;
  return _mm512_mask_xor_epi32(
      x, nan, x, _mm512_xor_si512(mag, _mm512_set1_epi32(static_cast<int>(Wide<std::uint32_t>::kQuietNan))));
}

/// fp16 by the processor's own conversion: the right bits, of subnormals too, whatever the environment flushes.
template <Rounding R>
HWY_NOINLINE std::size_t EncodeFp16(const std::uint8_t* in, std::size_t n, std::uint8_t* out) {
  constexpr int kRounding = R == Rounding::nearest_even ? _MM_FROUND_TO_NEAREST_INT : _MM_FROUND_TO_ZERO;
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512i x = WithoutPayload(LoadAhead(in + i * 4));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i * 2),
                        _mm512_cvtps_ph(_mm512_castsi512_ps(x), kRounding | _MM_FROUND_NO_EXC));
  }
  return i;
}

template <Rounding R>
HWY_NOINLINE std::size_t EncodeBf16(const std::uint8_t* in, std::size_t n, std::uint8_t* out) {
  alignas(64) std::uint16_t upper[32];
  for (std::size_t k = 0; k < 32; ++k)
    upper[k] = static_cast<std::uint16_t>(2 * k + 1);  // halves of two vectors side by side
  const __m512i index = _mm512_load_si512(upper), below_half = _mm512_set1_epi32(0x7fff), one = _mm512_set1_epi32(1);
  const auto rounded = [&](const std::uint8_t* from) INLINE_LAMBDA {
    const __m512i x = WithoutPayload(LoadAhead(from));
    if constexpr (R == Rounding::toward_zero)
      return x;
    else
      return _mm512_add_epi32(_mm512_add_epi32(x, below_half), _mm512_and_si512(_mm512_srli_epi32(x, 16), one));
  };
  std::size_t i = 0;
  for (; i + 32 <= n; i += 32)
    _mm512_storeu_si512(out + i * 2, _mm512_permutex2var_epi16(rounded(in + i * 4), index, rounded(in + i * 4 + 64)));
  return i;
}

/// By way of fp16, as there; what lies below the bit that is set to be odd may stay.
template <Rounding R, bool kE4m3>
HWY_NOINLINE std::size_t EncodeFp8(const std::uint8_t* in, std::size_t n, std::uint8_t* out) {
  constexpr bool kNearest = R == Rounding::nearest_even;
  constexpr int kShift = kE4m3 ? 7 : 8;
  const __m512i below = _mm512_set1_epi32(0x1ffff), sticky = _mm512_set1_epi32(0x20000);
  const __m512 scale = _mm512_set1_ps(0x1p-8f);
  const auto half_of = [&](const std::uint8_t* from) INLINE_LAMBDA {
    __m512i x = LoadAhead(from);
    if constexpr (kNearest)
      x = _mm512_ternarylogic_epi32(x, _mm512_add_epi32(_mm512_and_si512(x, below), below), sticky,
                                    0xf8);  // x | (carried & sticky)
    __m512 value = _mm512_castsi512_ps(x);
    if constexpr (kE4m3) value = _mm512_mul_ps(value, scale);
    return _mm512_cvtps_ph(value, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  };
  const auto codes_of = [&](const std::uint8_t* from) INLINE_LAMBDA {
    const __m512i halves = _mm512_inserti64x4(_mm512_castsi256_si512(half_of(from)), half_of(from + 64), 1);
    const __m512i mag = _mm512_and_si512(halves, _mm512_set1_epi16(0x7fff));
    __m512i sum = mag;  // of NaN it may be anything: its code is put in below
    if constexpr (kNearest) {
      const __m512i last = _mm512_and_si512(_mm512_srli_epi16(sum, kShift), _mm512_set1_epi16(1));
      sum = _mm512_add_epi16(_mm512_add_epi16(sum, _mm512_set1_epi16((1 << (kShift - 1)) - 1)), last);
    }
    __m512i code = _mm512_srli_epi16(sum, kShift);
    // e4m3fn has NaN alone beyond 448; toward zero, only what is infinite or NaN gets there.
    if constexpr (kE4m3) code = _mm512_min_epu16(code, _mm512_set1_epi16(kNearest ? 0x7f : 0x7e));
    if constexpr (!kE4m3)
      code =
          _mm512_mask_mov_epi16(code, _mm512_cmpgt_epi16_mask(mag, _mm512_set1_epi16(0x7c00)), _mm512_set1_epi16(0x7e));
    else if constexpr (!kNearest)
      code =
          _mm512_mask_mov_epi16(code, _mm512_cmpgt_epi16_mask(mag, _mm512_set1_epi16(0x7bff)), _mm512_set1_epi16(0x7f));
    return _mm512_ternarylogic_epi32(code, _mm512_srli_epi16(halves, 8), _mm512_set1_epi16(0x80),
                                     0xf8);  // code | (sign & 0x80)
  };
  const __m512i in_order = _mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0);  // of what is packed within quarters
  std::size_t i = 0;
  for (; i + 64 <= n; i += 64)
    _mm512_storeu_si512(out + i, _mm512_permutexvar_epi64(
                                     in_order, _mm512_packus_epi16(codes_of(in + i * 4), codes_of(in + i * 4 + 128))));
  return i;
}
