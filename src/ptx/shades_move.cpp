// SPDX-License-Identifier: Apache-2.0
// How shades go from register to register and through memory.
#include <algorithm>
#include <bit>

#include "src/ptx/shades.h"
#include "src/ptx/shuffle.h"

namespace ampcheck::ptx {

Shades::Shades(const Program& program, Machine& machine, std::uint32_t warps)
    : program_(program), machine_(machine), registers_(warps), lines_(program.text.places.size() + 1) {
  for (auto& file : registers_) file.resize(program.register_bytes / 64 + 4);
}

void Shades::start_block() {
  for (auto& file : registers_)
    for (auto& lanes : file)
      if (lanes != nullptr) *lanes = {};
  std::erase_if(pages_, [](const auto& page) {
    const std::uint64_t window = page.first << 12 >> 56;
    return window == kSharedWindow >> 56 || window == kLocalWindow >> 56;
  });
  last_page_ = ~std::uint64_t{0};
}

Shades::Lanes* Shades::known(const WarpState& w, Slot slot) {
  if ((slot & kConstant) != 0) return nullptr;
  return registers_[w.index][(slot & ~kWideSlot) / 64].get();
}

Shades::Lanes& Shades::made(const WarpState& w, Slot slot) {
  auto& lanes = registers_[w.index][(slot & ~kWideSlot) / 64];
  if (lanes == nullptr) lanes = std::make_unique<Lanes>();
  return *lanes;
}

void Shades::drop(const WarpState& w, Slot slot, Mask mask) {
  if (slot == kNone) return;
  Lanes* const lanes = known(w, slot);
  if (lanes == nullptr) return;
  for (; mask != 0; mask &= mask - 1)
    for (auto& part : lanes->part) part[std::countr_zero(mask)].format = NumberFormat::none;
}

/// A float of a register with its shade, or with itself where it has none.
Shades::Operand Shades::read(const WarpState& w, Slot slot, NumberFormat format, unsigned part, unsigned lane) {
  Operand out;
  const std::uint64_t all = format == NumberFormat::wide ? w.lanes<std::uint64_t>(slot)[lane]
                                                         : std::uint64_t{w.lanes<std::uint32_t>(slot)[lane]};
  const bool narrow = format == NumberFormat::half || format == NumberFormat::bfloat;
  const std::uint64_t bits = narrow ? all >> (16 * part) & 0xffffu : all;
  out.real = real_of(format, bits);
  if (const Lanes* const lanes = known(w, slot)) {
    const Shade& own = lanes->part[part][lane];
    if (own.format == format && own.bits == bits) {
      out.shade = own;
      return out;
    }
    const Shade& upper = lanes->part[1][lane];  // a bfloat over zeros is an f32 of its value
    if (format == NumberFormat::single && upper.format == NumberFormat::bfloat && upper.bits << 16 == bits) {
      out.shade = upper;
      out.shade.bits = bits;
      return out;
    }
  }
  out.shade.value = out.real;
  out.shade.bits = bits;
  return out;
}

/// Where an access goes; of an atomic addition also what it adds, and the shade of what is there.
void Shades::hold_addresses(const WarpState& w, const Instruction& in) {
  const Number& number = in.number_of_it;
  const bool adds = number.op == NumberOp::atomic_add && in.bytes == 4 && !number.pair;
  for (Mask rest = w.mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    at_[lane] = address_of(w, in, lane);
    if (!adds) continue;
    from_[1][0][lane] = read(w, in.from[1], number.result, 0, static_cast<unsigned>(lane));
    Shade* const cell = this->cell(key(w, at_[lane], static_cast<unsigned>(lane)), true);
    const std::uint8_t* const there = machine_.peek(at_[lane], 4);
    std::uint32_t bits = 0;
    if (there != nullptr) std::memcpy(&bits, there, 4);
    if (cell->format == number.result && cell->bits == bits) continue;
    *cell = {};
    cell->value = real_of(number.result, bits);
    cell->bits = bits;
    cell->format = number.result;
  }
}

void Shades::before(WarpState& w, const Instruction& in) {
  const Number& number = in.number_of_it;
  using enum NumberOp;
  switch (number.op) {
    case none: return;
    case product:
    case wmma_product: return hold_product(w, in);
    case wmma_load:
    case wmma_store: return hold_fragment(w, in);
    case load:
    case store:
    case matrix:
    case atomic_add:
      if (in.space != Space::param) hold_addresses(w, in);
      return;
    case move:
    case choose:
    case shuffle: return hold(w, in);
    default: break;
  }
  const unsigned n = operands_of(number.op), parts = number.pair ? 2 : 1;
  const bool packs = number.op == convert && number.pair && in.from[1] != kNone;
  for (Mask rest = w.mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(rest));
    for (unsigned part = 0; part < parts; ++part)
      for (unsigned k = 0; k < n; ++k)  // cvt of two floats: the first goes to the upper half
        from_[k][part][lane] = packs ? read(w, in.from[1 - part], number.operand, 0, lane)
                                     : read(w, in.from[k], number.operand, part, lane);
  }
}

