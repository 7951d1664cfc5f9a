// SPDX-License-Identifier: Apache-2.0
// ld, st and what copies between global and shared memory.
#include <algorithm>

#include "src/ptx/decode.h"
#include "src/ptx/machine.h"

namespace ampcheck::ptx {

namespace {

template <class T>
void give(const Warp& w, std::uint32_t slot, int lane, T value) {
  if (slot == kNone) return;
  if ((slot & kWideSlot) != 0)
    w.lanes<std::uint64_t>(slot & ~kWideSlot)[lane] =
        static_cast<std::uint64_t>(std::is_signed_v<T> ? static_cast<std::int64_t>(value)
                                                       : static_cast<std::int64_t>(static_cast<std::uint64_t>(value)));
  else
    w.lanes<std::uint32_t>(slot)[lane] = static_cast<std::uint32_t>(value);
}

/// The addresses of all lanes, of inactive ones too.
void addresses_of(const Warp& w, const Instruction& in, std::uint64_t* at) {
  const bool windowed = in.space == Space::shared || in.space == Space::local;
  const std::uint64_t plus = static_cast<std::uint64_t>(in.number),
                      keep = windowed ? std::uint64_t{0xffffffff} : ~std::uint64_t{0},
                      window = in.space == Space::shared  ? kSharedWindow
                               : in.space == Space::local ? kLocalWindow
                                                          : 0;
  if (in.narrow_address) {
    const std::uint32_t* const a = w.lanes<std::uint32_t>(in.from[0]);
    for (int i = 0; i < kLanes; ++i) at[i] = ((a[i] + plus) & keep) + window;
    return;
  }
  const std::uint64_t* const a = w.lanes<std::uint64_t>(in.from[0]);
  for (int i = 0; i < kLanes; ++i) at[i] = ((a[i] + plus) & keep) + window;
}

/// Whether the lanes follow each other in memory.
bool in_a_row(const std::uint64_t* at, std::uint64_t bytes) {
  std::uint64_t apart = 0;
  for (std::uint64_t i = 0; i < kLanes; ++i) apart |= at[i] ^ (at[0] + i * bytes);
  return apart == 0;
}

/// One element a lane by a whole warp, the lanes in a row: one look for all of them.
template <class T>
bool load_row(Warp& w, const std::uint64_t* at, std::uint32_t slot) {
  if (w.mask != kAll || !in_a_row(at, sizeof(T))) return false;
  const std::uint8_t* const from = w.machine->locate_row(w, at[0], sizeof(T), Access::read);
  if (from == nullptr) return false;
  T values[kLanes];
  std::memcpy(values, from, sizeof values);
  if ((slot & kWideSlot) != 0) {
    auto* const to = w.lanes<std::uint64_t>(slot & ~kWideSlot);
    for (int i = 0; i < kLanes; ++i) to[i] = static_cast<std::uint64_t>(static_cast<std::int64_t>(values[i]));
  } else {
    auto* const to = w.lanes<std::uint32_t>(slot);
    for (int i = 0; i < kLanes; ++i) to[i] = static_cast<std::uint32_t>(values[i]);
  }
  return true;
}

/// One element a lane, all of them from one tensor that nothing has written: no lane needs a look of its own.
template <class T>
bool load_plainly(Warp& w, const Instruction& in, std::uint32_t slot) {
  if (in.space == Space::local || slot == kNone) return false;
  std::uint64_t at[kLanes];
  addresses_of(w, in, at);
  if (load_row<T>(w, at, slot)) return true;
  if (in.space == Space::shared) return false;
  std::uint64_t low = ~std::uint64_t{0}, high = 0, odd = 0;
  for (Mask rest = w.mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    low = std::min(low, at[lane]);
    high = std::max(high, at[lane]);
    odd |= at[lane];
  }
  std::uint64_t to_host = 0;
  if ((odd & (sizeof(T) - 1)) != 0 || !w.machine->plain_read(low, high - low + sizeof(T), to_host)) return false;
  for (Mask rest = w.mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    T value;
    std::memcpy(&value, reinterpret_cast<const void*>(at[lane] + to_host), sizeof(T));
    give(w, slot, lane, value);
  }
  return true;
}

template <class T>
bool store_row(Warp& w, const Instruction& in, std::uint32_t slot) {
  if (w.mask != kAll || in.space == Space::local) return false;
  std::uint64_t at[kLanes];
  addresses_of(w, in, at);
  if (!in_a_row(at, sizeof(T))) return false;
  std::uint8_t* const to = w.machine->locate_row(w, at[0], sizeof(T), Access::write);
  if (to == nullptr) return false;
  T values[kLanes];
  const bool wide = sizeof(T) == 8 || ((slot & kConstant) == 0 && (slot & kWideSlot) != 0);
  if (wide) {
    const auto* const from = w.lanes<std::uint64_t>((slot & kConstant) == 0 ? slot & ~kWideSlot : slot);
    for (int i = 0; i < kLanes; ++i) values[i] = static_cast<T>(from[i]);
  } else {
    const auto* const from = w.lanes<std::uint32_t>(slot);
    for (int i = 0; i < kLanes; ++i) values[i] = static_cast<T>(from[i]);
  }
  std::memcpy(to, values, sizeof values);
  return true;
}

/// target: a strong access.
template <class T>
void load(Warp& w, const Instruction& in) {
  const std::uint32_t* const extra = &w.machine->program().extra[in.more];
  const Access access = in.target != 0 ? Access::strong_read : Access::read;
  if (in.count == 1 && access == Access::read && load_plainly<T>(w, in, extra[0])) return;
  const auto bytes = static_cast<std::uint32_t>(sizeof(T)) * in.count;
  for (Mask rest = w.mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const std::uint8_t* const from = w.machine->locate(w, in, lane, address_of(w, in, lane), bytes, access);
    for (unsigned k = 0; k < in.count; ++k) {
      T value = static_cast<T>(~T{0});  // a NaN where the access may not be
      if (from != nullptr) std::memcpy(&value, from + k * sizeof(T), sizeof(T));
      give(w, extra[k], lane, value);
    }
  }
}

template <class T>
void store(Warp& w, const Instruction& in) {
  const std::uint32_t* const extra = &w.machine->program().extra[in.more];
  const Access access = in.target != 0 ? Access::strong_write : Access::write;
  if (in.count == 1 && access == Access::write && store_row<T>(w, in, extra[0])) return;
  const auto bytes = static_cast<std::uint32_t>(sizeof(T)) * in.count;
  for (Mask rest = w.mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    T values[8] = {};
    for (unsigned k = 0; k < in.count; ++k)
      values[k] = (extra[k] & kConstant) == 0 && (extra[k] & kWideSlot) != 0
                      ? static_cast<T>(w.lanes<std::uint64_t>(extra[k] & ~kWideSlot)[lane])
                      : static_cast<T>(sizeof(T) == 8 ? w.lanes<std::uint64_t>(extra[k])[lane]
                                                      : w.lanes<std::uint32_t>(extra[k])[lane]);
    std::uint8_t* const to = w.machine->locate(w, in, lane, address_of(w, in, lane), bytes, access, values);
    if (to != nullptr) std::memcpy(to, values, bytes);
  }
}

void load_parameter(Warp& w, const Instruction& in) {
  const std::uint32_t* const extra = &w.machine->program().extra[in.more];
  const bool is_signed = in.target != 0;
  for (unsigned k = 0; k < in.count; ++k) {
    std::uint64_t value = 0;
    std::memcpy(&value, w.machine->parameters(static_cast<std::uint64_t>(in.number) + k * in.bytes, in.bytes),
                in.bytes);
    const unsigned gap = 64 - 8u * in.bytes;
    if (is_signed) value = static_cast<std::uint64_t>(static_cast<std::int64_t>(value << gap) >> gap);
    if (extra[k] == kNone) continue;
    if ((extra[k] & kWideSlot) != 0)
      into<std::uint64_t>(w, extra[k] & ~kWideSlot, [=](int) { return value; });
    else
      into<std::uint32_t>(w, extra[k], [=](int) { return static_cast<std::uint32_t>(value); });
  }
}

void nothing(Warp&, const Instruction&) {}

/// cp.async: from global to shared memory, at once. from[1]: the bytes that are read, the rest is zero.
void copy_async(Warp& w, const Instruction& in) {
  const std::uint64_t* const from = w.lanes<std::uint64_t>(in.from[0]);
  const std::uint32_t* const extra = &w.machine->program().extra[in.more];
  const auto to_plus = static_cast<std::int32_t>(extra[0]);
  for (Mask rest = w.mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    std::uint32_t count = in.bytes;
    if (in.from[1] != kNone) count = std::min<std::uint32_t>(count, w.lanes<std::uint32_t>(in.from[1])[lane]);
    if (in.from[2] != kNone && (w.predicate(in.from[2]) >> lane & 1) != 0) count = 0;  // ignore-src
    std::uint8_t bytes[16] = {};
    const std::uint32_t step = count % 4 == 0 ? 4 : 1;
    for (std::uint32_t k = 0; k < count; k += step) {
      const std::uint64_t at = from[lane] + static_cast<std::uint64_t>(in.number) + k;
      const std::uint8_t* const source = w.machine->locate(w, in, lane, at, step, Access::read);
      if (source != nullptr) std::memcpy(bytes + k, source, step);
    }
    const std::uint64_t to =
        extra[1] != 0 ? w.lanes<std::uint32_t>(in.to[0])[lane] : w.lanes<std::uint64_t>(in.to[0])[lane];
    const std::uint64_t address =
        kSharedWindow + ((to + static_cast<std::uint64_t>(std::int64_t{to_plus})) & 0xffffffffu);
    std::uint8_t* const target = w.machine->locate(w, in, lane, address, in.bytes, Access::write, bytes);
    if (target != nullptr) std::memcpy(target, bytes, in.bytes);
  }
}

/// ldmatrix: lane l names row l; each lane gets two neighbouring halves of row l/4 of each of the matrices.
template <bool transposed>
void load_matrix(Warp& w, const Instruction& in) {
  const std::uint32_t* const extra = &w.machine->program().extra[in.more];
  std::uint8_t rows[32][16] = {};
  for (int lane = 0; lane < 8 * in.count; ++lane) {
    if ((w.mask >> lane & 1) == 0) continue;
    const std::uint8_t* const from = w.machine->locate(w, in, lane, address_of(w, in, lane), 16, Access::read);
    if (from != nullptr)
      std::memcpy(rows[lane], from, 16);
    else
      std::memset(rows[lane], 0xff, 16);
  }
  for (unsigned k = 0; k < in.count; ++k)
    into<std::uint32_t>(w, extra[k], [&](int i) {
      std::uint16_t half[2];
      for (int j = 0; j < 2; ++j) {
        const int row = transposed ? 2 * (i % 4) + j : i / 4, column = transposed ? i / 4 : 2 * (i % 4) + j;
        std::memcpy(&half[j], rows[8 * k + static_cast<unsigned>(row)] + 2 * column, 2);
      }
      return static_cast<std::uint32_t>(half[0] | half[1] << 16);
    });
}

// ---- decoding ----

constexpr Type kWord{'u', 32, 1, "u32"}, kWide{'u', 64, 1, "u64"};

/// Words that say how a cache is used, or who is to see the access: those that make it a strong one are told apart.
bool take_hints(Words& words) {
  bool strong = false;
  for (const char* word : {"volatile", "relaxed", "acquire", "release", "mmio"}) strong = words.take(word) || strong;
  for (const char* word : {"weak",
                           "cta",
                           "cluster",
                           "gpu",
                           "sys",
                           "ca",
                           "cg",
                           "cs",
                           "lu",
                           "cv",
                           "wb",
                           "wt",
                           "nc",
                           "L1::evict_normal",
                           "L1::evict_unchanged",
                           "L1::evict_first",
                           "L1::evict_last",
                           "L1::no_allocate",
                           "L2::cache_hint",
                           "L2::64B",
                           "L2::128B",
                           "L2::256B",
                           "L2::evict_first",
                           "L2::evict_last",
                           "L2::evict_normal",
                           "unified"})
    words.take(word);
  return strong;
}

Space take_space(Words& words) {
  constexpr std::pair<const char*, Space> kWords[] = {{"global", Space::global},      {"shared", Space::shared},
                                                      {"shared::cta", Space::shared}, {"local", Space::local},
                                                      {"const", Space::constant},     {"param", Space::param},
                                                      {"param::entry", Space::param}, {"param::func", Space::param}};
  for (const auto& [word, space] : kWords)
    if (words.take(word)) return space;
  return Space::generic;
}

void registers_of(Decoder& d, Instruction& in, const Operand& operand, const Type& t, bool to) {
  std::vector<std::uint32_t> slots;
  const auto one = [&](const Operand& part) {
    if (part.kind == Operand::Kind::sink) return kNone;
    const int bits = d.register_bits(part);
    Type as = t;
    if (bits == 64) as.bits = 64;  // a register may be wider than what is loaded or stored
    if (bits == 32 && t.bits == 64) d.fail("got a register of 32 bits, want one of 64");
    const Slot slot = to ? d.result(part, as) : d.value(part, as);
    return (slot & kConstant) == 0 && as.bits == 64 ? slot | kWideSlot : slot;
  };
  if (operand.kind == Operand::Kind::list) {
    if (operand.parts.size() != in.count)
      d.fail("got " + std::to_string(operand.parts.size()) + " registers, want " + std::to_string(in.count));
    for (const Operand& part : operand.parts) slots.push_back(one(part));
  } else {
    if (in.count != 1) d.fail("got one register, want " + std::to_string(in.count) + " in braces");
    slots.push_back(one(operand));
  }
  in.more = d.add_extra(slots[0]);
  for (std::size_t i = 1; i < slots.size(); ++i) d.add_extra(slots[i]);
}

Execute load_of(const Type& t) {
  const bool s = t.kind == 's';
  switch (t.bits) {
    case 8: return s ? &load<std::int8_t> : &load<std::uint8_t>;
    case 16: return s ? &load<std::int16_t> : &load<std::uint16_t>;
    case 32: return s ? &load<std::int32_t> : &load<std::uint32_t>;
    case 64: return &load<std::uint64_t>;
    default: return nullptr;
  }
}
Execute store_of(int bits) {
  switch (bits) {
    case 8: return &store<std::uint8_t>;
    case 16: return &store<std::uint16_t>;
    case 32: return &store<std::uint32_t>;
    case 64: return &store<std::uint64_t>;
    default: return nullptr;
  }
}

bool load_or_store(Decoder& d, Instruction& in, Words& words) {
  const bool to = d.statement().words[0] != "st";
  in.target = take_hints(words) ? 1 : 0;
  in.space = take_space(words);
  in.count = words.take("v2") ? 2 : words.take("v4") ? 4 : words.take("v8") ? 8 : 1;
  Type t;
  if (!words.take_type(t)) d.fail("got no type");
  Type element = t;
  element.bits = t.width();
  element.lanes = 1;
  in.bytes = static_cast<std::uint8_t>(element.bits / 8);
  if (in.count * in.bytes > 32) d.fail("got a vector of more than 32 bytes");
  d.want_operands(2, 3);  // a third is the policy of a cache
  registers_of(d, in, d.operand(to ? 0 : 1), element, to);
  d.address(d.operand(to ? 1 : 0), in.space, in);
  if (in.space == Space::param) {
    if (!to || in.from[0] != kNone)
      d.fail("got an access of a kernel's parameters by " + d.statement().text() + ", want ld.param [name]");
    in.target = t.kind == 's' ? 1 : 0;
    in.run = &load_parameter;
    return true;
  }
  in.run = to ? load_of(element) : store_of(element.bits);
  return in.run != nullptr;
}

bool asynchronous(Decoder& d, Instruction& in, Words& words) {
  if (words.take("bulk")) d.fail("got cp.async.bulk (the tensor memory accelerator), which device ptx does not run");
  if (words.take("commit_group") || words.take("wait_group") || words.take("wait_all")) {
    in.run = &nothing;
    return true;
  }
  if (!words.take("ca") && !words.take("cg")) return false;
  take_hints(words);
  words.take("shared");
  words.take("shared::cta");
  words.take("global");
  d.want_operands(3, 5);
  Space shared = Space::shared, global = Space::global;
  Instruction to;
  d.address(d.operand(0), shared, to);
  d.address(d.operand(1), global, in);
  in.to[0] = to.from[0];
  in.more = d.add_extra(static_cast<std::uint32_t>(to.number));
  d.add_extra(to.narrow_address ? 1 : 0);
  const std::int64_t bytes = d.operand(2).number;
  if (bytes != 4 && bytes != 8 && bytes != 16) d.fail("got " + std::to_string(bytes) + " bytes, want 4, 8 or 16");
  in.bytes = static_cast<std::uint8_t>(bytes);
  if (d.operands() > 3) {
    const Operand& fourth = d.operand(3);
    if (fourth.kind == Operand::Kind::integer || d.register_bits(fourth) == 32)
      in.from[1] = d.value(fourth, kWord);
    else if (d.register_bits(fourth) == 1)
      in.from[2] = d.predicate(fourth);
  }
  in.run = &copy_async;
  return true;
}

bool matrix(Decoder& d, Instruction& in, Words& words) {
  words.take("sync");
  words.take("aligned");
  if (!words.take("m8n8")) return false;
  in.count = words.take("x4") ? 4 : words.take("x2") ? 2 : 1;
  words.take("x1");
  const bool transposed = words.take("trans");
  words.take("shared");
  words.take("shared::cta");
  Type t;
  if (!words.take_type(t) || t.bits != 16) return false;
  d.want_operands(2, 2);
  registers_of(d, in, d.operand(0), kWord, true);
  in.space = Space::shared;
  d.address(d.operand(1), in.space, in);
  in.bytes = 16;
  in.flow = Flow::warp;
  in.from[3] = d.constant(kAll, false);
  in.target = transposed ? 1 : 0;
  in.run = transposed ? &load_matrix<true> : &load_matrix<false>;
  return true;
}

}  // namespace

bool decode_memory(Decoder& d, Instruction& in) {
  const std::string& root = d.statement().words[0];
  Words words(d.statement().words);
  bool known = false;
  if (root == "ld" || root == "ldu" || root == "st") {
    known = load_or_store(d, in, words);
  } else if (root == "cp") {
    known = words.take("async") && asynchronous(d, in, words);
  } else if (root == "ldmatrix") {
    known = matrix(d, in, words);
  } else if (root == "prefetch" || root == "prefetchu" || root == "discard" || root == "applypriority" ||
             root == "createpolicy") {
    in.run = &nothing;
    return true;
  } else {
    return false;
  }
  if (!known) d.fail("got '" + d.statement().text() + "', an access that device ptx does not run");
  d.want_all(words);
  return true;
}

}  // namespace ampcheck::ptx
