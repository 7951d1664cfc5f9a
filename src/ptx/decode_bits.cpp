// SPDX-License-Identifier: Apache-2.0
// Logic, shifts and what picks bits.
#include <algorithm>

#include "src/ptx/decode.h"

namespace ampcheck::ptx {

namespace {

struct And {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <class T>
  T operator()(T a) const {
    return static_cast<T>(~a);
  }
};
struct CNot {
  template <class T>
  T operator()(T a) const {
    return a == 0 ? T{1} : T{0};
  }
};
struct ShiftLeft {
  template <class T>
  T operator()(T a, std::uint32_t by) const {
    return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << by);
  }
};
struct ShiftRight {
  template <class T>
  T operator()(T a, std::uint32_t by) const {
    constexpr std::uint32_t most = 8 * sizeof(T) - 1;
    if (!std::is_signed_v<T> && by > most) return 0;
    return static_cast<T>(a >> std::min(by, most));
  }
};

template <class T, class F>
void shift(Warp& w, const Instruction& in) {
  const Stored<T>* const a = w.lanes<Stored<T>>(in.from[0]);
  const std::uint32_t* const by = w.lanes<std::uint32_t>(in.from[1]);
  into<T>(w, in.to[0], [=](int i) { return F{}(taken<T>(a[i]), by[i]); });
}

template <int op>
void logic_of_predicates(Warp& w, const Instruction& in) {
  const Mask a = w.predicate(in.from[0]), b = in.from[1] == kNone ? 0 : w.predicate(in.from[1]);
  const Mask value = op == 0 ? a & b : op == 1 ? a | b : op == 2 ? a ^ b : ~a;
  Mask& to = w.predicate(in.to[0]);
  to = (value & w.mask) | (to & ~w.mask);
}

void lop3(Warp& w, const Instruction& in) {
  const std::uint32_t *const a = w.lanes<std::uint32_t>(in.from[0]), *const b = w.lanes<std::uint32_t>(in.from[1]),
                             *const c = w.lanes<std::uint32_t>(in.from[2]);
  const auto table = static_cast<std::uint32_t>(in.number);
  into<std::uint32_t>(w, in.to[0], [=](int i) {
    std::uint32_t out = 0;
    for (std::uint32_t row = 0; row < 8; ++row)
      out |= (table >> row & 1u) == 0
                 ? 0u
                 : ((row & 4) != 0 ? a[i] : ~a[i]) & ((row & 2) != 0 ? b[i] : ~b[i]) & ((row & 1) != 0 ? c[i] : ~c[i]);
    return out;
  });
}

/// shf: the 64 bits b:a shifted; number: bit 0 right, bit 1 clamp.
void funnel(Warp& w, const Instruction& in) {
  const std::uint32_t *const a = w.lanes<std::uint32_t>(in.from[0]), *const b = w.lanes<std::uint32_t>(in.from[1]),
                             *const c = w.lanes<std::uint32_t>(in.from[2]);
  const bool right = (in.number & 1) != 0, clamp = (in.number & 2) != 0;
  into<std::uint32_t>(w, in.to[0], [=](int i) {
    const std::uint32_t by = clamp ? std::min(c[i], 32u) : c[i] & 31u;
    const std::uint64_t both = std::uint64_t{b[i]} << 32 | a[i];
    return static_cast<std::uint32_t>(right ? both >> by : (both << by) >> 32);
  });
}

/// prmt in its default mode: each nibble of c picks a byte of b:a, its top bit spreads the sign.
void permute(Warp& w, const Instruction& in) {
  const std::uint32_t *const a = w.lanes<std::uint32_t>(in.from[0]), *const b = w.lanes<std::uint32_t>(in.from[1]),
                             *const c = w.lanes<std::uint32_t>(in.from[2]);
  into<std::uint32_t>(w, in.to[0], [=](int i) {
    const std::uint64_t both = std::uint64_t{b[i]} << 32 | a[i];
    std::uint32_t out = 0;
    for (std::uint32_t k = 0; k < 4; ++k) {
      const std::uint32_t nibble = c[i] >> (4 * k) & 15u;
      auto byte = static_cast<std::uint32_t>(both >> (8 * (nibble & 7u))) & 255u;
      if ((nibble & 8u) != 0) byte = (byte & 128u) != 0 ? 255u : 0u;
      out |= byte << (8 * k);
    }
    return out;
  });
}

template <class T>
void extract(Warp& w, const Instruction& in) {
  const Stored<T>* const a = w.lanes<Stored<T>>(in.from[0]);
  const std::uint32_t *const pos = w.lanes<std::uint32_t>(in.from[1]), *const len = w.lanes<std::uint32_t>(in.from[2]);
  each_into<T>(w, in.to[0], [=](int i) {
    constexpr std::uint32_t bits = 8 * sizeof(T);
    const std::uint32_t from = pos[i] & 255u, count = len[i] & 255u;
    const T value = taken<T>(a[i]);
    if (count == 0) return T{0};
    const std::uint32_t top = std::min(from + count - 1, bits - 1);
    const bool sign = std::is_signed_v<T> && (static_cast<std::make_unsigned_t<T>>(value) >> top & 1u) != 0;
    std::uint64_t out =
        from >= bits ? 0 : static_cast<std::uint64_t>(static_cast<std::make_unsigned_t<T>>(value)) >> from;
    const std::uint32_t kept = from >= bits ? 0 : std::min(count, bits - from);
    const std::uint64_t low = kept >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << kept) - 1;
    out = (out & low) | (sign ? ~low : 0);
    return static_cast<T>(out);
  });
}

