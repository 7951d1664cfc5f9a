// SPDX-License-Identifier: Apache-2.0
// Part of src/rounding_simd.cpp: the formula of src/rounding_params.h on one vector, the code of a number and the
// number of a code. No include guard: it is read once per SIMD target.

using D32 = hn::ScalableTag<std::uint32_t>;
using D64 = hn::ScalableTag<std::uint64_t>;

/// Bit layout of the wide side: fp32 in 32-bit lanes, fp64 in 64-bit lanes.
template <class T>
struct Wide;
template <>
struct Wide<std::uint32_t> {
  using Float = float;
  static constexpr int kFraction = 23;
  static constexpr std::uint32_t kInfinity = 0x7f800000u;
  static constexpr std::uint32_t kQuietNan = 0x7fc00000u;
  static constexpr int kMaxRandomShift = 31;
};
template <>
struct Wide<std::uint64_t> {
  using Float = double;
  static constexpr int kFraction = 52;
  static constexpr std::uint64_t kInfinity = 0x7ff0000000000000u;
  static constexpr std::uint64_t kQuietNan = 0x7ff8000000000000u;
  static constexpr int kMaxRandomShift = 62;
};

template <class D>
HWY_INLINE hn::Vec<D> Constant(D d, std::uint64_t value) {
  return hn::Set(d, static_cast<hn::TFromD<D>>(value));
}

// Every number compared below is under 2^(lane bits - 1): signed comparisons are right and are what AVX2 has.
template <class D, class V>
HWY_INLINE auto Greater(D d, V a, V b) {
  const hn::RebindToSigned<D> ds;
  return hn::RebindMask(d, hn::Gt(hn::BitCast(ds, a), hn::BitCast(ds, b)));
}
template <class D, class V>
HWY_INLINE V Smaller(D d, V a, V b) {
  const hn::RebindToSigned<D> ds;
  return hn::BitCast(d, hn::Min(hn::BitCast(ds, a), hn::BitCast(ds, b)));
}
template <class D, class V>
HWY_INLINE V Larger(D d, V a, V b) {
  const hn::RebindToSigned<D> ds;
  return hn::BitCast(d, hn::Max(hn::BitCast(ds, a), hn::BitCast(ds, b)));
}
/// value where the mask holds, which must be no less than what `code` has there. Without mask registers a blend costs
/// two operations more than a maximum.
template <class D, class M, class V>
HWY_INLINE V RaiseWhere(D d, M mask, V value, V code) {
  if constexpr (HWY_TARGET == HWY_AVX2 && sizeof(hn::TFromD<D>) == 4)
    return Larger(d, code, hn::IfThenElseZero(mask, value));
  else
    return hn::IfThenElse(mask, value, code);
}

template <class D, class V>
HWY_INLINE V SignMask(D d, V x) {
  const hn::RebindToSigned<D> ds;
  return hn::BitCast(d, hn::BroadcastSignBit(hn::BitCast(ds, x)));
}

template <class D32Any>
HWY_INLINE hn::Vec<D32Any> Mix32(D32Any d, hn::Vec<D32Any> x) {
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(d, 0x7feb352du));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(d, 0x846ca68bu));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}

/// 31 random bits per lane for the elements index, index + 1, ...; lane: 0, 1, ...
template <class D, class V32>
HWY_INLINE hn::Vec<D> Random31(D d, RandomKeys keys, V32 lane, std::uint64_t index) {
  const hn::Rebind<std::uint32_t, D> d32;
  const auto counter = hn::Add(lane, hn::Set(d32, static_cast<std::uint32_t>(index) + keys.first));
  const auto bits = hn::ShiftRight<1>(Mix32(d32, hn::Xor(Mix32(d32, counter), hn::Set(d32, keys.second))));
  if constexpr (sizeof(hn::TFromD<D>) == 4)
    return bits;
  else
    return hn::PromoteTo(d, bits);
}

