// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic.
#include <algorithm>
#include <limits>

#include "src/ptx/decode.h"

namespace ampcheck::ptx {

namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

/// Wraps as a processor does.
template <class T, class F>
T wrapped(T a, T b, F f) {
  using U = std::conditional_t<(sizeof(T) < 4), std::uint32_t, Unsigned<T>>;
  return static_cast<T>(f(static_cast<U>(a), static_cast<U>(b)));
}

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return wrapped(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) const {
    return wrapped(a, b, [](auto x, auto y) { return x - y; });
  }
};
struct MulLow {
  template <class T>
  T operator()(T a, T b) const {
    return wrapped(a, b, [](auto x, auto y) { return x * y; });
  }
};
template <class T>
struct Wider {
  using type = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
};
template <class T>
  requires(sizeof(T) < 8)
struct Wider<T> {
  using type = std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>,
                                  std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;
};
struct MulHigh {
  template <class T>
  T operator()(T a, T b) const {
    using W = typename Wider<T>::type;
    return static_cast<T>((static_cast<W>(a) * static_cast<W>(b)) >> (8 * sizeof(T)));
  }
};
template <class W>
struct MulWide {
  template <class T>
  W operator()(T a, T b) const {
    return static_cast<W>(static_cast<W>(a) * static_cast<W>(b));
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
/// By zero a GPU gives all ones, and the dividend as the remainder.
struct Div {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return static_cast<T>(~T{0});
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return Sub{}(T{0}, a);
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return 0;
    return static_cast<T>(a % b);
  }
};
struct Abs {
  template <class T>
  T operator()(T a) const {
    return a < 0 ? Sub{}(T{0}, a) : a;
  }
};
struct Neg {
  template <class T>
  T operator()(T a) const {
    return Sub{}(T{0}, a);
  }
};
template <class M>
struct MadOf {
  template <class T>
  T operator()(T a, T b, T c) const {
    return Add{}(M{}(a, b), c);
  }
};
template <class W>
struct MadWide {
  template <class T>
  W operator()(T a, T b, W c) const {
    return Add{}(MulWide<W>{}(a, b), c);
  }
};
struct Sad {
  template <class T>
  T operator()(T a, T b, T c) const {
    return Add{}(c, a < b ? Sub{}(b, a) : Sub{}(a, b));
  }
};
template <bool high>
struct Mul24 {
  template <class T>
  T operator()(T a, T b) const {
    const auto low = [](T v) {
      return std::is_signed_v<T> ? static_cast<std::int64_t>(static_cast<std::int32_t>(static_cast<std::uint32_t>(v) << 8)) >> 8
                                 : static_cast<std::int64_t>(static_cast<std::uint32_t>(v) & 0xffffffu);
    };
    const std::int64_t product = low(a) * low(b);
    return static_cast<T>(high ? product >> 16 : product);
  }
};

template <class F>
Execute of_integer(const Type& t, F f) {
  const bool is_signed = t.kind == 's';
  switch (t.bits) {
    case 16: return is_signed ? f(std::int16_t{}) : f(std::uint16_t{});
    case 32: return is_signed ? f(std::int32_t{}) : f(std::uint32_t{});
    case 64: return is_signed ? f(std::int64_t{}) : f(std::uint64_t{});
    default: return nullptr;
  }
}

template <class Op>
Execute two(const Type& t) {
  return of_integer(t, []<class T>(T) -> Execute { return &map2<T, T, Op>; });
}

// ---- with carry ----

enum class Carry { add, sub };

template <class T, Carry kind>
void with_carry(Warp& w, const Instruction& in) {
  const Stored<T>*const a = w.lanes<Stored<T>>(in.from[0]), *const b = w.lanes<Stored<T>>(in.from[1]);
  const bool takes = (in.number & 1) != 0, gives = (in.number & 2) != 0;
  Mask out = w.carry;
  each_into<T>(w, in.to[0], [&](int i) {
    const auto carry = static_cast<T>(takes ? w.carry >> i & 1 : 0);
    const T x = a[i], y = b[i];
    const T value = kind == Carry::add ? static_cast<T>(x + y + carry) : static_cast<T>(x - y - carry);
    const bool over = kind == Carry::add ? value < x || (carry != 0 && value == x) : x < y || (carry != 0 && x == y);
    out = (out & ~(Mask{1} << i)) | static_cast<Mask>(over) << i;
    return value;
  });
  if (gives) w.carry = out;
}

template <class T, bool high>
void mad_with_carry(Warp& w, const Instruction& in) {
  const Stored<T>*const a = w.lanes<Stored<T>>(in.from[0]), *const b = w.lanes<Stored<T>>(in.from[1]),
            *const c = w.lanes<Stored<T>>(in.from[2]);
  const bool takes = (in.number & 1) != 0, gives = (in.number & 2) != 0;
  Mask out = w.carry;
  each_into<T>(w, in.to[0], [&](int i) {
    const auto carry = static_cast<T>(takes ? w.carry >> i & 1 : 0);
    const T product = high ? MulHigh{}(static_cast<T>(a[i]), static_cast<T>(b[i]))
                           : MulLow{}(static_cast<T>(a[i]), static_cast<T>(b[i]));
    const T first = static_cast<T>(product + static_cast<T>(c[i])), value = static_cast<T>(first + carry);
    const bool over = first < product || value < first;
    out = (out & ~(Mask{1} << i)) | static_cast<Mask>(over) << i;
    return value;
  });
  if (gives) w.carry = out;
}

Execute carrying(const std::string& root, const Type& t) {
  const bool wide = t.bits == 64;
  if (root.starts_with("add"))
    return wide ? &with_carry<std::uint64_t, Carry::add> : &with_carry<std::uint32_t, Carry::add>;
  return wide ? &with_carry<std::uint64_t, Carry::sub> : &with_carry<std::uint32_t, Carry::sub>;
}

template <class Op>
bool plain_two(Decoder& d, Instruction& in, const Type& t) {
  in.run = two<Op>(t);
  d.want_operands(3, 3);
  in.to[0] = d.result(d.operand(0), t);
  for (std::size_t i = 0; i < 2; ++i) in.from[i] = d.value(d.operand(i + 1), t);
  return in.run != nullptr;
}

struct Saturating {
  std::int32_t operator()(std::int32_t a, std::int32_t b) const { return clamp(std::int64_t{a} + b); }
  static std::int32_t clamp(std::int64_t v) {
    constexpr std::int64_t low = std::numeric_limits<std::int32_t>::min(), high = std::numeric_limits<std::int32_t>::max();
    return static_cast<std::int32_t>(v < low ? low : v > high ? high : v);
  }
};
struct SaturatingSub {
  std::int32_t operator()(std::int32_t a, std::int32_t b) const { return Saturating::clamp(std::int64_t{a} - b); }
};

bool multiply(Decoder& d, Instruction& in, Words& words, const Type& t) {
  const bool mad = d.statement().words[0] == "mad", wide = words.take("wide"), high = words.take("hi");
  if (!wide && !high && !words.take("lo")) d.fail("got no .lo, .hi or .wide, want one of them");
  Type to = t;
  if (wide) to.bits *= 2;
  d.want_operands(mad ? 4 : 3, mad ? 4 : 3);
  in.to[0] = d.result(d.operand(0), to);
  in.from[0] = d.value(d.operand(1), t);
  in.from[1] = d.value(d.operand(2), t);
  if (mad) in.from[2] = d.value(d.operand(3), to);
  const bool s = t.kind == 's';
  if (wide && t.bits == 16)
    in.run = mad ? (s ? &map3<std::int32_t, std::int16_t, MadWide<std::int32_t>, std::int32_t>
                      : &map3<std::uint32_t, std::uint16_t, MadWide<std::uint32_t>, std::uint32_t>)
                 : (s ? &map2<std::int32_t, std::int16_t, MulWide<std::int32_t>>
                      : &map2<std::uint32_t, std::uint16_t, MulWide<std::uint32_t>>);
  else if (wide && t.bits == 32)
    in.run = mad ? (s ? &map3<std::int64_t, std::int32_t, MadWide<std::int64_t>, std::int64_t>
                      : &map3<std::uint64_t, std::uint32_t, MadWide<std::uint64_t>, std::uint64_t>)
                 : (s ? &map2<std::int64_t, std::int32_t, MulWide<std::int64_t>>
                      : &map2<std::uint64_t, std::uint32_t, MulWide<std::uint64_t>>);
  else if (!wide && mad)
    in.run = of_integer(t, [&]<class T>(T) -> Execute {
      return high ? &map3<T, T, MadOf<MulHigh>> : &map3<T, T, MadOf<MulLow>>;
    });
  else if (!wide)
    in.run = high ? two<MulHigh>(t) : two<MulLow>(t);
  return in.run != nullptr;
}

bool with_condition_code(Decoder& d, Instruction& in, Words& words, const Type& t) {
  const std::string& root = d.statement().words[0];
  const bool three = root == "mad" || root == "madc", takes = root.back() == 'c' && root != "madc.";
  in.number = (takes ? 1 : 0) | (words.take("cc") ? 2 : 0);
  d.want_operands(three ? 4 : 3, three ? 4 : 3);
  in.to[0] = d.result(d.operand(0), t);
  for (std::size_t i = 0; i + 1 < d.operands(); ++i) in.from[i] = d.value(d.operand(i + 1), t);
  if (!three) {
    in.run = carrying(root, t);
    return true;
  }
  const bool high = words.take("hi");
  if (!high) words.take("lo");
  if (high && t.kind == 's') d.fail("got the high half of a signed product with a carry, want .u32 or .u64");
  if (t.bits == 64)
    in.run = high ? &mad_with_carry<std::uint64_t, true> : &mad_with_carry<std::uint64_t, false>;
  else
    in.run = high ? &mad_with_carry<std::uint32_t, true> : &mad_with_carry<std::uint32_t, false>;
  return true;
}

}  // namespace