template <class T>
void insert(Warp& w, const Instruction& in) {
  const Stored<T>*const a = w.lanes<Stored<T>>(in.from[0]), *const b = w.lanes<Stored<T>>(in.from[1]);
  const std::uint32_t *const pos = w.lanes<std::uint32_t>(in.from[2]), *const len = w.lanes<std::uint32_t>(in.from[3]);
  each_into<T>(w, in.to[0], [=](int i) {
    constexpr std::uint32_t bits = 8 * sizeof(T);
    const std::uint32_t from = pos[i] & 255u, count = std::min(len[i] & 255u, bits);
    if (from >= bits || count == 0) return static_cast<T>(b[i]);
    const std::uint64_t ones = count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
    const std::uint64_t mask = ones << from;
    return static_cast<T>((static_cast<std::uint64_t>(a[i]) << from & mask) |
                          (static_cast<std::uint64_t>(b[i]) & ~mask));
  });
}

struct Reverse {
  template <class T>
  T operator()(T a) const {
    T out = 0;
    for (std::size_t k = 0; k < 8 * sizeof(T); ++k) out = static_cast<T>(out << 1 | (a >> k & 1));
    return out;
  }
};
struct Ones {
  template <class T>
  std::uint32_t operator()(T a) const {
    return static_cast<std::uint32_t>(std::popcount(a));
  }
};
struct Leading {
  template <class T>
  std::uint32_t operator()(T a) const {
    return static_cast<std::uint32_t>(std::countl_zero(a));
  }
};
/// The position of the highest bit that is no sign; with `shifted`, what shifts it to the top.
template <bool shifted>
struct Highest {
  template <class T>
  std::uint32_t operator()(T a) const {
    using U = std::make_unsigned_t<T>;
    const U bits = std::is_signed_v<T> && a < 0 ? static_cast<U>(~a) : static_cast<U>(a);
    if (bits == 0) return ~0u;
    const auto leading = static_cast<std::uint32_t>(std::countl_zero(bits));
    return shifted ? leading : static_cast<std::uint32_t>(8 * sizeof(T) - 1) - leading;
  }
};

template <bool two_ways, bool high>
void dot_product(Warp& w, const Instruction& in) {
  const std::uint32_t *const a = w.lanes<std::uint32_t>(in.from[0]), *const b = w.lanes<std::uint32_t>(in.from[1]),
                             *const c = w.lanes<std::uint32_t>(in.from[2]);
  const bool a_signed = (in.number & 1) != 0, b_signed = (in.number & 2) != 0;
  const auto byte = [](std::uint32_t v, int k, bool s) {
    const std::uint32_t out = v >> (8 * k) & 255u;
    return s ? static_cast<std::int32_t>(static_cast<std::int8_t>(out)) : static_cast<std::int32_t>(out);
  };
  const auto word = [](std::uint32_t v, int k, bool s) {
    const std::uint32_t out = v >> (16 * k) & 0xffffu;
    return s ? static_cast<std::int32_t>(static_cast<std::int16_t>(out)) : static_cast<std::int32_t>(out);
  };
  into<std::uint32_t>(w, in.to[0], [=](int i) {
    std::uint32_t sum = c[i];
    for (int k = 0; k < (two_ways ? 2 : 4); ++k)
      sum += static_cast<std::uint32_t>(two_ways ? word(a[i], k, a_signed) : byte(a[i], k, a_signed)) *
             static_cast<std::uint32_t>(byte(b[i], two_ways && high ? k + 2 : k, b_signed));
    return sum;
  });
}