/// The shades that a move, a choice or a shuffle will carry.
void Shades::hold(const WarpState& w, const Instruction& in) {
  const NumberOp op = in.number_of_it.op;
  const auto take = [&](int lane, Slot slot, int from) {
    const Lanes* const lanes = slot == kNone ? nullptr : known(w, slot);
    for (unsigned part = 0; part < 2; ++part) moved_[part][lane] = lanes == nullptr ? Shade{} : lanes->part[part][from];
  };
  const bool mixed = op == NumberOp::move && in.count > 1;
  if (mixed && in.to[0] != kNone) return;  // a vector into a register: its parts stay where they are
  for (Mask rest = w.mask; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    if (op == NumberOp::choose) {
      const bool first = (w.predicate(in.from[2]) >> lane & 1) != (in.number & 1);
      take(lane, in.from[first ? 0 : 1], lane);
    } else if (op == NumberOp::shuffle) {
      const auto [from, inside] =
          source_of(static_cast<Shuffle>(in.number), lane, w.lanes<std::uint32_t>(in.from[1])[lane],
                    w.lanes<std::uint32_t>(in.from[2])[lane]);
      take(lane, in.from[0], from & 31);
    } else {
      take(lane, in.from[0], lane);
    }
  }
}

void Shades::after(WarpState& w, const Instruction& in) {
  using enum NumberOp;
  switch (in.number_of_it.op) {
    case product:
    case wmma_product: return multiply(w, in);
    case wmma_load:
    case wmma_store: return move_fragment(w, in);
    case none:
      drop(w, in.to[0], w.mask);
      drop(w, in.to[1], w.mask);
      return;
    case move:
      if (in.count > 1) return move_vector(w, in);
      [[fallthrough]];
    case choose:
    case shuffle: return arrive(w, in.to[0]);
    case load: return load_lanes(w, in);
    case store: return store_lanes(w, in);
    case matrix: return load_matrix(w, in);
    case atomic_add: return add_atomically(w, in);
    default: return compute(w, in);
  }
}

/// What was held is in a register now. It counts only where the bits came along.
void Shades::arrive(const WarpState& w, Slot slot) {
  const auto empty = [](const Shade& s) { return s.format == NumberFormat::none; };
  if (known(w, slot) == nullptr && std::all_of(moved_[0], moved_[0] + kLanes, empty) &&
      std::all_of(moved_[1], moved_[1] + kLanes, empty))
    return;
  Lanes& to = made(w, slot);
  for (Mask rest = w.mask; rest != 0; rest &= rest - 1)
    for (unsigned part = 0; part < 2; ++part)
      to.part[part][std::countr_zero(rest)] = moved_[part][std::countr_zero(rest)];
}

/// mov between a register and its halves.
void Shades::move_vector(const WarpState& w, const Instruction& in) {
  const std::uint32_t* const extra = &program_.extra[in.more];
  if (in.count != 2) {
    drop(w, in.to[0], w.mask);
    for (unsigned k = 0; in.to[0] == kNone && k < in.count; ++k) drop(w, extra[k], w.mask);
    return;
  }
  for (unsigned k = 0; k < 2; ++k) {
    const Slot part = extra[k], to = in.to[0] != kNone ? in.to[0] : part;
    if (to == kNone) continue;
    const Lanes* const from = in.to[0] != kNone && part != kNone ? known(w, part) : nullptr;
    Lanes& lanes = made(w, to);
    for (Mask rest = w.mask; rest != 0; rest &= rest - 1) {
      const int lane = std::countr_zero(rest);
      if (in.to[0] != kNone) {
        lanes.part[k][lane] = from == nullptr ? Shade{} : from->part[0][lane];
      } else {
        lanes.part[0][lane] = moved_[k][lane];
        lanes.part[1][lane] = {};
      }
    }
  }
}

// ---- memory ----

std::uint64_t Shades::key(const WarpState& w, std::uint64_t address, unsigned lane) const {
  if (address >> 56 != kLocalWindow >> 56) return address;
  return address + (std::uint64_t{w.index * kLanes + lane} << 32);  // each thread has its own
}

Shades::Shade* Shades::cell(std::uint64_t address, bool make) {
  const std::uint64_t page = address >> 12;
  if (page != last_page_) {
    auto found = pages_.find(page);
    if (found == pages_.end()) {
      if (!make) return nullptr;
      found = pages_.emplace(page, std::make_unique<Page>()).first;
    }
    last_page_ = page;
    last_ = found->second.get();
  }
  return &last_->at[(address & 4095) / 2];
}

