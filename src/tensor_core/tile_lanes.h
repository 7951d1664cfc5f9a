// SPDX-License-Identifier: Apache-2.0
// A tile with vectors of kLanes numbers. Included once for each width and set of instructions, inside a namespace of its own
// and between HWY_PUSH_ATTRIBUTES and HWY_POP_ATTRIBUTES; written in the vector types of gcc and clang, so that every
// width is the same code and can be tested on every processor. No include guard.
//
// How a block runs: products of operands are exact in fp32, and so is a product times a power of two. Scaled by 2^(F-E) and
// converted to a whole number it is cut off toward zero as the core does it. 16 such terms fit into 32 bits. The sum and c
// go on in fp64, where all of it is exact, and are cut off there by clearing bits.

typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef std::int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef std::int16_t Shorts __attribute__((vector_size(4 * kLanes)));      // of both vectors of columns
typedef std::int16_t HalfShorts __attribute__((vector_size(2 * kLanes)));  // of one
typedef double Doubles __attribute__((vector_size(4 * kLanes)));           // of half a vector of columns
typedef std::int64_t Longs __attribute__((vector_size(4 * kLanes)));
typedef float HalfFloats __attribute__((vector_size(2 * kLanes)));
typedef std::int32_t HalfInts __attribute__((vector_size(2 * kLanes)));

#define AMPCHECK_INLINE inline __attribute__((always_inline))

template <class V, class T>
AMPCHECK_INLINE V load(const T* from) {
  V out;
  std::memcpy(&out, from, sizeof(V));
  return out;
}
template <class V, class T>
AMPCHECK_INLINE void store(const V& v, T* to) {
  std::memcpy(to, &v, sizeof(V));
}
template <class To, class From>
AMPCHECK_INLINE To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To out;
  std::memcpy(&out, &from, sizeof(To));
  return out;
}

template <int half>
AMPCHECK_INLINE HalfInts half_of(const Ints& v) {
  if constexpr (kLanes == 8)
    return __builtin_shufflevector(v, v, 4 * half, 4 * half + 1, 4 * half + 2, 4 * half + 3);
  else
    return __builtin_shufflevector(v, v, 8 * half, 8 * half + 1, 8 * half + 2, 8 * half + 3, 8 * half + 4, 8 * half + 5,
                                   8 * half + 6, 8 * half + 7);
}

template <class V>
AMPCHECK_INLINE V larger(const V& x, const V& y) {
  return x > y ? x : y;
}

/// Exponent of c, as in a search for the largest.
AMPCHECK_INLINE Ints exponents_of(const Settings& s, const Floats& c) {
  const Ints bits = bits_as<Ints>(c) & 0x7fffffff;
  const Ints exponent = larger((bits >> 23) - 127, Ints{} + s.c_least_exponent);
  return bits == 0 ? Ints{} + s.zero_exponent : exponent;
}

/// To nearest even in fp16, as a double. What overflows is infinite; what becomes zero is +0.
AMPCHECK_INLINE Doubles nearest_fp16(const Doubles& v) {
  const Longs bits = bits_as<Longs>(v), size = bits & 0x7fffffffffffffff;
  constexpr std::int64_t kDropped = (std::int64_t{1} << 42) - 1;  // 11 of 53 bits stay
  const Longs up = size + ((size >> 42) & 1) + (kDropped >> 1);
  const Doubles normal = bits_as<Doubles>((up & ~kDropped) | (bits ^ size));
  constexpr double kShift = 0x1.8p28;  // the last bit of a double there is 2^-24, that of subnormal fp16
  const Doubles subnormal = (v + kShift) - kShift;
  const Doubles absolute = bits_as<Doubles>(size);
  const Doubles rounded = absolute < 0x1p-14 ? subnormal : normal;
  const Doubles infinite = bits_as<Doubles>((Longs{} + 0x7ff0000000000000) | (bits ^ size));
  const Doubles finite = rounded + 0.0;  // -0 becomes +0
  return bits_as<Doubles>(bits_as<Longs>(rounded) & 0x7fffffffffffffff) > 65504.0 ? infinite : finite;
}

/// Half a vector of results: sums of products in units of 2^(E-F), and c. Sets `odd` where the result needs the reference.
AMPCHECK_INLINE HalfFloats finish(const Settings& s, const Doubles& products, const HalfInts& exponents,
                                  const HalfFloats& c, Longs& odd) {
  const Longs up = __builtin_convertvector(s.fraction - exponents, Longs);
  const Doubles scale = bits_as<Doubles>((up + 1023) << 52), back = bits_as<Doubles>((1023 - up) << 52);
  const Doubles scaled = __builtin_convertvector(c, Doubles) * scale;
  const Doubles sum = products + __builtin_convertvector(__builtin_convertvector(scaled, HalfInts), Doubles);
  if (s.result == Rule::Result::nearest_fp16)
    return __builtin_convertvector(nearest_fp16(sum * back), HalfFloats);
  const std::int64_t kept = s.result == Rule::Result::truncated ? ~((std::int64_t{1} << 29) - 1)   // 24 of 53 bits
                                                                : ~((std::int64_t{1} << 39) - 1);  // 14
  const Doubles result = bits_as<Doubles>(bits_as<Longs>(sum) & kept) * back;
  const Longs size = bits_as<Longs>(result) & 0x7fffffffffffffff;
  odd |= (size < 0x3810000000000000) & (size != 0);  // below 2^-126
  return __builtin_convertvector(result, HalfFloats);
}