template <class Op>
Execute logic(int bits) {
  return bits == 64   ? &map2<std::uint64_t, std::uint64_t, Op>
         : bits == 32 ? &map2<std::uint32_t, std::uint32_t, Op>
                      : &map2<std::uint16_t, std::uint16_t, Op>;
}
template <class F>
Execute one_of_width(int bits) {
  return bits == 64   ? &map1<std::uint64_t, std::uint64_t, F>
         : bits == 32 ? &map1<std::uint32_t, std::uint32_t, F>
                      : &map1<std::uint16_t, std::uint16_t, F>;
}
template <class F>
Execute count_of(const Type& t) {
  if (t.kind == 's')
    return t.bits == 64 ? &map1<std::uint32_t, std::int64_t, F> : &map1<std::uint32_t, std::int32_t, F>;
  return t.bits == 64 ? &map1<std::uint32_t, std::uint64_t, F> : &map1<std::uint32_t, std::uint32_t, F>;
}
template <class F>
Execute count_of_bits(const Type& t) {
  return t.bits == 64 ? &map1<std::uint32_t, std::uint64_t, F> : &map1<std::uint32_t, std::uint32_t, F>;
}

constexpr Type kWord{'u', 32, 1, "u32"};

bool logic_instruction(Decoder& d, Instruction& in, const Type& t) {
  const std::string& root = d.statement().words[0];
  const bool single = root == "not" || root == "cnot";
  d.want_operands(single ? 2 : 3, single ? 2 : 3);
  if (t.kind == 'p') {
    in.to[0] = d.predicate_result(d.operand(0));
    in.from[0] = d.predicate(d.operand(1));
    if (!single) in.from[1] = d.predicate(d.operand(2));
    in.run = root == "and"   ? &logic_of_predicates<0>
             : root == "or"  ? &logic_of_predicates<1>
             : root == "xor" ? &logic_of_predicates<2>
                             : &logic_of_predicates<3>;
    return true;
  }
  in.to[0] = d.result(d.operand(0), t);
  in.from[0] = d.value(d.operand(1), t);
  if (!single) in.from[1] = d.value(d.operand(2), t);
  in.run = root == "and"   ? logic<And>(t.bits)
           : root == "or"  ? logic<Or>(t.bits)
           : root == "xor" ? logic<Xor>(t.bits)
           : root == "not" ? one_of_width<Not>(t.bits)
                           : one_of_width<CNot>(t.bits);
  return true;
}

bool shift_instruction(Decoder& d, Instruction& in, const Type& t) {
  d.want_operands(3, 3);
  in.to[0] = d.result(d.operand(0), t);
  in.from[0] = d.value(d.operand(1), t);
  in.from[1] = d.value(d.operand(2), kWord);
  const bool left = d.statement().words[0] == "shl", s = t.kind == 's';
  if (t.bits == 64)
    in.run = left ? &shift<std::uint64_t, ShiftLeft>
             : s  ? &shift<std::int64_t, ShiftRight>
                  : &shift<std::uint64_t, ShiftRight>;
  else if (t.bits == 32)
    in.run = left ? &shift<std::uint32_t, ShiftLeft>
             : s  ? &shift<std::int32_t, ShiftRight>
                  : &shift<std::uint32_t, ShiftRight>;
  else
    in.run = left ? &shift<std::uint16_t, ShiftLeft>
             : s  ? &shift<std::int16_t, ShiftRight>
                  : &shift<std::uint16_t, ShiftRight>;
  return true;
}

/// Operands of one type behind the result, the last `words` of them of 32 bits.
void read_operands(Decoder& d, Instruction& in, const Type& result, const Type& t, std::size_t words_at_end) {
  in.to[0] = d.result(d.operand(0), result);
  const std::size_t n = d.operands() - 1;
  for (std::size_t i = 0; i < n; ++i) in.from[i] = d.value(d.operand(i + 1), i + words_at_end >= n ? kWord : t);
}

