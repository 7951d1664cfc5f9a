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
requires(sizeof(T) < 8) struct Wider<T> {
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
      return std::is_signed_v<T>
                 ? static_cast<std::int64_t>(static_cast<std::int32_t>(static_cast<std::uint32_t>(v) << 8)) >> 8
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

struct Saturating {
  std::int32_t operator()(std::int32_t a, std::int32_t b) const { return clamp(std::int64_t{a} + b); }
  static std::int32_t clamp(std::int64_t v) {
    constexpr std::int64_t low = std::numeric_limits<std::int32_t>::min(),
                           high = std::numeric_limits<std::int32_t>::max();
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
    in.run = of_integer(
        t, [&]<class T>(T) -> Execute { return high ? &map3<T, T, MadOf<MulHigh>> : &map3<T, T, MadOf<MulLow>>; });
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

Execute saturating_or_plain(const std::string& root, Words& words, const Type& t) {
  const bool add = root == "add";
  if (words.take("sat") && t.kind == 's' && t.bits == 32)
    return add ? &map2<std::int32_t, std::int32_t, Saturating> : &map2<std::int32_t, std::int32_t, SaturatingSub>;
  return add ? two<Add>(t) : two<Sub>(t);
}

template <bool high>
Execute product_of_24(const Type& t) {
  return t.kind == 's' ? &map2<std::int32_t, std::int32_t, Mul24<high>>
                       : &map2<std::uint32_t, std::uint32_t, Mul24<high>>;
}

/// Of two operands, but for products.
Execute of_two(const std::string& root, Words& words, const Type& t) {
  if (root == "add" || root == "sub") return saturating_or_plain(root, words, t);
  if (root == "min") return two<Min>(t);
  if (root == "max") return two<Max>(t);
  if (root == "div") return of_integer(t, []<class T>(T) -> Execute { return &each2<T, T, Div>; });
  if (root == "rem") return of_integer(t, []<class T>(T) -> Execute { return &each2<T, T, Rem>; });
  if (t.bits != 32) return nullptr;
  if (words.take("hi")) return product_of_24<true>(t);
  words.take("lo");
  return product_of_24<false>(t);
}

Execute of_one(const std::string& root, const Type& t) {
  if (root == "abs") return of_integer(t, []<class T>(T) -> Execute { return &map1<T, T, Abs>; });
  return of_integer(t, []<class T>(T) -> Execute { return &map1<T, T, Neg>; });
}

bool is_whole(const Type& t) { return one_of(std::string_view(&t.kind, 1), {"b", "u", "s"}) && t.lanes == 1; }

}  // namespace

bool decode_integer(Decoder& d, Instruction& in) {
  const std::string& root = d.statement().words[0];
  const auto& all = d.statement().words;
  Words words(all);
  Type t;
  if (!words.take_type(t) || !is_whole(t)) return false;
  const bool carries = std::find(all.begin(), all.end(), "cc") != all.end() && one_of(root, {"add", "sub", "mad"});
  if (carries || one_of(root, {"addc", "subc", "madc"})) return with_condition_code(d, in, words, t);
  bool known = true;
  if (one_of(root, {"add", "sub", "min", "max", "div", "rem", "mul24"})) {
    d.results_and_values(in, t, 2);
    in.run = of_two(root, words, t);
  } else if (one_of(root, {"mul", "mad"})) {
    known = multiply(d, in, words, t);
  } else if (one_of(root, {"abs", "neg"})) {
    d.results_and_values(in, t, 1);
    in.run = of_one(root, t);
  } else if (root == "sad") {
    d.results_and_values(in, t, 3);
    in.run = of_integer(t, []<class T>(T) -> Execute { return &map3<T, T, Sad>; });
  } else {
    return false;
  }
  if (!known || in.run == nullptr) d.fail("got '" + d.statement().text() + "' of a type that it does not have");
  d.want_all(words);
  return true;
}

}  // namespace ampcheck::ptx
