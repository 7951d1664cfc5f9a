// SPDX-License-Identifier: Apache-2.0
// Comparisons, and what chooses by them.
#include <algorithm>
#include <cmath>

#include "src/ptx/decode.h"
#include "src/ptx/rounded.h"

namespace ampcheck::ptx {

namespace {

enum class Relation : std::uint8_t { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };

template <class T>
auto comparable(T value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat>)
    return widened(value);
  else
    return value;
}

template <Relation r>
struct Holds {
  template <class T>
  bool operator()(T x, T y) const {
    const auto a = comparable(x), b = comparable(y);
    using R = Relation;
    if constexpr (r == R::eq) return a == b;
    if constexpr (r == R::ne) return a < b || a > b;
    if constexpr (r == R::lt) return a < b;
    if constexpr (r == R::le) return a <= b;
    if constexpr (r == R::gt) return a > b;
    if constexpr (r == R::ge) return a >= b;
    if constexpr (r == R::equ) return !(a < b || a > b);
    if constexpr (r == R::neu) return a != b;
    if constexpr (r == R::ltu) return !(a >= b);
    if constexpr (r == R::leu) return !(a > b);
    if constexpr (r == R::gtu) return !(a <= b);
    if constexpr (r == R::geu) return !(a < b);
    if constexpr (r == R::num) return a == a && b == b;
    return a != a || b != b;
  }
};

template <class T, class F, bool ftz>
Mask compared(const Warp& w, const Instruction& in) {
  const Stored<T>*const a = w.lanes<Stored<T>>(in.from[0]), *const b = w.lanes<Stored<T>>(in.from[1]);
  alignas(64) std::uint8_t flags[kLanes];
#pragma GCC ivdep
  for (int i = 0; i < kLanes; ++i) {
    if constexpr (ftz)
      flags[i] = F{}(flushed(taken<T>(a[i])), flushed(taken<T>(b[i]))) ? 1 : 0;
    else
      flags[i] = F{}(taken<T>(a[i]), taken<T>(b[i])) ? 1 : 0;
  }
  // Eight flags of one byte each to eight bits, by one multiplication.
  Mask out = 0;
  for (int k = 0; k < 4; ++k) {
    std::uint64_t eight;
    std::memcpy(&eight, flags + 8 * k, 8);
    out |= static_cast<Mask>((eight * 0x0102040810204080ull) >> 56) << (8 * k);
  }
  return out;
}

void give(Warp& w, Slot slot, Mask value) {
  if (slot == kNone) return;
  Mask& to = w.predicate(slot);
  to = (value & w.mask) | (to & ~w.mask);
}

Mask combined(Mask value, Mask with, std::int64_t how) {
  return how == 1 ? value & with : how == 2 ? value | with : how == 3 ? value ^ with : value;
}

/// number: bits 0-1 how it is combined with the predicate from[2], bit 2 that one negated.
template <class T, class F, bool ftz>
void set_predicate(Warp& w, const Instruction& in) {
  const Mask value = compared<T, F, ftz>(w, in);
  Mask with = in.from[2] == kNone ? 0 : w.predicate(in.from[2]);
  if ((in.number & 4) != 0) with = ~with;
  give(w, in.to[0], combined(value, with, in.number & 3));
  give(w, in.to[1], combined(~value, with, in.number & 3));
}

/// The comparison of both halves: p of the lower, q of the upper ones.
template <class H, class F>
void set_two_predicates(Warp& w, const Instruction& in) {
  const std::uint32_t *const a = w.lanes<std::uint32_t>(in.from[0]), *const b = w.lanes<std::uint32_t>(in.from[1]);
  const auto half = [](std::uint32_t v, int k) { return H{static_cast<std::uint16_t>(v >> (16 * k))}; };
  for (int k = 0; k < 2; ++k) give(w, in.to[k], where(w, 0, [&](int i) { return F{}(half(a[i], k), half(b[i], k)); }));
}

/// set: all ones or 1.0 where it holds.
template <class T, class F, bool ftz>
void set_value(Warp& w, const Instruction& in) {
  const Mask value = compared<T, F, ftz>(w, in);
  const auto yes = static_cast<std::uint32_t>(in.number);
  into<std::uint32_t>(w, in.to[0], [=](int i) { return (value >> i & 1) != 0 ? yes : 0u; });
}

/// set.f16x2: of both halves.
template <class H, class F>
void set_pair(Warp& w, const Instruction& in) {
  const std::uint32_t *const a = w.lanes<std::uint32_t>(in.from[0]), *const b = w.lanes<std::uint32_t>(in.from[1]);
  const auto yes = static_cast<std::uint32_t>(in.number);
  into<std::uint32_t>(w, in.to[0], [=](int i) {
    const auto half = [](std::uint32_t v, int k) { return H{static_cast<std::uint16_t>(v >> (16 * k))}; };
    const std::uint32_t low = F{}(half(a[i], 0), half(b[i], 0)) ? yes : 0,
                        high = F{}(half(a[i], 1), half(b[i], 1)) ? yes : 0;
    return (low & 0xffffu) | high << 16;
  });
}

struct Chosen {
  Execute predicate = nullptr, value = nullptr, pair = nullptr, two = nullptr;
};

template <class T, Relation r>
Chosen of_relation(bool ftz) {
  using F = Holds<r>;
  if constexpr (std::is_same_v<T, float>)
    if (ftz) return {&set_predicate<T, F, true>, &set_value<T, F, true>};
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat>)
    return {&set_predicate<T, F, false>, &set_value<T, F, false>, &set_pair<T, F>, &set_two_predicates<T, F>};
  return {&set_predicate<T, F, false>, &set_value<T, F, false>};
}