void Shades::load_cells(const WarpState& w, Slot slot, unsigned lane, std::uint64_t at, std::uint32_t bytes) {
  if (slot == kNone || (slot & kConstant) != 0) return;
  const Shade* const first = cell(at, false);
  const bool whole = first != nullptr && (bytes == 2 || (bytes == 8 && first->format == NumberFormat::wide) ||
                                          (bytes == 4 && first->format == NumberFormat::single));
  const Shade low = first == nullptr ? Shade{} : *first;
  const Shade* const second = whole || bytes < 4 ? nullptr : cell(at + bytes / 2, false);
  const Shade high = second == nullptr ? Shade{} : *second;
  if (known(w, slot) == nullptr && low.format == NumberFormat::none && high.format == NumberFormat::none) return;
  Lanes& lanes = made(w, slot);
  lanes.part[0][lane] = low;
  lanes.part[1][lane] = high;
}

/// A float comes to lie in memory: in that of the GPU it may be too far from its shade.
void Shades::put(const Shade& shade, std::uint64_t key, std::uint64_t at, std::uint32_t bytes) {
  Shade* const to = cell(key, shade.format != NumberFormat::none);
  if (to == nullptr) return;
  *to = shade;
  const std::uint64_t window = at >> 56;
  if (shade.format == NumberFormat::none || (window != 0 && window != kGlobalWindow >> 56)) return;
  const std::uint8_t* const there = machine_.peek(at, bytes);
  std::uint64_t bits = 0;
  if (there != nullptr) std::memcpy(&bits, there, bytes);
  if (there == nullptr || bits != shade.bits ||
      has_half_its_digits(shade.format, real_of(shade.format, bits), shade.value))
    return;
  const std::uint32_t place = shade.origin == kNone ? storing_ : shade.origin;
  ++lines_[place].lost_by[static_cast<std::size_t>(shade.why)];
}

void Shades::store_cells(const WarpState& w, Slot slot, unsigned lane, std::uint64_t at, std::uint32_t bytes) {
  const std::uint64_t key = this->key(w, at, lane);
  for (std::uint32_t k = 0; k < bytes; k += 2)
    if (Shade* const old = cell(key + k, false)) *old = {};
  const Lanes* const lanes = slot == kNone ? nullptr : known(w, slot);
  if (lanes == nullptr) return;
  const Shade &low = lanes->part[0][lane], &high = lanes->part[1][lane];
  const bool whole = bytes == 2 || (bytes == 8 && low.format == NumberFormat::wide) ||
                     (bytes == 4 && low.format == NumberFormat::single);
  put(low, key, at, whole ? bytes : bytes / 2);
  if (!whole) put(high, key + bytes / 2, at + bytes / 2, bytes / 2);
}

void Shades::load_lanes(const WarpState& w, const Instruction& in) {
  const std::uint32_t* const extra = &program_.extra[in.more];
  for (unsigned k = 0; k < in.count; ++k) {
    if (in.space == Space::param || in.bytes < 2) {
      drop(w, extra[k], w.mask);
      continue;
    }
    for (Mask rest = w.mask; rest != 0; rest &= rest - 1) {
      const auto lane = static_cast<unsigned>(std::countr_zero(rest));
      load_cells(w, extra[k], lane, key(w, at_[lane], lane) + k * in.bytes, in.bytes);
    }
  }
}

void Shades::store_lanes(const WarpState& w, const Instruction& in) {
  const std::uint32_t* const extra = &program_.extra[in.more];
  storing_ = in.place;
  for (unsigned k = 0; in.bytes >= 2 && k < in.count; ++k)
    for (Mask rest = w.mask; rest != 0; rest &= rest - 1) {
      const auto lane = static_cast<unsigned>(std::countr_zero(rest));
      store_cells(w, extra[k], lane, at_[lane] + k * in.bytes, in.bytes);
    }
}

/// ldmatrix: see decode_memory.cpp for what lies where.
void Shades::load_matrix(const WarpState& w, const Instruction& in) {
  const std::uint32_t* const extra = &program_.extra[in.more];
  const bool transposed = in.target != 0;
  for (unsigned k = 0; k < in.count; ++k) {
    Lanes& lanes = made(w, extra[k]);
    for (unsigned lane = 0; lane < kLanes; ++lane)
      for (unsigned j = 0; j < 2; ++j) {
        const unsigned row = transposed ? 2 * (lane % 4) + j : lane / 4,
                       column = transposed ? lane / 4 : 2 * (lane % 4) + j;
        const Shade* const there = cell(at_[8 * k + row] + 2 * column, false);
        lanes.part[j][lane] = there == nullptr ? Shade{} : *there;
      }
  }
}

/// red.add and atom.add of f32: the shade of the sum is the sum of the shades.
void Shades::add_atomically(const WarpState& w, const Instruction& in) {
  const NumberFormat format = in.number_of_it.result;
  drop(w, in.to[0], w.mask);
  if (in.bytes != 4 || in.number_of_it.pair) return;
  storing_ = in.place;
  for (Mask rest = w.mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(rest));
    Shade& sum = *cell(key(w, at_[lane], lane), true);
    sum.value += from_[1][0][lane].shade.value;
    sum.format = format;
    if (const std::uint8_t* const there = machine_.peek(at_[lane], 4)) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, there, 4);
      sum.bits = bits;
    }
  }
}

}  // namespace ampcheck::ptx