AMPCHECK_INLINE bool any(const Longs& flags) {
  std::int64_t each[sizeof(Longs) / 8], out = 0;
  std::memcpy(each, &flags, sizeof(Longs));
  for (const std::int64_t flag : each) out |= flag;
  return out != 0;
}

/// Sums of `count` products, at most 16, of both rows and both vectors of columns.
AMPCHECK_INLINE void add_products(const float* a, const float* b, int count, const Floats (&scale)[kTileRows][2],
                                  Ints (&sums)[kTileRows][2]) {
  for (int row = 0; row < kTileRows; ++row)
    for (int half = 0; half < 2; ++half) sums[row][half] = Ints{};
  for (int k = 0; k < count; ++k, a += kTileRows, b += 2 * kLanes) {
    const Floats low = load<Floats>(b), high = load<Floats>(b + kLanes);
    for (int row = 0; row < kTileRows; ++row) {
      const Floats x = Floats{} + a[row];
      sums[row][0] += __builtin_convertvector(x * low * scale[row][0], Ints);
      sums[row][1] += __builtin_convertvector(x * high * scale[row][1], Ints);
    }
  }
}

/// One block; c is left alone if false is returned: it needs the reference.
AMPCHECK_INLINE bool do_block(const Settings& s, const float* a, const std::int16_t* a_exponents, const float* b,
                              const std::int16_t* b_exponents, float* c, std::int64_t stride) {
  Shorts largest[kTileRows];
  for (int row = 0; row < kTileRows; ++row) largest[row] = Shorts{} + static_cast<std::int16_t>(s.least_exponent);
  for (int k = 0; k < s.products; ++k) {
    const Shorts of_b = load<Shorts>(b_exponents + k * 2 * kLanes);
    for (int row = 0; row < kTileRows; ++row)
      largest[row] = larger(largest[row], of_b + a_exponents[k * kTileRows + row]);
  }
  Ints exponents[kTileRows][2];
  Floats scale[kTileRows][2];
  Ints infinite = Ints{};
  for (int row = 0; row < kTileRows; ++row)
    for (int half = 0; half < 2; ++half) {
      const Floats of_c = load<Floats>(c + row * stride + half * kLanes);
      infinite |= (bits_as<Ints>(of_c) & 0x7f800000) == 0x7f800000;
      std::int16_t each[2 * kLanes];
      store(largest[row], each);
      const Ints of_products = __builtin_convertvector(load<HalfShorts>(each + half * kLanes), Ints);
      // Below -200 there are only zeros.
      exponents[row][half] = larger(larger(of_products, exponents_of(s, of_c)), Ints{} - 200);
      const Ints up = s.fraction - exponents[row][half];
      scale[row][half] = bits_as<Floats>((larger(up, Ints{} - 126) > 127 ? Ints{} + 254 : up + 127) << 23);
    }
  Longs odd = bits_as<Longs>(infinite);
  Doubles products[kTileRows][2][2] = {};
  for (int begin = 0; begin < s.products; begin += 16) {
    Ints sums[kTileRows][2];
    add_products(a + begin * kTileRows, b + begin * 2 * kLanes, s.products - begin < 16 ? s.products - begin : 16, scale,
                 sums);
    for (int row = 0; row < kTileRows; ++row)
      for (int half = 0; half < 2; ++half) {
        products[row][half][0] += __builtin_convertvector(half_of<0>(sums[row][half]), Doubles);
        products[row][half][1] += __builtin_convertvector(half_of<1>(sums[row][half]), Doubles);
      }
  }
  HalfFloats results[kTileRows][2][2];
  for (int row = 0; row < kTileRows; ++row)
    for (int half = 0; half < 2; ++half) {
      const float* const at = c + row * stride + half * kLanes;
      results[row][half][0] = finish(s, products[row][half][0], half_of<0>(exponents[row][half]),
                                     load<HalfFloats>(at), odd);
      results[row][half][1] = finish(s, products[row][half][1], half_of<1>(exponents[row][half]),
                                     load<HalfFloats>(at + kLanes / 2), odd);
    }
  if (any(odd)) return false;
  for (int row = 0; row < kTileRows; ++row)
    for (int half = 0; half < 2; ++half)
      for (int part = 0; part < 2; ++part)
        store(results[row][half][part], c + row * stride + half * kLanes + part * kLanes / 2);
  return true;
}

inline std::int64_t tile(const Settings& settings, const PanelView& a, const PanelView& b, std::int64_t begin,
                         std::int64_t end, float* c, std::int64_t stride) {
  const Settings s = settings;  // no store can be thought to change it
  for (std::int64_t block = begin; block < end; ++block) {
    if (a.odd[block] | b.odd[block]) return block;
    const std::int64_t k = block * s.products;
    if (!do_block(s, a.values + k * kTileRows, a.exponents + k * kTileRows, b.values + k * 2 * kLanes,
                  b.exponents + k * 2 * kLanes, c, stride))
      return block;
  }
  return end;
}

#undef AMPCHECK_INLINE