template <class T>
Chosen choose(Relation r, bool ftz) {
  using R = Relation;
  switch (r) {
    case R::eq: return of_relation<T, R::eq>(ftz);
    case R::ne: return of_relation<T, R::ne>(ftz);
    case R::lt: return of_relation<T, R::lt>(ftz);
    case R::le: return of_relation<T, R::le>(ftz);
    case R::gt: return of_relation<T, R::gt>(ftz);
    case R::ge: return of_relation<T, R::ge>(ftz);
    default: break;
  }
  if constexpr (!std::is_integral_v<T>) {
    switch (r) {
      case R::equ: return of_relation<T, R::equ>(ftz);
      case R::neu: return of_relation<T, R::neu>(ftz);
      case R::ltu: return of_relation<T, R::ltu>(ftz);
      case R::leu: return of_relation<T, R::leu>(ftz);
      case R::gtu: return of_relation<T, R::gtu>(ftz);
      case R::geu: return of_relation<T, R::geu>(ftz);
      case R::num: return of_relation<T, R::num>(ftz);
      case R::nan: return of_relation<T, R::nan>(ftz);
      default: break;
    }
  }
  return {};
}

Chosen of_type(const Type& t, Relation r, bool ftz) {
  if (t.kind == 'h') return choose<BFloat>(r, ftz);
  if (t.kind == 'f')
    return t.bits == 16 ? choose<Half>(r, ftz) : t.bits == 32 ? choose<float>(r, ftz) : choose<double>(r, ftz);
  const bool s = t.kind == 's';
  if (t.bits == 16) return s ? choose<std::int16_t>(r, ftz) : choose<std::uint16_t>(r, ftz);
  if (t.bits == 32) return s ? choose<std::int32_t>(r, ftz) : choose<std::uint32_t>(r, ftz);
  return s ? choose<std::int64_t>(r, ftz) : choose<std::uint64_t>(r, ftz);
}

bool take_relation(Words& words, Relation& out, bool& unsigned_word) {
  constexpr std::pair<const char*, Relation> kWords[] = {
      {"eq", Relation::eq},   {"ne", Relation::ne},   {"lt", Relation::lt},   {"le", Relation::le},
      {"gt", Relation::gt},   {"ge", Relation::ge},   {"lo", Relation::lt},   {"ls", Relation::le},
      {"hi", Relation::gt},   {"hs", Relation::ge},   {"equ", Relation::equ}, {"neu", Relation::neu},
      {"ltu", Relation::ltu}, {"leu", Relation::leu}, {"gtu", Relation::gtu}, {"geu", Relation::geu},
      {"num", Relation::num}, {"nan", Relation::nan}};
  for (const auto& [word, relation] : kWords)
    if (words.take(word)) {
      out = relation;
      unsigned_word = word == std::string_view("lo") || word == std::string_view("ls") ||
                      word == std::string_view("hi") || word == std::string_view("hs");
      return true;
    }
  return false;
}

void combine_with(Decoder& d, Instruction& in, Words& words, const Operand& operand) {
  constexpr const char* kWords[] = {"and", "or", "xor"};
  for (int i = 0; i < 3; ++i)
    if (words.take(kWords[i])) in.number = i + 1;
  if (in.number == 0) d.fail("got a predicate to combine with, want .and, .or or .xor");
  if (operand.negated) in.number |= 4;
  in.from[2] = d.predicate(operand);
}

