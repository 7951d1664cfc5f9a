// SPDX-License-Identifier: Apache-2.0
// cvt: every pair of integer and float types, and the packed ones of 8 and 16 bits.
#include <algorithm>
#include <cmath>
#include <limits>

#include "src/ptx/decode.h"
#include "src/ptx/rounded.h"
#include "src/rounding.h"

namespace ampcheck::ptx {

namespace {

/// Rounding, in Instruction::number: bits 0-1 a Direction, 2 ftz, 3 sat, 4 relu, 5 to a whole number.
constexpr std::int64_t kFtz = 4, kSat = 8, kRelu = 16, kWhole = 32;

template <class T>
double wide(T value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat>)
    return widened(value);
  else
    return static_cast<double>(value);
}

double whole(double x, Direction direction) {
  switch (direction) {
    case Direction::nearest: return std::nearbyint(x);
    case Direction::zero: return std::trunc(x);
    case Direction::down: return std::floor(x);
    case Direction::up: return std::ceil(x);
  }
  return x;
}

/// The type that a value of D fills a register with: one of 8 bits lies in 16.
template <class D>
using Filled =
    std::conditional_t<sizeof(D) == 1, std::conditional_t<std::is_signed_v<D>, std::int16_t, std::uint16_t>, D>;

template <class D, class S, bool sat>
void integer_to_integer(Warp& w, const Instruction& in) {
  const Stored<S>* const a = w.lanes<Stored<S>>(in.from[0]);
  into<Filled<D>>(w, in.to[0], [=](int i) -> Filled<D> {
    const S value = taken<S>(a[i]);
    if constexpr (sat) {
      const auto v = static_cast<__int128>(value);
      const auto low = static_cast<__int128>(std::numeric_limits<D>::min()),
                 high = static_cast<__int128>(std::numeric_limits<D>::max());
      return static_cast<D>(v < low ? low : v > high ? high : v);
    } else {
      return static_cast<D>(value);
    }
  });
}

template <class D, class S>
void float_to_integer(Warp& w, const Instruction& in) {
  const Stored<S>* const a = w.lanes<Stored<S>>(in.from[0]);
  const auto direction = static_cast<Direction>(in.number & 3);
  const bool ftz = (in.number & kFtz) != 0;
  each_into<Filled<D>>(w, in.to[0], [=](int i) -> Filled<D> {
    double x = wide(taken<S>(a[i]));
    if (ftz && std::fabs(x) < 0x1p-126) x = std::copysign(0.0, x);
    x = whole(x, direction);
    if (!(x == x)) return 0;
    constexpr double low = static_cast<double>(std::numeric_limits<D>::min());
    const double high = std::ldexp(1.0, static_cast<int>(8 * sizeof(D)) - (std::is_signed_v<D> ? 1 : 0));
    if (x < low) return std::numeric_limits<D>::min();
    return x >= high ? std::numeric_limits<D>::max() : static_cast<D>(x);
  });
}

template <class D>
D to_float(double x, Direction direction) {
  if constexpr (std::is_same_v<D, double>) {
    return x;
  } else if constexpr (std::is_same_v<D, float>) {
    return directed(x, direction);
  } else {
    if (direction == Direction::nearest) return narrowed(float_to_odd(x), D{});
    constexpr Rounding kModes[] = {Rounding::nearest_even, Rounding::toward_zero, Rounding::down, Rounding::up};
    const FloatFormat& format = std::is_same_v<D, Half> ? kFp16 : kBf16;
    return D{static_cast<std::uint16_t>(encode_scalar(format, x, {.rounding = kModes[static_cast<int>(direction)]}))};
  }
}

template <class D, class S>
void integer_to_float(Warp& w, const Instruction& in) {
  const Stored<S>* const a = w.lanes<Stored<S>>(in.from[0]);
  const auto direction = static_cast<Direction>(in.number & 3);
  if (direction == Direction::nearest && (std::is_same_v<D, float> || std::is_same_v<D, double>)) {
    into<D>(w, in.to[0], [=](int i) {
      if constexpr (std::is_same_v<D, float> || std::is_same_v<D, double>)
        return static_cast<D>(taken<S>(a[i]));
      else
        return D{};
    });
    return;
  }
  each_into<D>(w, in.to[0], [=](int i) { return to_float<D>(static_cast<double>(taken<S>(a[i])), direction); });
}

template <class D, class S>
void float_to_float(Warp& w, const Instruction& in) {
  const Stored<S>* const a = w.lanes<Stored<S>>(in.from[0]);
  const auto direction = static_cast<Direction>(in.number & 3);
  if (in.number == 0 && !std::is_same_v<S, double>) {  // the usual ones, as vector code
    into<D>(w, in.to[0], [=](int i) {
      const S x = taken<S>(a[i]);
      if constexpr (std::is_same_v<S, double>)
        return D{};
      else if constexpr (std::is_same_v<S, float> && (std::is_same_v<D, Half> || std::is_same_v<D, BFloat>))
        return narrowed(x, D{});
      else
        return to_float<D>(wide(x), Direction::nearest);
    });
    return;
  }
  if constexpr (std::is_same_v<D, float> && std::is_same_v<S, float>)
    if (in.number == kWhole) {  // to a whole number, to nearest
      into<float>(w, in.to[0], [=](int i) { return __builtin_rintf(taken<float>(a[i])); });
      return;
    }
  each_into<D>(w, in.to[0], [=](int i) {
    double x = wide(taken<S>(a[i]));
    const bool flush = (in.number & kFtz) != 0;
    if (flush && std::fabs(x) < 0x1p-126) x = std::copysign(0.0, x);
    if ((in.number & kWhole) != 0) x = whole(x, direction);
    if ((in.number & kSat) != 0) x = saturated(x);
    if ((in.number & kRelu) != 0 && x < 0) x = 0;
    D out = to_float<D>(x, (in.number & kWhole) != 0 ? Direction::nearest : direction);
    if constexpr (std::is_same_v<D, float>)
      if (flush) out = flushed(out);
    return out;
  });
}

/// d = {a, b} of two floats: a goes to the upper half.
template <class H>
void pack_halves(Warp& w, const Instruction& in) {
  const std::uint32_t *const a = w.lanes<std::uint32_t>(in.from[0]), *const b = w.lanes<std::uint32_t>(in.from[1]);
  const auto direction = static_cast<Direction>(in.number & 3);
  const bool relu = (in.number & kRelu) != 0;
  const auto one = [=](std::uint32_t bits) -> std::uint32_t {
    float x = std::bit_cast<float>(bits);
    if (relu) x = x < 0 ? 0 : x;
    return direction == Direction::nearest ? narrowed(x, H{}).bits : to_float<H>(x, direction).bits;
  };
  into<std::uint32_t>(w, in.to[0], [=](int i) { return one(a[i]) << 16 | one(b[i]); });
}

std::uint32_t eight_bits(double x, bool e5m2, bool relu) {
  if (relu && x < 0) x = 0;
  if (std::isnan(x)) return 0x7f;
  return static_cast<std::uint32_t>(encode_scalar(e5m2 ? kE5m2 : kE4m3fn, x, {.overflow = Overflow::saturate}));
}

template <bool e5m2>
void pack_eight(Warp& w, const Instruction& in) {
  const std::uint32_t *const a = w.lanes<std::uint32_t>(in.from[0]), *const b = w.lanes<std::uint32_t>(in.from[1]);
  const bool relu = (in.number & kRelu) != 0;
  each_into<std::uint16_t>(w, in.to[0], [=](int i) {
    return static_cast<std::uint16_t>(eight_bits(std::bit_cast<float>(a[i]), e5m2, relu) << 8 |
                                      eight_bits(std::bit_cast<float>(b[i]), e5m2, relu));
  });
}
template <bool e5m2>
void pack_eight_of_halves(Warp& w, const Instruction& in) {
  const std::uint32_t* const a = w.lanes<std::uint32_t>(in.from[0]);
  const bool relu = (in.number & kRelu) != 0;
  each_into<std::uint16_t>(w, in.to[0], [=](int i) {
    const double low = widened(Half{static_cast<std::uint16_t>(a[i])}),
                 high = widened(Half{static_cast<std::uint16_t>(a[i] >> 16)});
    return static_cast<std::uint16_t>(eight_bits(high, e5m2, relu) << 8 | eight_bits(low, e5m2, relu));
  });
}
template <bool e5m2>
void unpack_eight(Warp& w, const Instruction& in) {
  const std::uint32_t* const a = w.lanes<std::uint32_t>(in.from[0]);
  each_into<std::uint32_t>(w, in.to[0], [=](int i) {
    const auto half = [](std::uint32_t code) -> std::uint32_t {
      return narrowed(static_cast<float>(decode_scalar(e5m2 ? kE5m2 : kE4m3fn, code)), Half{}).bits;
    };
    return half(a[i] & 255u) | half(a[i] >> 8 & 255u) << 16;
  });
}

/// cvt.rna.tf32.f32 rounds ties away from zero, .rn to even; the 13 low bits are zero.
template <bool away>
void to_tf32(Warp& w, const Instruction& in) {
  const std::uint32_t* const a = w.lanes<std::uint32_t>(in.from[0]);
  into<std::uint32_t>(w, in.to[0], [=](int i) {
    const std::uint32_t u = a[i];
    const bool special = (u & 0x7f800000u) == 0x7f800000u;
    const std::uint32_t up = away ? 0x1000u : 0xfffu + (u >> 13 & 1u);
    return special ? ((u & 0x7fffffu) != 0 ? 0x7fffffffu : u) : (u + up) & ~0x1fffu;
  });
}

// ---- choosing ----

template <class F>
Execute of_integer(const Type& t, F f) {
  const bool s = t.kind == 's';
  switch (t.bits) {
    case 8: return s ? f(std::int8_t{}) : f(std::uint8_t{});
    case 16: return s ? f(std::int16_t{}) : f(std::uint16_t{});
    case 32: return s ? f(std::int32_t{}) : f(std::uint32_t{});
    case 64: return s ? f(std::int64_t{}) : f(std::uint64_t{});
    default: return nullptr;
  }
}
template <class F>
Execute of_float(const Type& t, F f) {
  if (t.kind == 'h') return f(BFloat{});
  return t.bits == 16 ? f(Half{}) : t.bits == 32 ? f(float{}) : t.bits == 64 ? f(double{}) : nullptr;
}

bool is_float_type(const Type& t) { return (t.kind == 'f' || t.kind == 'h') && t.lanes == 1; }
bool is_integer_type(const Type& t) { return t.kind == 's' || t.kind == 'u' || (t.kind == 'b' && t.lanes == 1); }

Execute scalar(const Type& to, const Type& from, std::int64_t number) {
  if (is_integer_type(to) && is_integer_type(from))
    return of_integer(to, [&]<class D>(D) {
      return of_integer(from, [&]<class S>(S) -> Execute {
        return (number & kSat) != 0 ? &integer_to_integer<D, S, true> : &integer_to_integer<D, S, false>;
      });
    });
  if (is_integer_type(to) && is_float_type(from))
    return of_integer(
        to, [&]<class D>(D) { return of_float(from, []<class S>(S) -> Execute { return &float_to_integer<D, S>; }); });
  if (is_float_type(to) && is_integer_type(from))
    return of_float(to, [&]<class D>(D) {
      return of_integer(from, []<class S>(S) -> Execute { return &integer_to_float<D, S>; });
    });
  if (is_float_type(to) && is_float_type(from))
    return of_float(
        to, [&]<class D>(D) { return of_float(from, []<class S>(S) -> Execute { return &float_to_float<D, S>; }); });
  return nullptr;
}

/// An integer of at most 32 bits to a narrower one, in a register of 32 or 64 bits.
template <class R, class D, class S>
void integer_filling(Warp& w, const Instruction& in) {
  const Stored<S>* const a = w.lanes<Stored<S>>(in.from[0]);
  into<R>(w, in.to[0], [=](int i) { return static_cast<R>(static_cast<D>(taken<S>(a[i]))); });
}

/// The low part of a register of 64 bits: the operand's may be wider than its type.
template <class R, class D, class S>
void integer_of_low_part(Warp& w, const Instruction& in) {
  const std::uint64_t* const a = w.lanes<std::uint64_t>(in.from[0]);
  into<R>(w, in.to[0], [=](int i) { return static_cast<R>(static_cast<D>(static_cast<S>(a[i]))); });
}

Execute of_low_part(const Type& to, const Type& from, int bits) {
  return of_integer(to, [&]<class D>(D) {
    return of_integer(from, [&]<class S>(S) -> Execute {
      constexpr bool kSigned = std::is_signed_v<D>;
      using R16 = std::conditional_t<kSigned, std::int16_t, std::uint16_t>;
      using R32 = std::conditional_t<kSigned, std::int32_t, std::uint32_t>;
      using R64 = std::conditional_t<kSigned, std::int64_t, std::uint64_t>;
      return bits == 64   ? &integer_of_low_part<R64, D, S>
             : bits == 32 ? &integer_of_low_part<R32, D, S>
                          : &integer_of_low_part<R16, D, S>;
    });
  });
}

Execute filling(const Type& to, const Type& from, int bits) {
  if (!is_integer_type(from)) return nullptr;
  return of_integer(to, [&]<class D>(D) {
    return of_integer(from, [&]<class S>(S) -> Execute {
      using R32 = std::conditional_t<std::is_signed_v<D>, std::int32_t, std::uint32_t>;
      using R64 = std::conditional_t<std::is_signed_v<D>, std::int64_t, std::uint64_t>;
      return bits == 64 ? &integer_filling<R64, D, S> : &integer_filling<R32, D, S>;
    });
  });
}

Execute packed(const Type& to, const Type& from) {
  const bool single = from.is("f32");
  if (to.is("f16x2") && single) return &pack_halves<Half>;
  if (to.is("bf16x2") && single) return &pack_halves<BFloat>;
  if (to.is("e4m3x2")) return single ? &pack_eight<false> : from.is("f16x2") ? &pack_eight_of_halves<false> : nullptr;
  if (to.is("e5m2x2")) return single ? &pack_eight<true> : from.is("f16x2") ? &pack_eight_of_halves<true> : nullptr;
  if (to.is("f16x2") && from.is("e4m3x2")) return &unpack_eight<false>;
  if (to.is("f16x2") && from.is("e5m2x2")) return &unpack_eight<true>;
  return nullptr;
}

std::int64_t rounding(Words& words) {
  std::int64_t out = 0;
  constexpr std::pair<const char*, std::int64_t> kWords[] = {
      {"rn", 0},       {"rz", 1},           {"rm", 2},           {"rp", 3},
      {"rni", kWhole}, {"rzi", kWhole | 1}, {"rmi", kWhole | 2}, {"rpi", kWhole | 3}};
  for (const auto& [word, bits] : kWords)
    if (words.take(word)) out |= bits;
  if (words.take("ftz")) out |= kFtz;
  if (words.take("sat")) out |= kSat;
  if (words.take("relu")) out |= kRelu;
  words.take("satfinite");
  return out;
}

/// What is looked for in the result; a value narrower than its register fills it, with its sign.
void place_result(Decoder& d, Instruction& in, const Type& to, const Type& from) {
  in.to[0] = kNone;
  const int bits = d.register_bits(d.operand(0));
  if (!is_integer_type(to) || bits < 32 || bits <= to.bits) {
    in.to[0] = d.result(d.operand(0), to);
    return;
  }
  Type filled = to;
  filled.bits = bits;
  in.to[0] = d.result(d.operand(0), filled);
  in.run = filling(to, from, bits);
  if (in.run == nullptr)
    d.fail("got a register of " + std::to_string(bits) + " bits, want one as wide as ." + std::string(to.word));
}

/// An integer of which the operand's register is wider than its type. False: it is none.
bool takes_low_part(Decoder& d, Instruction& in, const Type& to, const Type& from) {
  if (!is_integer_type(to) || !is_integer_type(from) || from.bits == 64 || in.number != 0 ||
      d.register_bits(d.operand(1)) != 64)
    return false;
  Type filled = to, all = from;
  filled.bits = std::max(d.register_bits(d.operand(0)), std::max(to.bits, 16));
  all.bits = 64;
  in.to[0] = d.result(d.operand(0), filled);
  in.from[0] = d.value(d.operand(1), all);
  in.run = of_low_part(to, from, filled.bits);
  return true;
}

Watch watched(const Type& to, const Type& from) {
  if (to.is("f32") && from.is("f64")) return Watch::single;
  if (from.is("f32") && to.is("f16")) return Watch::half;
  return from.is("f32") && to.is("bf16") ? Watch::bfloat : Watch::none;
}

}  // namespace

bool decode_convert(Decoder& d, Instruction& in) {
  if (d.statement().words[0] != "cvt") return false;
  Words words(d.statement().words);
  Type to, from;
  in.number = rounding(words);
  const bool away = words.take("rna");
  if (!words.take_type(to) || !words.take_type(from)) d.fail("want the type of the result and that of the operand");
  if (to.is("tf32"))
    in.run = !from.is("f32") ? nullptr : away ? &to_tf32<true> : &to_tf32<false>;
  else
    in.run = to.lanes == 2 || from.lanes == 2 ? packed(to, from) : scalar(to, from, in.number);
  if (in.run == nullptr) d.fail("got '" + d.statement().text() + "', a conversion that device ptx does not run");
  d.want_all(words);
  const std::size_t count = to.lanes == 2 && from.lanes == 1 ? 3 : 2;
  d.want_operands(count, count);
  if (count == 2 && takes_low_part(d, in, to, from)) return true;
  place_result(d, in, to, from);
  for (std::size_t i = 1; i < count; ++i) in.from[i - 1] = d.value(d.operand(i), from);
  in.watch = watched(to, from);
  return true;
}

}  // namespace ampcheck::ptx
