// SPDX-License-Identifier: Apache-2.0
// A warp as instructions see it, and loops over its 32 lanes that a compiler turns into vector code.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "src/ptx/program.h"

namespace ampcheck::ptx {

class Machine;
struct Block;

/// A half or bfloat as its bits: `f16` and `bf16` of PTX.
struct Half {
  std::uint16_t bits;
};
struct BFloat {
  std::uint16_t bits;
};

class Warp {
 public:
  template <class T>
  T* lanes(Slot slot) const {
    return reinterpret_cast<T*>(base[slot >> 31] + (slot & ~kConstant));
  }
  Mask& predicate(Slot slot) const { return *lanes<Mask>(slot); }

  std::uint8_t* base[2] = {};  ///< registers and constants
  Mask mask = 0;               ///< lanes that the instruction at hand is for
  Mask live = 0;               ///< lanes that have not ended
  Mask carry = 0;              ///< the condition code of add.cc and alike
  Machine* machine = nullptr;
  Block* block = nullptr;
  std::uint32_t index = 0;  ///< in its block
};

/// How a T lies in a slot.
template <class T>
using Stored = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <class T>
inline T taken(Stored<T> bits) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat>)
    return T{static_cast<std::uint16_t>(bits)};
  else if constexpr (std::is_floating_point_v<T>)
    return std::bit_cast<T>(bits);
  else
    return static_cast<T>(bits);
}

template <class T>
inline Stored<T> put(T value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat>)
    return value.bits;
  else if constexpr (std::is_floating_point_v<T>)
    return std::bit_cast<Stored<T>>(value);
  else
    return static_cast<Stored<T>>(static_cast<std::make_unsigned_t<T>>(value));
}

/// Where an access of a lane goes, as a generic address.
inline std::uint64_t address_of(const Warp& w, const Instruction& in, int lane) {
  std::uint64_t out =
      in.narrow_address ? w.lanes<std::uint32_t>(in.from[0])[lane] : w.lanes<std::uint64_t>(in.from[0])[lane];
  out += static_cast<std::uint64_t>(in.number);
  if (in.space == Space::shared) out = kSharedWindow + (out & 0xffffffffu);
  if (in.space == Space::local) out = kLocalWindow + (out & 0xffffffffu);
  return out;
}

/// Calls f(lane) for each lane of the mask, and stores what it returns.
template <class R, class F>
inline void into(const Warp& w, Slot slot, F f) {
  Stored<R>* const to = w.lanes<Stored<R>>(slot);
  if (w.mask == kAll) {
#pragma GCC ivdep
    for (int i = 0; i < kLanes; ++i) to[i] = put<R>(f(i));
    return;
  }
  const Mask mask = w.mask;
#pragma GCC ivdep
  for (int i = 0; i < kLanes; ++i) {
    const Stored<R> value = put<R>(f(i));
    to[i] = (mask >> i & 1) != 0 ? value : to[i];
  }
}

/// The same for what a compiler can not turn into vector code, or may not compute for lanes that are not asked for.
template <class R, class F>
inline void each_into(const Warp& w, Slot slot, F f) {
  Stored<R>* const to = w.lanes<Stored<R>>(slot);
  for (Mask rest = w.mask; rest != 0; rest &= rest - 1) {
    const int i = std::countr_zero(rest);
    to[i] = put<R>(f(i));
  }
}

template <class R, class T, class F>
void map1(Warp& w, const Instruction& in) {
  const Stored<T>* const a = w.lanes<Stored<T>>(in.from[0]);
  into<R>(w, in.to[0], [=](int i) { return F{}(taken<T>(a[i])); });
}

template <class R, class T, class F>
void map2(Warp& w, const Instruction& in) {
  const Stored<T>*const a = w.lanes<Stored<T>>(in.from[0]), *const b = w.lanes<Stored<T>>(in.from[1]);
  into<R>(w, in.to[0], [=](int i) { return F{}(taken<T>(a[i]), taken<T>(b[i])); });
}

/// The third operand may be of another type.
template <class R, class T, class F, class U = T>
void map3(Warp& w, const Instruction& in) {
  const Stored<T>*const a = w.lanes<Stored<T>>(in.from[0]), *const b = w.lanes<Stored<T>>(in.from[1]);
  const Stored<U>* const c = w.lanes<Stored<U>>(in.from[2]);
  into<R>(w, in.to[0], [=](int i) { return F{}(taken<T>(a[i]), taken<T>(b[i]), taken<U>(c[i])); });
}

/// Lane by lane, for functions that are calls or branch.
template <class R, class T, class F>
void each1(Warp& w, const Instruction& in) {
  const Stored<T>* const a = w.lanes<Stored<T>>(in.from[0]);
  each_into<R>(w, in.to[0], [=](int i) { return F{}(taken<T>(a[i])); });
}
template <class R, class T, class F, class U = T>
void each2(Warp& w, const Instruction& in) {
  const Stored<T>* const a = w.lanes<Stored<T>>(in.from[0]);
  const Stored<U>* const b = w.lanes<Stored<U>>(in.from[1]);
  each_into<R>(w, in.to[0], [=](int i) { return F{}(taken<T>(a[i]), taken<U>(b[i])); });
}
template <class R, class T, class F>
void each3(Warp& w, const Instruction& in) {
  const Stored<T>*const a = w.lanes<Stored<T>>(in.from[0]), *const b = w.lanes<Stored<T>>(in.from[1]),
                        *const c = w.lanes<Stored<T>>(in.from[2]);
  each_into<R>(w, in.to[0], [=](int i) { return F{}(taken<T>(a[i]), taken<T>(b[i]), taken<T>(c[i])); });
}

/// The lanes at which f holds, as a mask; inactive lanes keep what `before` has.
template <class F>
inline Mask where(const Warp& w, Mask before, F f) {
  Mask out = 0;
  for (int i = 0; i < kLanes; ++i) out |= static_cast<Mask>(f(i)) << i;
  return (out & w.mask) | (before & ~w.mask);
}

}  // namespace ampcheck::ptx