bool decode_integer(Decoder& d, Instruction& in) {
  const std::string& root = d.statement().words[0];
  Words words(d.statement().words);
  Type t;
  if (!words.take_type(t) || t.kind == 'f' || t.kind == 'h' || t.kind == 'p' || t.lanes != 1) return false;
  const auto& w = d.statement().words;
  const bool cc = std::find(w.begin(), w.end(), "cc") != w.end();
  if (root == "addc" || root == "subc" || root == "madc" || (cc && (root == "add" || root == "sub" || root == "mad")))
    return with_condition_code(d, in, words, t);
  bool known = true;
  if (root == "add" || root == "sub") {
    if (words.take("sat") && t.kind == 's' && t.bits == 32) {
      plain_two<Add>(d, in, t);
      in.run = root == "add" ? &map2<std::int32_t, std::int32_t, Saturating> : &map2<std::int32_t, std::int32_t, SaturatingSub>;
    } else {
      known = root == "add" ? plain_two<Add>(d, in, t) : plain_two<Sub>(d, in, t);
    }
  } else if (root == "mul" || root == "mad") {
    known = multiply(d, in, words, t);
  } else if (root == "mul24" && t.bits == 32) {
    known = plain_two<Add>(d, in, t);
    const bool high = words.take("hi");
    if (!high) words.take("lo");
    in.run = t.kind == 's' ? (high ? &map2<std::int32_t, std::int32_t, Mul24<true>> : &map2<std::int32_t, std::int32_t, Mul24<false>>)
                           : (high ? &map2<std::uint32_t, std::uint32_t, Mul24<true>> : &map2<std::uint32_t, std::uint32_t, Mul24<false>>);
  } else if (root == "min") {
    known = plain_two<Min>(d, in, t);
  } else if (root == "max") {
    known = plain_two<Max>(d, in, t);
  } else if (root == "div" || root == "rem") {
    known = plain_two<Add>(d, in, t);
    in.run = of_integer(t, [&]<class T>(T) -> Execute { return root == "div" ? &each2<T, T, Div> : &each2<T, T, Rem>; });
  } else if (root == "abs" || root == "neg") {
    d.want_operands(2, 2);
    in.to[0] = d.result(d.operand(0), t);
    in.from[0] = d.value(d.operand(1), t);
    in.run = of_integer(t, [&]<class T>(T) -> Execute { return root == "abs" ? &map1<T, T, Abs> : &map1<T, T, Neg>; });
  } else if (root == "sad") {
    d.want_operands(4, 4);
    in.to[0] = d.result(d.operand(0), t);
    for (std::size_t i = 0; i < 3; ++i) in.from[i] = d.value(d.operand(i + 1), t);
    in.run = of_integer(t, []<class T>(T) -> Execute { return &map3<T, T, Sad>; });
  } else {
    return false;
  }
  if (!known || in.run == nullptr) d.fail("got '" + d.statement().text() + "' of a type that it does not have");
  if (const std::string left = words.left(); !left.empty()) d.fail("got '." + left + "', which is not known here");
  return true;
}

}  // namespace ampcheck::ptx