/// v / 2^n rounded; sign: all ones for negative numbers.
template <Rounding R, class D, class V>
HWY_INLINE V RoundShift(D d, V v, V n, V sign, V random) {
  constexpr int kBits = static_cast<int>(sizeof(hn::TFromD<D>) * 8);
  const V one = Constant(d, 1);
  const V ones = Constant(d, ~std::uint64_t{0});
  const V floor = hn::Shr(v, n);
  if constexpr (R == Rounding::toward_zero) return floor;
  // 2^(n-1) - 1 and 2^n - 1; n >= 1 in every mode that gets here
  const V below_half = hn::Shr(hn::ShiftRight<1>(ones), hn::Sub(Constant(d, kBits), n));
  const V rest = hn::Shr(ones, hn::Sub(Constant(d, kBits), n));
  if constexpr (R == Rounding::nearest_even) return hn::Shr(hn::Add(hn::Add(v, below_half), hn::And(floor, one)), n);
  if constexpr (R == Rounding::nearest_away) return hn::Shr(hn::Add(hn::Add(v, below_half), one), n);
  if constexpr (R == Rounding::up) return hn::Shr(hn::Add(v, hn::AndNot(sign, rest)), n);
  if constexpr (R == Rounding::down) return hn::Shr(hn::Add(v, hn::And(sign, rest)), n);
  if constexpr (R == Rounding::to_odd)
    return hn::Or(floor, hn::IfThenZeroElse(hn::Eq(hn::And(v, rest), hn::Zero(d)), one));
  if constexpr (R == Rounding::stochastic) {
    const V max = Constant(d, Wide<hn::TFromD<D>>::kMaxRandomShift);
    const V kept = Smaller(d, n, max);
    v = hn::Shr(v, Smaller(d, hn::Sub(n, kept), max));
    return hn::Shr(hn::Add(v, hn::Shr(random, hn::Sub(max, kept))), kept);
  }
}

/// e8m0: no sign, and nothing below its smallest number. Returns the magnitude bits as they would be at constant shift.
template <class D, class V>
HWY_INLINE V ScaleMagnitude(D d, const EncodeParams& p, V mag) {
  mag = Larger(d, mag, Constant(d, p.min_magnitude));
  if constexpr (sizeof(hn::TFromD<D>) ==
                4) {  // [2^-127, 2^-126) is subnormal in fp32: make it a binade like the others
    const V half = Constant(d, p.min_magnitude);
    const auto subnormal = Greater(d, hn::Add(half, half), mag);
    mag = hn::IfThenElse(subnormal, hn::ShiftLeft<1>(hn::Sub(mag, half)), mag);
  }
  return mag;
}

/// Code without storage shift of each lane of x (the bits of fp32 or fp64 numbers).
template <Rounding R, bool kConst, class D, class V>
HWY_INLINE V Encode(D d, const EncodeParams& p, V x, V random) {
  using W = Wide<hn::TFromD<D>>;
  const V infinity = Constant(d, W::kInfinity);
  const V mag = hn::And(x, Constant(d, (std::uint64_t{1} << (sizeof(hn::TFromD<D>) * 8 - 1)) - 1));
  if constexpr (R == Rounding::nearest_even && !kConst &&
                sizeof(hn::TFromD<D>) == 8) {  // nearly always: numbers in the normal range, or zeros
    const auto zero = hn::Eq(mag, hn::Zero(d));
    const auto normal =
        hn::AndNot(Greater(d, mag, Constant(d, p.most_normal)), Greater(d, mag, Constant(d, p.first_exponent - 1)));
    if (HWY_LIKELY(p.most_normal != 0 && hn::AllTrue(d, hn::Or(zero, normal)))) {
      const V v = hn::Sub(
          mag, Constant(d, p.first_exponent - (std::uint64_t{1} << W::kFraction)));  // its code, with more bits below
      const V odd = hn::And(hn::ShiftRightSame(v, p.shift), Constant(d, 1));
      const V code =
          hn::ShiftRightSame(hn::Add(hn::Add(v, Constant(d, (std::uint64_t{1} << (p.shift - 1)) - 1)), odd), p.shift);
      return hn::OrAnd(hn::IfThenZeroElse(zero, code), SignMask(d, x), Constant(d, p.sign_code));
    }
  }
  if (HWY_UNLIKELY(p.scale)) x = mag;
  const V sign = SignMask(d, x);
  V v, n;
  if constexpr (kConst) {
    v = hn::Sub(HWY_UNLIKELY(p.scale) ? ScaleMagnitude(d, p, mag) : mag, Constant(d, p.rebase));
    n = Constant(d, static_cast<unsigned>(p.shift));
  } else {
    // Magnitudes too small to matter are raised to one that rounds the same way, which also keeps n in range.
    const V raised = R == Rounding::stochastic ? mag : Larger(d, mag, Constant(d, p.smallest));
    const V implicit = Constant(d, std::uint64_t{1} << W::kFraction);
    V exponent = Smaller(d, hn::And(raised, infinity), Constant(d, p.first_exponent));
    if constexpr (R == Rounding::stochastic) exponent = Larger(d, exponent, implicit);
    v = hn::Sub(hn::Add(raised, implicit), exponent);
    n = hn::Sub(Constant(d, static_cast<unsigned>(p.shift) + (p.first_exponent >> W::kFraction)),
                hn::ShiftRight<W::kFraction>(exponent));
  }
  V code = RoundShift<R>(d, v, n, sign, random);
  if constexpr (!kConst && (R == Rounding::up || R == Rounding::down || R == Rounding::to_odd))
    code = hn::IfThenZeroElse(hn::Eq(mag, hn::Zero(d)), code);  // zero was raised too
  const V sign_bit = Constant(d, p.sign_code);
  const V nan_code = Constant(d, p.nan_code);
  if (HWY_LIKELY(p.simple || p.inward)) {
    V limit = Constant(d, p.limit_positive);
    if (p.inward) limit = hn::Sub(limit, hn::VecFromMask(d, Greater(d, mag, Constant(d, W::kInfinity - 1))));
    code = Smaller(d, code, limit);
    if (!p.limit_is_nan) code = RaiseWhere(d, Greater(d, mag, infinity), nan_code, code);
    return hn::OrAnd(code, sign, sign_bit);
  }
  const auto nan = Greater(d, mag, infinity);
  V limit = Constant(d, p.limit_positive);
  if (p.directed) limit = hn::Xor(limit, hn::And(sign, Constant(d, p.limit_positive ^ p.limit_negative)));
  code = Smaller(d, code, limit);
  if (p.remap) code = hn::IfThenElse(Greater(d, code, Constant(d, p.max_code)), Constant(d, p.over_code), code);
  code = RaiseWhere(d, hn::Eq(mag, infinity), Constant(d, p.infinity_code), code);
  code = RaiseWhere(d, nan, nan_code, code);
  if (!p.unusual) return hn::OrAnd(code, sign, sign_bit);
  V sign_code = hn::And(sign, sign_bit);
  if (p.flush_below != 0) code = hn::IfThenZeroElse(Greater(d, Constant(d, p.flush_below), mag), code);
  if (p.drop_negative_zero) sign_code = hn::IfThenZeroElse(hn::Eq(code, hn::Zero(d)), sign_code);
  if (p.nan_positive) sign_code = hn::IfThenZeroElse(nan, sign_code);
  return hn::Or(code, sign_code);
}

