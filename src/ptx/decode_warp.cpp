// SPDX-License-Identifier: Apache-2.0
// What the lanes of a warp do together. Instruction::from[3] is the member mask; the machine brings the lanes together.
#include <algorithm>

#include "src/ptx/decode.h"
#include "src/ptx/machine.h"
#include "src/ptx/shuffle.h"

namespace ampcheck::ptx {

namespace {

constexpr Type kWord{'b', 32, 1, "b32"};

Mask members(const Warp& w, const Instruction& in, int lane) { return w.lanes<Mask>(in.from[3])[lane]; }

/// The usual one: a whole warp, by the same step in each lane, across the whole warp.
bool whole_shuffle(Warp& w, const Instruction& in) {
  const bool constant = (in.from[1] & in.from[2] & in.from[3] & kConstant) != 0;
  if (w.mask != kAll || !constant || members(w, in, 0) != kAll ||
      static_cast<Shuffle>(in.number) != Shuffle::butterfly || in.to[1] != kNone)
    return false;
  if (w.lanes<std::uint32_t>(in.from[2])[0] != 31) return false;
  const std::uint32_t* const a = w.lanes<std::uint32_t>(in.from[0]);
  const std::uint32_t by = w.lanes<std::uint32_t>(in.from[1])[0] & 31u;
  std::uint32_t out[kLanes];
  for (std::uint32_t i = 0; i < kLanes; ++i) out[i] = a[i ^ by];
  std::memcpy(w.lanes<std::uint32_t>(in.to[0]), out, sizeof out);
  return true;
}

void shuffle(Warp& w, const Instruction& in) {
  if (whole_shuffle(w, in)) return;
  const std::uint32_t *const a = w.lanes<std::uint32_t>(in.from[0]), *const b = w.lanes<std::uint32_t>(in.from[1]),
                             *const c = w.lanes<std::uint32_t>(in.from[2]);
  std::uint32_t out[kLanes];
  Mask in_range = 0, strays = 0;
  int stray_from = 0;
  for (Mask rest = w.mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const auto [from, inside] = source_of(static_cast<Shuffle>(in.number), lane, b[lane], c[lane]);
    in_range |= static_cast<Mask>(inside) << lane;
    const bool there = (w.mask >> from & 1) != 0 && (members(w, in, lane) >> from & 1) != 0;
    out[lane] = there ? a[from] : ~0u;
    if (!there && strays == 0) stray_from = from;
    strays |= static_cast<Mask>(!there) << lane;
  }
  if (strays != 0) {
    const int lane = std::countr_zero(strays);
    const bool named = (members(w, in, lane) >> stray_from & 1) != 0;
    w.machine->note(Code::ac604, "warp mask", in, [&] {
      return "lane " + std::to_string(lane) + " shuffles from lane " + std::to_string(stray_from) +
             (named ? ", which does not take part: the value is undefined"
                    : ", which is not in the mask: the value is undefined") +
             " (" + w.machine->thread_text(w, lane) + ")";
    });
  }
  each_into<std::uint32_t>(w, in.to[0], [&](int i) { return out[i]; });
  if (in.to[1] != kNone) {
    Mask& p = w.predicate(in.to[1]);
    p = (in_range & w.mask) | (p & ~w.mask);
  }
}

/// number: 0 all, 1 any, 2 uni, 3 ballot; bit 2 the predicate negated.
void vote(Warp& w, const Instruction& in) {
  Mask p = w.predicate(in.from[0]);
  if ((in.number & 4) != 0) p = ~p;
  const auto of = [&](int lane) {
    const Mask all = members(w, in, lane) & w.mask, yes = p & all;
    switch (in.number & 3) {
      case 0: return yes == all ? kAll : 0;
      case 1: return yes != 0 ? kAll : 0;
      case 2: return yes == all || yes == 0 ? kAll : 0;
      default: return yes;
    }
  };
  if ((in.number & 3) == 3) {
    each_into<std::uint32_t>(w, in.to[0], of);
    return;
  }
  Mask& to = w.predicate(in.to[0]);
  to = where(w, to, [&](int i) { return of(i) != 0; });
}

template <class T, bool all>
void match(Warp& w, const Instruction& in) {
  const Stored<T>* const a = w.lanes<Stored<T>>(in.from[0]);
  Mask out[kLanes] = {}, equal = 0;
  for (Mask rest = w.mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const Mask mask = members(w, in, lane) & w.mask;
    for (Mask others = mask; others != 0; others &= others - 1) {
      const int other = std::countr_zero(others);
      if (a[other] == a[lane]) out[lane] |= Mask{1} << other;
    }
    if (all) {
      equal |= static_cast<Mask>(out[lane] == mask) << lane;
      if (out[lane] != mask) out[lane] = 0;
    }
  }
  each_into<std::uint32_t>(w, in.to[0], [&](int i) { return out[i]; });
  if (all && in.to[1] != kNone) {
    Mask& p = w.predicate(in.to[1]);
    p = (equal & w.mask) | (p & ~w.mask);
  }
}

enum class Reduce : std::uint8_t { add, minimum, maximum, band, bor, bxor };

template <class T>
void reduce(Warp& w, const Instruction& in) {
  const std::uint32_t* const a = w.lanes<std::uint32_t>(in.from[0]);
  std::uint32_t out[kLanes] = {};
  for (Mask rest = w.mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    Mask mask = members(w, in, lane) & w.mask;
    T value = static_cast<T>(a[std::countr_zero(mask)]);
    for (mask &= mask - 1; mask != 0; mask &= mask - 1) {
      const auto b = static_cast<T>(a[std::countr_zero(mask)]);
      switch (static_cast<Reduce>(in.number)) {
        case Reduce::add:
          value = static_cast<T>(static_cast<std::uint32_t>(value) + static_cast<std::uint32_t>(b));
          break;
        case Reduce::minimum: value = std::min(value, b); break;
        case Reduce::maximum: value = std::max(value, b); break;
        case Reduce::band: value &= b; break;
        case Reduce::bor: value |= b; break;
        case Reduce::bxor: value ^= b; break;
      }
    }
    out[lane] = static_cast<std::uint32_t>(value);
  }
  each_into<std::uint32_t>(w, in.to[0], [&](int i) { return out[i]; });
}

void synchronise(Warp& w, const Instruction& in) {
  for (Mask rest = w.mask; rest != 0;) {
    const int lane = std::countr_zero(rest);
    const Mask mask = members(w, in, lane) & w.mask;
    w.machine->warp_synced(w, mask);
    rest &= ~(mask | Mask{1} << lane);
  }
}

void active(Warp& w, const Instruction& in) {
  const Mask mask = w.mask;
  into<std::uint32_t>(w, in.to[0], [=](int) { return mask; });
}

void elect(Warp& w, const Instruction& in) {
  std::uint32_t leaders[kLanes] = {};
  Mask chosen = 0;
  for (Mask rest = w.mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    leaders[lane] = static_cast<std::uint32_t>(std::countr_zero(members(w, in, lane) & w.mask));
    chosen |= static_cast<Mask>(leaders[lane] == static_cast<std::uint32_t>(lane)) << lane;
  }
  if (in.to[0] != kNone) each_into<std::uint32_t>(w, in.to[0], [&](int i) { return leaders[i]; });
  Mask& p = w.predicate(in.to[1]);
  p = (chosen & w.mask) | (p & ~w.mask);
}

// ---- decoding ----

/// d|p, or d alone.
void results(Decoder& d, Instruction& in, const Operand& operand) {
  const bool pair = operand.kind == Operand::Kind::ored;
  const Operand& first = pair ? operand.parts[0] : operand;
  if (first.kind != Operand::Kind::sink) in.to[0] = d.result(first, kWord);
  if (pair && operand.parts[1].kind != Operand::Kind::sink) in.to[1] = d.predicate_result(operand.parts[1]);
}

void shuffle_instruction(Decoder& d, Instruction& in, Words& words) {
  constexpr const char* kWays[] = {"up", "down", "bfly", "idx"};
  in.number = -1;
  for (int i = 0; i < 4; ++i)
    if (words.take(kWays[i])) in.number = i;
  if (in.number < 0) d.fail("got no direction, want .up, .down, .bfly or .idx");
  d.want_operands(5, 5);
  results(d, in, d.operand(0));
  if (in.to[0] == kNone) in.to[0] = d.scratch(false);
  for (std::size_t i = 0; i < 3; ++i) in.from[i] = d.value(d.operand(i + 1), kWord);
  in.from[3] = d.value(d.operand(4), kWord);
  in.run = &shuffle;
}

void vote_instruction(Decoder& d, Instruction& in, Words& words) {
  constexpr const char* kWays[] = {"all", "any", "uni", "ballot"};
  in.number = -1;
  for (int i = 0; i < 4; ++i)
    if (words.take(kWays[i])) in.number = i;
  if (in.number < 0) d.fail("got no vote, want .all, .any, .uni or .ballot");
  d.want_operands(3, 3);
  in.to[0] = in.number == 3 ? d.result(d.operand(0), kWord) : d.predicate_result(d.operand(0));
  in.from[0] = d.predicate(d.operand(1));
  if (d.operand(1).negated) in.number |= 4;
  in.from[3] = d.value(d.operand(2), kWord);
  in.run = &vote;
}

void match_instruction(Decoder& d, Instruction& in, Words& words, const Type& t) {
  const bool all = words.take("all");
  if (!all && !words.take("any")) d.fail("got no way to match, want .any or .all");
  d.want_operands(3, 3);
  results(d, in, d.operand(0));
  if (in.to[0] == kNone) in.to[0] = d.scratch(false);
  in.from[0] = d.value(d.operand(1), t);
  in.from[3] = d.value(d.operand(2), kWord);
  if (t.bits == 64)
    in.run = all ? &match<std::uint64_t, true> : &match<std::uint64_t, false>;
  else
    in.run = all ? &match<std::uint32_t, true> : &match<std::uint32_t, false>;
}

void reduce_instruction(Decoder& d, Instruction& in, Words& words, const Type& t) {
  constexpr const char* kWays[] = {"add", "min", "max", "and", "or", "xor"};
  in.number = -1;
  for (int i = 0; i < 6; ++i)
    if (words.take(kWays[i])) in.number = i;
  if (in.number < 0 || t.bits != 32 || t.kind == 'f')
    d.fail("got '" + d.statement().text() + "', which device ptx does not run");
  d.want_operands(3, 3);
  in.to[0] = d.result(d.operand(0), kWord);
  in.from[0] = d.value(d.operand(1), kWord);
  in.from[3] = d.value(d.operand(2), kWord);
  in.run = t.kind == 's' ? &reduce<std::int32_t> : &reduce<std::uint32_t>;
}

}  // namespace

bool decode_warp(Decoder& d, Instruction& in) {
  const std::string& root = d.statement().words[0];
  constexpr const char* kRoots[] = {"shfl", "vote", "match", "redux", "activemask", "elect"};
  const auto& all = d.statement().words;
  const bool barrier = (root == "bar" || root == "barrier") && all.size() > 1 && all[1] == "warp";
  if (!barrier && std::find(std::begin(kRoots), std::end(kRoots), root) == std::end(kRoots)) return false;
  Words words(d.statement().words);
  Type t = kWord;
  words.take_type(t);
  if (root == "activemask") {
    d.want_operands(1, 1);
    in.to[0] = d.result(d.operand(0), kWord);
    in.run = &active;
    return true;
  }
  if (!words.take("sync")) d.fail("got '" + d.statement().text() + "', want its form with .sync and a mask of lanes");
  words.take("aligned");
  in.flow = Flow::warp;
  if (barrier) {
    words.take("warp");
    d.want_operands(1, 1);
    in.from[3] = d.value(d.operand(0), kWord);
    in.run = &synchronise;
  } else if (root == "shfl") {
    shuffle_instruction(d, in, words);
  } else if (root == "vote") {
    vote_instruction(d, in, words);
  } else if (root == "match") {
    match_instruction(d, in, words, t);
  } else if (root == "redux") {
    reduce_instruction(d, in, words, t);
  } else {
    d.want_operands(2, 2);
    results(d, in, d.operand(0));
    if (in.to[1] == kNone) d.fail("want a predicate");
    in.from[3] = d.value(d.operand(1), kWord);
    in.run = &elect;
  }
  d.want_all(words);
  return true;
}

}  // namespace ampcheck::ptx