bool picking(Decoder& d, Instruction& in, Words& words, const Type& t) {
  const std::string& root = d.statement().words[0];
  if (root == "popc" || root == "clz" || root == "bfind") {
    d.want_operands(2, 2);
    read_operands(d, in, kWord, t, 0);
    in.run = root == "popc"           ? count_of_bits<Ones>(t)
             : root == "clz"          ? count_of_bits<Leading>(t)
             : words.take("shiftamt") ? count_of<Highest<true>>(t)
                                      : count_of<Highest<false>>(t);
  } else if (root == "brev") {
    d.want_operands(2, 2);
    read_operands(d, in, t, t, 0);
    in.run = one_of_width<Reverse>(t.bits);
  } else if (root == "bfe") {
    d.want_operands(4, 4);
    read_operands(d, in, t, t, 2);
    in.run = t.kind == 's' ? (t.bits == 64 ? &extract<std::int64_t> : &extract<std::int32_t>)
                           : (t.bits == 64 ? &extract<std::uint64_t> : &extract<std::uint32_t>);
  } else if (root == "bfi") {
    d.want_operands(5, 5);
    read_operands(d, in, t, t, 2);
    in.run = t.bits == 64 ? &insert<std::uint64_t> : &insert<std::uint32_t>;
  } else {
    return false;
  }
  return true;
}

bool of_three_words(Decoder& d, Instruction& in, Words& words) {
  const std::string& root = d.statement().words[0];
  if (root == "lop3") {
    d.want_operands(5, 5);
    for (std::size_t i = 0; i < 3; ++i) in.from[i] = d.value(d.operand(i + 1), kWord);
    if (d.operand(4).kind != Operand::Kind::integer) d.fail("got no table, want a number of 0 to 255");
    in.number = d.operand(4).number & 255;
    in.run = &lop3;
  } else if (root == "shf") {
    d.want_operands(4, 4);
    for (std::size_t i = 0; i < 3; ++i) in.from[i] = d.value(d.operand(i + 1), kWord);
    const bool right = words.take("r");
    if (!right && !words.take("l")) d.fail("got no direction, want .l or .r");
    const bool clamp = words.take("clamp");
    if (!clamp) words.take("wrap");
    in.number = (right ? 1 : 0) | (clamp ? 2 : 0);
    in.run = &funnel;
  } else {
    d.want_operands(4, 4);
    for (std::size_t i = 0; i < 3; ++i) in.from[i] = d.value(d.operand(i + 1), kWord);
    in.run = &permute;
  }
  in.to[0] = d.result(d.operand(0), kWord);
  return true;
}

bool dot_instruction(Decoder& d, Instruction& in, Words& words) {
  Type a, b;
  if (!words.take_type(a) || !words.take_type(b)) d.fail("want two types");
  in.number = (a.kind == 's' ? 1 : 0) | (b.kind == 's' ? 2 : 0);
  d.want_operands(4, 4);
  read_operands(d, in, kWord, kWord, 0);
  const bool high = words.take("hi");
  if (!high) words.take("lo");
  in.run = d.statement().words[0] == "dp4a" ? &dot_product<false, false>
           : high                           ? &dot_product<true, true>
                                            : &dot_product<true, false>;
  return true;
}

}  // namespace

bool decode_bits(Decoder& d, Instruction& in) {
  const std::string& root = d.statement().words[0];
  if (!one_of(root, {"dp4a", "dp2a", "and", "or", "xor", "not", "cnot", "shl", "shr", "lop3", "shf", "prmt", "popc",
                     "clz", "bfind", "brev", "bfe", "bfi"}))
    return false;
  Words words(d.statement().words);
  Type t;
  const bool dot = root == "dp4a" || root == "dp2a";
  bool known = dot || words.take_type(t);
  if (dot)
    known = dot_instruction(d, in, words);
  else if (known && one_of(root, {"and", "or", "xor", "not", "cnot"}))
    known = logic_instruction(d, in, t);
  else if (known && one_of(root, {"shl", "shr"}))
    known = shift_instruction(d, in, t);
  else if (known && one_of(root, {"lop3", "shf", "prmt"}))
    known = t.bits == 32 && of_three_words(d, in, words);
  else if (known)
    known = picking(d, in, words, t);
  if (!known) d.fail("got '" + d.statement().text() + "' of a type that it does not have");
  d.want_all(words);
  return true;
}

}  // namespace ampcheck::ptx
