// SPDX-License-Identifier: Apache-2.0
// A tile with vectors of kLanes numbers. Included once for each width and set of instructions, inside a namespace of
// its own and between HWY_PUSH_ATTRIBUTES and HWY_POP_ATTRIBUTES; written in the vector types of gcc and clang, so that
// every width is the same code and can be tested on every processor. No include guard.
//
// How a block runs: products of operands are exact in fp32, and so is a product times a power of two. Scaled by 2^(F-E)
// and converted to a whole number it is cut off toward zero as the core does it. The whole numbers are added in 32
// bits; the sum becomes an fp32 cut off toward zero, times 2^(E-F). Where 32 bits might not do, the block is left to
// the reference.

typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef std::int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef std::uint32_t Words __attribute__((vector_size(4 * kLanes)));
typedef std::int16_t Shorts __attribute__((vector_size(4 * kLanes)));      // of both vectors of columns
typedef std::int16_t HalfShorts __attribute__((vector_size(2 * kLanes)));  // of one

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
template <class V>
AMPCHECK_INLINE V larger(const V& x, const V& y) {
  return x > y ? x : y;
}
AMPCHECK_INLINE Ints all(int value) { return Ints{} + value; }

/// Exponent of c, as in the search for the largest.
AMPCHECK_INLINE Ints exponents_of(const Settings& s, const Floats& c) {
  const Ints size = bits_as<Ints>(c) & 0x7fffffff;
  return size == 0 ? all(s.zero_exponent) : larger((size >> 23) - 127, all(s.c_least_exponent));
}

/// To nearest even in fp16, of fp32 values whose last bit is set where anything was cut off. What overflows is
/// infinite; what becomes zero is +0.
AMPCHECK_INLINE Floats nearest_fp16(const Floats& v) {
  const Ints bits = bits_as<Ints>(v), size = bits & 0x7fffffff, sign = bits ^ size;
  constexpr int kDropped = (1 << 13) - 1;  // 11 of 24 bits stay
  const Ints up = (size + ((size >> 13) & 1) + (kDropped >> 1)) & ~kDropped;
  const Ints finite = up >= 0x47800000 ? all(0x7f800000) : up;  // 2^16
  constexpr float kShift = 0.75f;  // the last bit of fp32 there is 2^-24, that of subnormal fp16
  const Floats small = (bits_as<Floats>(size) + kShift) - kShift;
  const Ints out = size < 0x38800000 ? bits_as<Ints>(small) : finite;  // 2^-14
  return bits_as<Floats>(out == 0 ? out : out | sign);
}

/// x - y; wraps.
AMPCHECK_INLINE Ints difference(const Ints& x, const Ints& y) {
  return bits_as<Ints>(bits_as<Words>(x) - bits_as<Words>(y));
}

/// The sum x of a block, in units of 2^(E-F), in the output type. `back`: 2^(E-F).
AMPCHECK_INLINE Floats finish(const Settings& s, const Ints& x, const Floats& back) {
#ifdef AMPCHECK_TO_FLOATS_TOWARD_ZERO
  if (s.result != Rule::Result::nearest_fp16) {
    const Ints cut = bits_as<Ints>(AMPCHECK_TO_FLOATS_TOWARD_ZERO(x));
    return bits_as<Floats>(s.result == Rule::Result::truncated_13_bits ? cut & ~0x3ff : cut) * back;
  }
#endif
  // Of the least number the size wraps: it stands only where a block is done again by the reference.
  const Ints sign = x & all(INT32_MIN), size = difference(x ^ (x >> 31), x >> 31);
  const Floats nearest = __builtin_convertvector(size, Floats);
  const Ints again = __builtin_convertvector(nearest, Ints);
  Ints cut = bits_as<Ints>(nearest) + (difference(size, again) >> 31);  // -1 where again is larger
  if (s.result == Rule::Result::nearest_fp16) {
    const Ints lost = __builtin_convertvector(bits_as<Floats>(cut), Ints) ^ size;
    cut |= bits_as<Ints>(bits_as<Words>(lost | difference(Ints{}, lost)) >> 31);
  }
  if (s.result == Rule::Result::truncated_13_bits) cut &= ~0x3ff;
  const Floats result = bits_as<Floats>(cut | sign) * back;
  // A zero has the sign of x, which is none.
  return s.result == Rule::Result::nearest_fp16 ? nearest_fp16(result) : result;
}

AMPCHECK_INLINE bool any(const Ints& flags) {
  std::int64_t each[sizeof(Ints) / 8], out = 0;
  std::memcpy(each, &flags, sizeof(Ints));
  for (const std::int64_t flag : each) out |= flag;
  return out != 0;
}

/// x + y; `odd` gets its highest bit where the sum does not fit, or comes so near that fp32 would round it to 2^31.
/// `fits`: it always does.
AMPCHECK_INLINE Ints add(const Ints& x, const Ints& y, bool fits, Ints& odd) {
  const Ints sum = bits_as<Ints>(bits_as<Words>(x) + bits_as<Words>(y));  // wraps: the flags say so
  if (!fits) odd |= ((x ^ sum) & (y ^ sum)) | bits_as<Ints>(bits_as<Words>(sum ^ (sum >> 31)) + 0x100u);
  return sum;
}

