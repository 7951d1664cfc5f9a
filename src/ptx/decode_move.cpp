// SPDX-License-Identifier: Apache-2.0
// mov with its vectors, and addresses from one space to another.
#include "src/ptx/decode.h"
#include "src/ptx/machine.h"

namespace ampcheck::ptx {

namespace {

struct Same {
  template <class T>
  T operator()(T a) const {
    return a;
  }
};

void move_predicate(Warp& w, const Instruction& in) {
  Mask value = w.predicate(in.from[0]);
  if (in.number != 0) value = ~value;
  Mask& to = w.predicate(in.to[0]);
  to = (value & w.mask) | (to & ~w.mask);
}

void move_clock(Warp& w, const Instruction& in) {
  const std::uint64_t now = w.machine->steps();
  if (in.number != 0)
    into<std::uint64_t>(w, in.to[0], [=](int) { return now; });
  else
    into<std::uint32_t>(w, in.to[0], [=](int) { return static_cast<std::uint32_t>(now); });
}

/// Parts of count slots at more, each of bytes * 8 bits, to one register.
void pack(Warp& w, const Instruction& in) {
  const std::uint32_t* const extra = &w.machine->program().extra[in.more];
  const unsigned bits = in.bytes * 8u;
  const std::uint64_t ones = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  const auto value = [&](int i) {
    std::uint64_t out = 0;
    for (unsigned k = 0; k < in.count; ++k) out |= (w.lanes<std::uint32_t>(extra[k])[i] & ones) << (k * bits);
    return out;
  };
  if (in.count * bits == 64)
    into<std::uint64_t>(w, in.to[0], value);
  else
    into<std::uint32_t>(w, in.to[0], [&](int i) { return static_cast<std::uint32_t>(value(i)); });
}

void unpack(Warp& w, const Instruction& in) {
  const std::uint32_t* const extra = &w.machine->program().extra[in.more];
  const unsigned bits = in.bytes * 8u;
  const std::uint64_t ones = (std::uint64_t{1} << bits) - 1;
  // A result may be the source: all of it is read first.
  std::uint64_t whole[kLanes];
  if (in.count * bits == 64)
    for (int i = 0; i < kLanes; ++i) whole[i] = w.lanes<std::uint64_t>(in.from[0])[i];
  else
    for (int i = 0; i < kLanes; ++i) whole[i] = w.lanes<std::uint32_t>(in.from[0])[i];
  for (unsigned k = 0; k < in.count; ++k)
    if (extra[k] != kNone)
      into<std::uint32_t>(w, extra[k],
                          [&](int i) { return static_cast<std::uint32_t>(whole[i] >> (k * bits) & ones); });
}

constexpr Type kWide{'u', 64, 1, "u64"}, kWord{'u', 32, 1, "u32"};

bool vector_move(Decoder& d, Instruction& in, const Type& t) {
  const bool packs = d.operand(1).kind == Operand::Kind::list;
  const Operand& list = d.operand(packs ? 1 : 0);
  const std::size_t n = list.parts.size();
  if ((n != 2 && n != 4) || t.width() % static_cast<int>(n) != 0 || t.width() == 128)
    d.fail("got a vector of " + std::to_string(n) + ", want 2 or 4");
  in.count = static_cast<std::uint8_t>(n);
  in.bytes = static_cast<std::uint8_t>(t.width() / static_cast<int>(n) / 8);
  const Type part{'b', in.bytes * 8, 1, t.word};
  std::vector<std::uint32_t> slots;
  for (const Operand& operand : list.parts)
    slots.push_back(operand.kind == Operand::Kind::sink ? kNone
                    : packs                             ? d.value(operand, part)
                                                        : d.result(operand, part));
  if (packs)
    in.to[0] = d.result(d.operand(0), t);
  else
    in.from[0] = d.value(d.operand(1), t);
  in.more = d.add_extra(slots[0]);
  for (std::size_t i = 1; i < n; ++i) d.add_extra(slots[i]);
  in.run = packs ? &pack : &unpack;
  return true;
}

bool move(Decoder& d, Instruction& in, const Type& t) {
  d.want_operands(2, 2);
  if (d.operand(0).kind == Operand::Kind::list || d.operand(1).kind == Operand::Kind::list)
    return vector_move(d, in, t);
  if (t.kind == 'p') {
    in.to[0] = d.predicate_result(d.operand(0));
    const Operand& from = d.operand(1);
    in.from[0] = from.kind == Operand::Kind::integer ? d.mask_constant(from.number != 0 ? kAll : 0) : d.predicate(from);
    in.number = from.negated ? 1 : 0;
    in.run = &move_predicate;
    return true;
  }
  in.to[0] = d.result(d.operand(0), t);
  const std::string& name = d.operand(1).name;
  if (d.operand(1).kind == Operand::Kind::name &&
      (name == "%clock" || name == "%clock64" || name == "%globaltimer" || name == "%clock_hi")) {
    in.number = t.width() == 64 ? 1 : 0;
    in.run = &move_clock;
    return true;
  }
  in.from[0] = d.value(d.operand(1), t);
  in.run = t.width() == 64 ? &map1<std::uint64_t, std::uint64_t, Same> : &map1<std::uint32_t, std::uint32_t, Same>;
  return true;
}

/// number: what is added to a 64-bit address.
void shift_window(Warp& w, const Instruction& in) {
  const std::uint64_t* const a = w.lanes<std::uint64_t>(in.from[0]);
  const auto plus = static_cast<std::uint64_t>(in.number);
  into<std::uint64_t>(w, in.to[0], [=](int i) { return a[i] + plus; });
}

std::uint64_t window_of(Space space) {
  switch (space) {
    case Space::shared: return kSharedWindow;
    case Space::local: return kLocalWindow;
    case Space::param: return kParamWindow;
    default: return 0;
  }
}

Space take_space(Words& words) {
  constexpr std::pair<const char*, Space> kWords[] = {{"global", Space::global},      {"shared", Space::shared},
                                                      {"shared::cta", Space::shared}, {"local", Space::local},
                                                      {"const", Space::constant},     {"param", Space::param}};
  for (const auto& [word, space] : kWords)
    if (words.take(word)) return space;
  return Space::generic;
}

void is_space(Warp& w, const Instruction& in) {
  const std::uint64_t* const a = w.lanes<std::uint64_t>(in.from[0]);
  const Space space = in.space;
  Mask& to = w.predicate(in.to[0]);
  to = where(w, to, [=](int i) {
    const std::uint64_t top = a[i] >> 56;
    if (space == Space::shared) return top == kSharedWindow >> 56;
    if (space == Space::local) return top == kLocalWindow >> 56;
    if (space == Space::param) return top == kParamWindow >> 56;
    return top == 0 || top == kGlobalWindow >> 56;
  });
}

}  // namespace

bool decode_move(Decoder& d, Instruction& in) {
  const std::string& root = d.statement().words[0];
  Words words(d.statement().words);
  if (root == "mov") {
    Type t;
    if (!words.take_type(t)) d.fail("got mov without a type");
    return move(d, in, t);
  }
  if (root == "cvta") {
    const bool to = words.take("to");
    const Space space = take_space(words);
    Type t;
    if (!words.take_type(t) || t.bits != 64) d.fail("want .u64");
    d.want_operands(2, 2);
    in.to[0] = d.result(d.operand(0), kWide);
    in.from[0] = d.value(d.operand(1), kWide);
    const std::uint64_t window = window_of(space);
    in.number = static_cast<std::int64_t>(to ? 0 - window : window);
    in.run = &shift_window;
    return true;
  }
  if (root == "isspacep") {
    in.space = take_space(words);
    d.want_operands(2, 2);
    in.to[0] = d.predicate_result(d.operand(0));
    in.from[0] = d.value(d.operand(1), kWide);
    in.run = &is_space;
    return true;
  }
  return false;
}

}  // namespace ampcheck::ptx
