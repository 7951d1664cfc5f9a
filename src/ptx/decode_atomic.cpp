// SPDX-License-Identifier: Apache-2.0
// atom and red: lane after lane, in the order of lanes.
#include <algorithm>

#include "src/ptx/decode.h"
#include "src/ptx/machine.h"
#include "src/ptx/rounded.h"

namespace ampcheck::ptx {

namespace {

enum class How : std::uint8_t { add, minimum, maximum, inc, dec, band, bor, bxor, exchange, swap };

template <class T>
T changed(T old, T b, T c, How how) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    if (how == How::add) return old + b;
    if (how == How::minimum) return extremum<T, false, false>(old, b);
    return how == How::maximum ? extremum<T, true, false>(old, b) : b;
  } else {
    switch (how) {
      case How::add:
        return static_cast<T>(static_cast<std::make_unsigned_t<T>>(old) + static_cast<std::make_unsigned_t<T>>(b));
      case How::minimum: return std::min(old, b);
      case How::maximum: return std::max(old, b);
      case How::inc: return old >= b ? T{0} : static_cast<T>(old + 1);
      case How::dec: return old == 0 || old > b ? b : static_cast<T>(old - 1);
      case How::band: return static_cast<T>(old & b);
      case How::bor: return static_cast<T>(old | b);
      case How::bxor: return static_cast<T>(old ^ b);
      case How::exchange: return b;
      case How::swap: return old == b ? c : old;
    }
    return old;
  }
}

/// target: a How.
template <class T, class F>
void atomically(Warp& w, const Instruction& in, F change) {
  for (Mask rest = w.mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const auto read = [&](Slot slot) { return slot == kNone ? T{} : static_cast<T>(w.lanes<Stored<T>>(slot)[lane]); };
    const T b = read(in.from[1]), c = read(in.from[2]);
    std::uint8_t* const at = w.machine->locate(w, in, lane, address_of(w, in, lane), sizeof(T), Access::atomic);
    T old = static_cast<T>(~T{0});
    if (at != nullptr) {
      std::memcpy(&old, at, sizeof(T));
      const T fresh = change(old, b, c);
      std::memcpy(at, &fresh, sizeof(T));
    }
    if (in.to[0] != kNone) w.lanes<Stored<T>>(in.to[0])[lane] = old;
  }
}

template <class T>
void of_number(Warp& w, const Instruction& in) {
  using U = std::conditional_t<sizeof(T) == 8, std::uint64_t,
                               std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;
  atomically<U>(w, in, [how = static_cast<How>(in.target)](U old, U b, U c) {
    return static_cast<U>(put<T>(changed<T>(taken<T>(old), taken<T>(b), taken<T>(c), how)));
  });
}

template <class H>
H half_sum(H a, H b) {
  return narrowed(widened(a) + widened(b), H{});
}
template <class H>
void of_half(Warp& w, const Instruction& in) {
  atomically<std::uint16_t>(
      w, in, [](std::uint16_t old, std::uint16_t b, std::uint16_t) { return half_sum(H{old}, H{b}).bits; });
}
template <class H>
void of_pair(Warp& w, const Instruction& in) {
  atomically<std::uint32_t>(w, in, [](std::uint32_t old, std::uint32_t b, std::uint32_t) {
    const auto half = [](std::uint32_t v, int k) { return H{static_cast<std::uint16_t>(v >> (16 * k))}; };
    return half_sum(half(old, 0), half(b, 0)).bits | std::uint32_t{half_sum(half(old, 1), half(b, 1)).bits} << 16;
  });
}

Execute chosen(const Type& t, How how) {
  const bool sum = how == How::add;
  if (t.kind == 'h') return !sum ? nullptr : t.lanes == 2 ? &of_pair<BFloat> : &of_half<BFloat>;
  if (t.kind == 'f' && t.bits == 16) return !sum ? nullptr : t.lanes == 2 ? &of_pair<Half> : &of_half<Half>;
  if (t.kind == 'f') return t.bits == 32 ? &of_number<float> : &of_number<double>;
  if (t.bits == 16) return how == How::swap ? &of_number<std::uint16_t> : nullptr;
  if (t.kind == 's') return t.bits == 32 ? &of_number<std::int32_t> : &of_number<std::int64_t>;
  return t.bits == 32 ? &of_number<std::uint32_t> : t.bits == 64 ? &of_number<std::uint64_t> : nullptr;
}

}  // namespace

bool decode_atomic(Decoder& d, Instruction& in) {
  const std::string& root = d.statement().words[0];
  if (root != "atom" && root != "red") return false;
  if (d.statement().words.size() > 1 && d.statement().words[1] == "async")
    d.fail("got red.async, which device ptx does not run");
  Words words(d.statement().words);
  for (const char* word :
       {"relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", "noftz", "L2::cache_hint"})
    words.take(word);
  if (words.take("shared") || words.take("shared::cta"))
    in.space = Space::shared;
  else if (words.take("global"))
    in.space = Space::global;
  constexpr std::pair<const char*, How> kHows[] = {
      {"add", How::add},  {"min", How::minimum}, {"max", How::maximum}, {"inc", How::inc},       {"dec", How::dec},
      {"and", How::band}, {"or", How::bor},      {"xor", How::bxor},    {"exch", How::exchange}, {"cas", How::swap}};
  How how = How::add;
  bool found = false;
  for (const auto& [word, what] : kHows)
    if (!found && words.take(word)) {
      how = what;
      found = true;
    }
  Type t;
  if (!found || !words.take_type(t))
    d.fail("got '" + d.statement().text() + "', an atomic that device ptx does not run");
  const bool result = root == "atom";
  const std::size_t first = result ? 1 : 0, wanted = first + (how == How::swap ? 3 : 2);
  d.want_operands(wanted, wanted + 1);
  if (result && d.operand(0).kind != Operand::Kind::sink) in.to[0] = d.result(d.operand(0), t);
  if (d.operand(first + 1).kind == Operand::Kind::list)
    d.fail("got an atomic of a vector, which device ptx does not run");
  d.address(d.operand(first), in.space, in);
  in.from[1] = d.value(d.operand(first + 1), t);
  if (how == How::swap) in.from[2] = d.value(d.operand(first + 2), t);
  in.bytes = static_cast<std::uint8_t>(t.width() / 8);
  in.target = static_cast<std::uint32_t>(how);
  in.run = chosen(t, how);
  if (in.run == nullptr) d.fail("got '" + d.statement().text() + "' of a type that it does not have");
  d.want_all(words);
  return true;
}

}  // namespace ampcheck::ptx