/// Sums of `count` products, at most 16, of both rows and both vectors of columns: below 2^31 at any F up to 25.
template <int count>
AMPCHECK_INLINE void add_products(const float* a, const float* b, const Floats (&scale)[kTileRows][2],
                                  Ints (&sums)[kTileRows][2]) {
  for (int row = 0; row < kTileRows; ++row)
    for (int half = 0; half < 2; ++half) sums[row][half] = Ints{};
#pragma GCC unroll 4
  for (int k = 0; k < count; ++k, a += kTileRows, b += 2 * kLanes) {
    const Floats low = load<Floats>(b), high = load<Floats>(b + kLanes);
    for (int row = 0; row < kTileRows; ++row) {
      sums[row][0] += __builtin_convertvector(low * a[row] * scale[row][0], Ints);
      sums[row][1] += __builtin_convertvector(high * a[row] * scale[row][1], Ints);
    }
  }
}

/// The largest exponent of the products of each element of the tile.
template <int products>
AMPCHECK_INLINE void find_largest(const Settings& s, const std::int16_t* a, const std::int16_t* b,
                                  std::int16_t (&out)[kTileRows][2 * kLanes]) {
  Shorts largest[kTileRows];
  for (int row = 0; row < kTileRows; ++row) largest[row] = Shorts{} + static_cast<std::int16_t>(s.least_exponent);
#pragma GCC unroll 4
  for (int k = 0; k < products; ++k) {
    const Shorts of_b = load<Shorts>(b + k * 2 * kLanes);
    for (int row = 0; row < kTileRows; ++row) largest[row] = larger(largest[row], of_b + a[k * kTileRows + row]);
  }
  for (int row = 0; row < kTileRows; ++row) store(largest[row], out[row]);
}

/// One block of `products`; c is left alone if false is returned: it needs the reference.
template <int products>
AMPCHECK_INLINE bool do_block(const Settings& s, const float* a, const std::int16_t* a_exponents, const float* b,
                              const std::int16_t* b_exponents, float* c, std::int64_t stride) {
  constexpr int kLeast = -101;  // 2^(E-F) is a normal number from here on, and so is every result
  std::int16_t largest[kTileRows][2 * kLanes];
  find_largest<products>(s, a_exponents, b_exponents, largest);
  Floats scale[kTileRows][2], of_c[kTileRows][2];
  Ints odd = Ints{};
  for (int row = 0; row < kTileRows; ++row)
    for (int half = 0; half < 2; ++half) {
      of_c[row][half] = load<Floats>(c + row * stride + half * kLanes);
      const Ints size = bits_as<Ints>(of_c[row][half]) & 0x7fffffff;
      const Ints of_products = __builtin_convertvector(load<HalfShorts>(largest[row] + half * kLanes), Ints);
      const Ints exponents = larger(of_products, exponents_of(s, of_c[row][half]));
      // Not finite, or not zero beside exponents below the least: sign bits, which cost less than comparisons.
      odd |= bits_as<Ints>(bits_as<Words>(size) + 0x00800000u) | ((exponents - kLeast) & difference(Ints{}, size));
      const Ints up = s.fraction - larger(exponents, all(kLeast));
      scale[row][half] = bits_as<Floats>((up + 127) << 23);
    }
  Ints sums[kTileRows][2], more[kTileRows][2] = {};
  add_products<(products < 16 ? products : 16)>(a, b, scale, sums);
  if constexpr (products > 16) add_products<products - 16>(a + 16 * kTileRows, b + 16 * 2 * kLanes, scale, more);
  // A product is below 2^(F+2), and so is c: of 8 products with F of 24 nine of these are below 2^30.
  const bool fits = products <= 8 && s.fraction <= 24;
  Floats results[kTileRows][2];
  for (int row = 0; row < kTileRows; ++row)
    for (int half = 0; half < 2; ++half) {
      Ints sum = sums[row][half];
      if constexpr (products > 16) sum = add(sum, more[row][half], false, odd);
      sum = add(sum, __builtin_convertvector(of_c[row][half] * scale[row][half], Ints), fits, odd);
      const Floats back = bits_as<Floats>((254 << 23) - bits_as<Ints>(scale[row][half]));
      results[row][half] = finish(s, sum, back);
    }
  if (any(odd & INT32_MIN)) return false;
  for (int row = 0; row < kTileRows; ++row)
    for (int half = 0; half < 2; ++half) store(results[row][half], c + row * stride + half * kLanes);
  return true;
}

template <int products>
inline std::int64_t blocks(const Settings& settings, const PanelView& a, const PanelView& b, std::int64_t begin,
                           std::int64_t end, float* c, std::int64_t stride) {
  const Settings s = settings;  // no store can be thought to change it
  for (std::int64_t block = begin; block < end; ++block) {
    if (a.odd[block] | b.odd[block]) return block;
    const std::int64_t k = block * products;
    if (!do_block<products>(s, a.values + k * kTileRows, a.exponents + k * kTileRows, b.values + k * 2 * kLanes,
                            b.exponents + k * 2 * kLanes, c, stride))
      return block;
  }
  return end;
}

inline std::int64_t tile(const Settings& settings, const PanelView& a, const PanelView& b, std::int64_t begin,
                         std::int64_t end, float* c, std::int64_t stride) {
  switch (settings.products) {
    case 4: return blocks<4>(settings, a, b, begin, end, c, stride);
    case 8: return blocks<8>(settings, a, b, begin, end, c, stride);
    case 16: return blocks<16>(settings, a, b, begin, end, c, stride);
    default: return blocks<32>(settings, a, b, begin, end, c, stride);
  }
}

#undef AMPCHECK_INLINE