/// The bits of the numbers with these codes.
template <class D, class V>
HWY_INLINE V Decode(D d, const DecodeParams& p, V code) {
  using T = hn::TFromD<D>;
  using W = Wide<T>;
  const hn::RebindToFloat<D> df;
  const V sign_code = Constant(d, p.sign_code);
  const V mag = hn::And(code, Constant(d, p.magnitude_mask));
  V value = hn::Add(hn::ShiftLeftSame(mag, p.shift), Constant(d, p.rebase));
  if constexpr (sizeof(T) == 8) {  // nearly always all lanes are normal numbers or zeros
    const auto zero = hn::Eq(mag, hn::Zero(d));
    const auto normal =
        hn::AndNot(Greater(d, mag, Constant(d, p.max_code)), Greater(d, mag, Constant(d, p.min_normal_code - 1)));
    if (HWY_LIKELY(!p.one_nan && !p.constant_shift && hn::AllTrue(d, hn::Or(zero, normal))))
      return hn::Or(hn::IfThenZeroElse(zero, value), hn::ShiftLeftSame(hn::And(code, sign_code), 64 - p.code_bits));
  }
  if (!p.constant_shift) {
    // Subnormals: mag as an integer times the smallest number. Exact, so no rounding mode matters; x - x is -0 when
    // rounding down, hence Abs.
    const auto magic = hn::Set(df, static_cast<typename W::Float>(std::uint64_t{1} << W::kFraction));
    const auto integer = hn::Sub(hn::BitCast(df, hn::Or(mag, hn::BitCast(d, magic))), magic);
    const auto subnormal = hn::Mul(integer, hn::Set(df, static_cast<typename W::Float>(p.min_subnormal)));
    value = hn::IfThenElse(Greater(d, Constant(d, p.min_normal_code), mag), hn::BitCast(d, hn::Abs(subnormal)), value);
  }
  const auto is_infinity = hn::Eq(mag, Constant(d, p.infinity_code));
  const V special = hn::IfThenElse(is_infinity, Constant(d, W::kInfinity), Constant(d, W::kQuietNan));
  value = hn::IfThenElse(Greater(d, mag, Constant(d, p.max_code)), special, value);
  const V sign = hn::ShiftLeftSame(hn::And(code, sign_code), static_cast<int>(sizeof(T) * 8) - p.code_bits);
  value = hn::Or(value, sign);
  if (p.one_nan) value = hn::IfThenElse(hn::Eq(code, sign_code), Constant(d, W::kQuietNan), value);
  return value;
}