bool set_instruction(Decoder& d, Instruction& in, Words& words) {
  const bool to_predicate = d.statement().words[0] == "setp";
  Relation relation;
  bool unsigned_word = false;
  if (!take_relation(words, relation, unsigned_word)) d.fail("got no comparison, want such as .lt");
  const bool ftz = words.take("ftz");
  Type to, t;
  if ((!to_predicate && !words.take_type(to)) || !words.take_type(t)) d.fail("got no type");
  if (unsigned_word) t.kind = 'u';
  const Chosen chosen = of_type(t, relation, ftz);
  d.want_operands(3, 4);
  in.from[0] = d.value(d.operand(1), t);
  in.from[1] = d.value(d.operand(2), t);
  if (to_predicate) {
    in.run = t.lanes == 2 ? chosen.two : chosen.predicate;
    const Operand& p = d.operand(0);
    const bool pair = p.kind == Operand::Kind::ored;
    in.to[0] = d.predicate_result(pair ? p.parts[0] : p);
    if (pair) in.to[1] = d.predicate_result(p.parts[1]);
    if (d.operands() == 4) combine_with(d, in, words, d.operand(3));
    return in.run != nullptr;
  }
  if (d.operands() == 4) d.fail("got set with a predicate to combine with, which device ptx does not run");
  in.to[0] = d.result(d.operand(0), to);
  in.number = to.is("f32")                       ? 0x3f800000
              : to.is("f16") || to.is("f16x2")   ? 0x3c00
              : to.is("bf16") || to.is("bf16x2") ? 0x3f80
                                                 : -1;
  in.run = t.lanes == 2 ? chosen.pair : chosen.value;
  if (to.bits == 16 && to.lanes == 1 && in.number == -1) in.number = 0xffff;
  return in.run != nullptr && to.width() <= 32;
}

template <class T>
void select(Warp& w, const Instruction& in) {
  const Stored<T>*const a = w.lanes<Stored<T>>(in.from[0]), *const b = w.lanes<Stored<T>>(in.from[1]);
  const Mask p = in.number != 0 ? ~w.predicate(in.from[2]) : w.predicate(in.from[2]);
  into<T>(w, in.to[0], [=](int i) { return (p >> i & 1) != 0 ? taken<T>(a[i]) : taken<T>(b[i]); });
}

/// slct: a where c is not negative.
template <class T, class C>
void select_by_sign(Warp& w, const Instruction& in) {
  const Stored<T>*const a = w.lanes<Stored<T>>(in.from[0]), *const b = w.lanes<Stored<T>>(in.from[1]);
  const Stored<C>* const c = w.lanes<Stored<C>>(in.from[2]);
  into<T>(w, in.to[0], [=](int i) { return taken<C>(c[i]) >= 0 ? taken<T>(a[i]) : taken<T>(b[i]); });
}

bool choose_instruction(Decoder& d, Instruction& in, Words& words) {
  Type t, c;
  if (!words.take_type(t)) return false;
  d.want_operands(4, 4);
  in.to[0] = d.result(d.operand(0), t);
  in.from[0] = d.value(d.operand(1), t);
  in.from[1] = d.value(d.operand(2), t);
  if (d.statement().words[0] == "selp") {
    in.from[2] = d.predicate(d.operand(3));
    in.number = d.operand(3).negated ? 1 : 0;
    in.run = t.width() == 64 ? &select<std::uint64_t> : &select<std::uint32_t>;
    return true;
  }
  words.take("ftz");
  if (!words.take_type(c) || c.bits != 32) return false;
  in.from[2] = d.value(d.operand(3), c);
  if (c.kind == 'f')
    in.run = t.width() == 64 ? &select_by_sign<std::uint64_t, float> : &select_by_sign<std::uint32_t, float>;
  else
    in.run =
        t.width() == 64 ? &select_by_sign<std::uint64_t, std::int32_t> : &select_by_sign<std::uint32_t, std::int32_t>;
  return true;
}

template <class T>
void test(Warp& w, const Instruction& in) {
  const Stored<T>* const a = w.lanes<Stored<T>>(in.from[0]);
  const auto what = in.number;
  give(w, in.to[0], where(w, 0, [=](int i) {
         const T x = taken<T>(a[i]);
         const int kind = std::fpclassify(x);
         switch (what) {
           case 0: return kind != FP_NAN && kind != FP_INFINITE;
           case 1: return kind == FP_INFINITE;
           case 2: return kind != FP_NAN;
           case 3: return kind == FP_NAN;
           case 4: return kind == FP_NORMAL;
           default: return kind == FP_SUBNORMAL;
         }
       }));
}

bool test_instruction(Decoder& d, Instruction& in, Words& words) {
  constexpr const char* kTests[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};
  in.number = -1;
  for (int i = 0; i < 6; ++i)
    if (words.take(kTests[i])) in.number = i;
  Type t;
  if (!words.take_type(t) || in.number < 0 || t.kind != 'f' || t.bits < 32) return false;
  d.want_operands(2, 2);
  in.to[0] = d.predicate_result(d.operand(0));
  in.from[0] = d.value(d.operand(1), t);
  in.run = t.bits == 64 ? &test<double> : &test<float>;
  return true;
}

}  // namespace

bool decode_compare(Decoder& d, Instruction& in) {
  const std::string& root = d.statement().words[0];
  Words words(d.statement().words);
  bool known = false;
  if (root == "setp" || root == "set")
    known = set_instruction(d, in, words);
  else if (root == "selp" || root == "slct")
    known = choose_instruction(d, in, words);
  else if (root == "testp")
    known = test_instruction(d, in, words);
  else
    return false;
  if (!known) d.fail("got '" + d.statement().text() + "' of a type that it does not have");
  d.want_all(words);
  return true;
}

}  // namespace ampcheck::ptx
