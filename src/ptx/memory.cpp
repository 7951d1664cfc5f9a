// SPDX-License-Identifier: Apache-2.0
// Memory of a launch, its shadow, and what is found there.
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>

#include "src/ptx/machine.h"

namespace ampcheck::ptx {

namespace {

constexpr std::uint64_t kMostShadow = std::uint64_t{1} << 30;  ///< bytes; a larger launch is run without it

std::string demangled(const std::string& name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  if (status != 0 || text == nullptr) return name.substr(0, name.find('#'));
  std::string out = text;
  std::free(text);
  // "softmax(float*)::part": what it is a variable of is said by the line.
  const std::size_t at = out.rfind("::");
  return at == std::string::npos ? out : out.substr(at + 2);
}

void make_shadow(Shadow& shadow, std::uint64_t bytes) {
  shadow.grain = 4;
  shadow.bytes = bytes;
  shadow.cells.assign((bytes + 3) / 4, {});
}

/// To a smaller grain: each new one was touched as the old one was.
void split(Shadow& shadow, std::uint32_t grain) {
  const std::uint32_t parts = shadow.grain / grain;
  std::vector<Cell> cells;
  cells.reserve(shadow.cells.size() * parts);
  for (const Cell& cell : shadow.cells) cells.insert(cells.end(), parts, cell);
  std::vector<std::uint8_t> written;
  for (const std::uint8_t flag : shadow.written) written.insert(written.end(), parts, flag);
  shadow.cells = std::move(cells);
  shadow.written = std::move(written);
  shadow.grain = grain;
}

const char* plural(std::int64_t n) { return n == 1 ? "" : "s"; }

bool writes(Access access) {
  return access == Access::write || access == Access::strong_write || access == Access::atomic;
}
bool reads(Access access) {
  return access == Access::read || access == Access::strong_read || access == Access::atomic;
}
bool differs(const void* a, const void* b, std::uint32_t bytes) {
  if (bytes != 4) return std::memcmp(a, b, bytes) != 0;
  std::uint32_t x = 0, y = 0;
  std::memcpy(&x, a, 4);
  std::memcpy(&y, b, 4);
  return x != y;
}
bool strong(Access access) { return access != Access::read && access != Access::write; }

}  // namespace

void Machine::set_up_memory(const Launch& launch) {
  if (launch.globals == nullptr) globals_ = program_.globals;
  std::uint8_t* const globals = launch.globals == nullptr ? globals_.data() : launch.globals->data();
  for (const auto& named : program_.global_names)
    memories_.push_back(
        {demangled(named.name), kGlobalWindow + named.at, named.bytes, globals + named.at, named.constant, true, {}});
  std::uint64_t all = 0;
  for (const Region& region : launch.regions) {
    if (region.bytes == 0) continue;
    memories_.push_back({region.name,
                         region.address,
                         region.bytes,
                         reinterpret_cast<std::uint8_t*>(region.address),
                         false,
                         region.initialised,
                         {}});
    if (!region.initialised) all += region.bytes * (sizeof(Cell) / 4 + 1);
  }
  std::sort(memories_.begin(), memories_.end(), [](const Memory& a, const Memory& b) { return a.address < b.address; });
  watch_global_ = launch.watch && all <= kMostShadow;
  if (watch_global_)
    for (Memory& memory : memories_)
      if (!memory.initialised) {
        make_shadow(memory.shadow, memory.bytes);
        memory.shadow.written.assign(memory.shadow.cells.size(), 0);
      }
  shared_.name = "shared memory";
  shared_.address = kSharedWindow;
  shared_.bytes = shared_bytes_;
  if (launch.watch) make_shadow(shared_.shadow, shared_bytes_);
}

Memory* Machine::global_at(std::uint64_t address, std::uint64_t bytes) {
  const auto inside = [&](const Memory& memory) {
    return address >= memory.address && address - memory.address < memory.bytes &&
           memory.bytes - (address - memory.address) >= bytes;
  };
  if (last_ != nullptr && inside(*last_)) return last_;
  auto above = std::upper_bound(memories_.begin(), memories_.end(), address,
                                [](std::uint64_t a, const Memory& m) { return a < m.address; });
  if (above == memories_.begin()) return nullptr;
  Memory& memory = *--above;
  if (!inside(memory)) return nullptr;
  return last_ = &memory;
}

std::string Machine::shared_text(std::uint64_t offset) const {
  for (const auto& named : program_.shared_names)
    if (offset >= named.at && offset - named.at < named.bytes)
      return "'" + demangled(named.name) + "' in shared memory, byte " + std::to_string(offset - named.at);
  if (offset >= kernel_.shared_bytes)
    return "dynamic shared memory, byte " + std::to_string(offset - kernel_.shared_bytes);
  return "shared memory, byte " + std::to_string(offset);
}

std::string Machine::place_of(std::uint32_t instruction) const {
  return program_.text.place_text(static_cast<int>(program_.code[instruction].place));
}

std::string Machine::thread_text(const Warp& w, int lane) const {
  const auto triple = [](const std::uint32_t v[3], const std::uint32_t extent[3]) {
    std::string out = std::to_string(v[0]);
    if (extent[1] > 1 || extent[2] > 1) out = "(" + out + "," + std::to_string(v[1]) + "," + std::to_string(v[2]) + ")";
    return out;
  };
  const std::uint32_t thread = w.index * kLanes + static_cast<std::uint32_t>(lane);
  const auto& extent = launch_.block;
  const std::uint32_t tid[3] = {thread % extent[0], thread / extent[0] % extent[1], thread / extent[0] / extent[1]};
  return "thread " + triple(tid, extent.data()) + " of block " + triple(block_.ctaid, launch_.grid.data());
}

void Machine::outside(Warp& w, const Instruction& in, int lane, std::uint64_t address, std::uint32_t bytes,
                      Access access) {
  note(Code::ac603, "out of bounds", in, [&] { return outside_text(w, lane, address, bytes, access); });
}

std::string Machine::outside_text(const Warp& w, int lane, std::uint64_t address, std::uint32_t bytes,
                                  Access access) const {
  const std::string does = writes(access) ? "writes " : "reads ",
                    size = std::to_string(bytes) + " byte" + plural(bytes);
  std::string where;
  if (address >> 56 == kSharedWindow >> 56) {
    const std::uint64_t offset = address - kSharedWindow;
    where = offset >= shared_bytes_
                ? std::to_string(offset - shared_bytes_) + " bytes behind the end of shared memory, which has " +
                      std::to_string(shared_bytes_)
                : "over the end of shared memory, which has " + std::to_string(shared_bytes_) + " bytes";
  } else if (address >> 56 == kParamWindow >> 56) {
    where = "outside the kernel's parameters";
  } else if (address >> 56 == kLocalWindow >> 56) {
    where = "outside the thread's local memory";
  } else {
    const Memory* nearest = nullptr;
    std::uint64_t distance = ~std::uint64_t{0};
    bool before = false;
    for (const Memory& memory : memories_) {
      const bool below = address < memory.address;
      const std::uint64_t gap = below                                      ? memory.address - address
                                : address >= memory.address + memory.bytes ? address - memory.address - memory.bytes
                                                                           : 0;
      if (gap < distance) {
        distance = gap;
        nearest = &memory;
        before = below;
      }
    }
    where = nearest == nullptr || distance > (std::uint64_t{1} << 32) ? "where no tensor is"
            : before ? std::to_string(distance) + " bytes before '" + nearest->name + "'"
                     : (distance == 0 ? "right" : std::to_string(distance) + " bytes") + " behind the end of '" +
                           nearest->name + "', which has " + std::to_string(nearest->bytes);
  }
  return does + size + " " + where + " (" + thread_text(w, lane) + ")";
}

std::uint8_t* Machine::locate(Warp& warp, const Instruction& in, int lane, std::uint64_t address, std::uint32_t bytes,
                              Access access, const void* fresh) {
  auto& w = static_cast<WarpState&>(warp);
  if ((address & (bytes - 1)) != 0) {
    note(Code::ac605, "misaligned", in, [&] {
      return std::string(writes(access) ? "writes" : "reads") + " " + std::to_string(bytes) +
             " bytes at an address that is " + std::to_string(address & (bytes - 1)) + " bytes off a multiple of " +
             std::to_string(bytes) + " (" + thread_text(w, lane) + ")";
    });
    return nullptr;
  }
  const std::uint64_t window = address >> 56;
  if (window == kSharedWindow >> 56) {
    const std::uint64_t at = address - kSharedWindow;
    if (at + bytes > shared_bytes_) {
      outside(w, in, lane, address, bytes, access);
      return nullptr;
    }
    std::uint8_t* const host = block_.shared.data() + at;
    if (launch_.watch)
      touch(w, in, lane, shared_, at, bytes, access, fresh == nullptr || differs(host, fresh, bytes) ? fresh : host,
            true);
    return host;
  }
  if (window == kLocalWindow >> 56) {
    const std::uint64_t at = address - kLocalWindow;
    if (at + bytes > program_.local_bytes) {
      outside(w, in, lane, address, bytes, access);
      return nullptr;
    }
    return w.local.data() + static_cast<std::size_t>(lane) * program_.local_bytes + at;
  }
  if (window == kParamWindow >> 56) {
    const std::uint64_t at = address - kParamWindow;
    if (writes(access) || at + bytes > kernel_.param_bytes) {
      outside(w, in, lane, address, bytes, access);
      return nullptr;
    }
    return const_cast<std::uint8_t*>(launch_.params.data()) + at;
  }
  Memory* const memory = global_at(address, bytes);
  if (memory == nullptr || (memory->constant && writes(access))) {
    outside(w, in, lane, address, bytes, access);
    return nullptr;
  }
  const std::uint64_t at = address - memory->address;
  std::uint8_t* const host = memory->host + at;
  if (!watch_global_) return host;
  if (access == Access::atomic) tell(address);
  if (memory->shadow.cells.empty()) {
    // What the kernel only reads needs no shadow; from its first write on it has one.
    if (!writes(access)) return host;
    make_shadow(memory->shadow, memory->bytes);
    memory->shadow.written.assign(memory->shadow.cells.size(), 1);
  }
  touch(w, in, lane, *memory, at, bytes, access, fresh == nullptr || differs(host, fresh, bytes) ? fresh : host, false);
  return host;
}

const std::uint8_t* Machine::peek(std::uint64_t address, std::uint32_t bytes) {
  if (address >> 56 == kSharedWindow >> 56) {
    const std::uint64_t at = address - kSharedWindow;
    return at + bytes <= shared_bytes_ ? block_.shared.data() + at : nullptr;
  }
  const Memory* const memory = global_at(address, bytes);
  return memory == nullptr ? nullptr : memory->host + (address - memory->address);
}

std::uint8_t* Machine::locate_row(Warp& warp, std::uint64_t first, std::uint32_t bytes, Access access) {
  const auto& w = static_cast<const WarpState&>(warp);
  const std::uint64_t all = std::uint64_t{bytes} * kLanes;
  if ((first & (bytes - 1)) != 0) return nullptr;
  if (first >> 56 == kSharedWindow >> 56) {
    const std::uint64_t at = first - kSharedWindow;
    if (at + all > shared_bytes_) return nullptr;
    return !launch_.watch || touch_row(w, shared_.shadow, at, bytes, access, true) ? block_.shared.data() + at
                                                                                   : nullptr;
  }
  if (first >> 56 != 0) return nullptr;
  Memory* const memory = global_at(first, all);
  if (memory == nullptr || (memory->constant && writes(access))) return nullptr;
  const std::uint64_t at = first - memory->address;
  if (!watch_global_) return memory->host + at;
  if (memory->shadow.cells.empty()) return writes(access) ? nullptr : memory->host + at;
  return touch_row(w, memory->shadow, at, bytes, access, false) ? memory->host + at : nullptr;
}

/// Whatever a thread of the block did before this clock is ordered for all lanes of the warp.
std::uint32_t Machine::ordered_before(const WarpState& w) const {
  std::uint32_t out = w.synced;
  for (std::uint32_t other = 0; other < warps_; ++other)
    if (other != w.index) out = std::min(out, w.known[other]);
  return out;
}

/// Notes an access of a whole warp in a row if it is plainly right. False, and nothing noted, if not.
bool Machine::touch_row(const WarpState& w, Shadow& shadow, std::uint64_t at, std::uint32_t bytes, Access access,
                        bool shared) {
  if (bytes < shadow.grain) return false;
  const std::uint32_t per_lane = bytes / shadow.grain, n = per_lane * kLanes, block = block_.index,
                      safe = ordered_before(w), thread = w.index * kLanes;
  Cell* const cells = &shadow.cells[at / shadow.grain];
  std::uint8_t* const written = shared ? nullptr : &shadow.written[at / shadow.grain];
  const auto old = [&](const Trace& before, std::uint32_t i) {
    return before.block == block && (before.clock < safe || before.thread == thread + i / per_lane);
  };
  if (writes(access)) {
    for (std::uint32_t i = 0; i < n; ++i)
      for (const Trace* before : {&cells[i].write, &cells[i].read[0], &cells[i].read[1]})
        if (before->set && !old(*before, i) && !(shared && before->block != block)) return false;
  } else {
    for (std::uint32_t i = 0; i < n; ++i) {
      const Trace& before = cells[i].write;
      const bool there = shared ? before.set && before.block == block : written[i] != 0;
      if (!there || (before.set && !old(before, i))) return false;
    }
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    const Trace now{block, block_.clock, w.current, static_cast<std::uint16_t>(thread + i / per_lane), true, false};
    if (writes(access)) {
      cells[i].write = now;
      continue;
    }
    Trace& last = cells[i].read[0];
    if (last.set && (last.thread != now.thread || last.block != now.block)) cells[i].read[1] = last;
    last = now;
  }
  if (writes(access) && !shared) std::memset(written, 1, n);
  return true;
}

/// `fresh` is the memory itself where a write changes nothing.
void Machine::touch(WarpState& w, const Instruction& in, int lane, Memory& memory, std::uint64_t at,
                    std::uint32_t bytes, Access access, const void* fresh, bool shared) {
  Shadow& shadow = memory.shadow;
  const std::uint32_t least = bytes >= 4 ? 4 : bytes;
  if (least < shadow.grain) split(shadow, least);
  const std::uint8_t* const host = (shared ? block_.shared.data() : memory.host) + at;
  const bool same_value = fresh == host;
  for (std::uint64_t grain = at / shadow.grain; grain * shadow.grain < at + bytes; ++grain) {
    if (reads(access)) {
      const Cell& cell = shadow.cells[grain];
      const bool written = shared ? cell.write.set && cell.write.block == block_.index : shadow.written[grain] != 0;
      if (!written)
        note(Code::ac602, "uninitialised read", in, [&] {
          return "reads " +
                 (shared ? shared_text(grain * shadow.grain)
                         : "byte " + std::to_string(grain * shadow.grain) + " of '" + memory.name + "'") +
                 ", which nothing wrote (" + thread_text(w, lane) + ")";
        });
    }
    touch_cell(w, in, lane, memory, grain, access, same_value, shared);
    if (!shared && writes(access)) shadow.written[grain] = 1;
  }
}

/// A fence and then an atomic tell other blocks what this one wrote; who does an atomic there later has heard it. So a
/// block that counts itself as the last one may read what the others left.
void Machine::tell(std::uint64_t address) {
  auto& told = told_[address];
  block_.heard[address] = told.size();
  if (block_.fenced) told.emplace(block_.index, told.size());
}

bool Machine::heard_of(std::uint32_t block) const {
  for (const auto& [address, count] : block_.heard) {
    const auto& told = told_.at(address);
    const auto found = told.find(block);
    if (found != told.end() && found->second < count) return true;
  }
  return false;
}

bool Machine::ordered(const WarpState& w, int lane, const Trace& before) const {
  if (before.block != block_.index) return heard_of(before.block);
  const std::uint32_t thread = w.index * kLanes + static_cast<std::uint32_t>(lane);
  if (before.thread == thread) return true;
  const std::uint32_t other = before.thread / kLanes;
  if (other != w.index) return before.clock < w.known[other];
  if (before.clock < w.synced) return true;
  return !w.lane_pairs.empty() &&
         before.clock < w.lane_pairs[static_cast<std::size_t>(lane) * kLanes + before.thread % kLanes];
}

void Machine::touch_cell(WarpState& w, const Instruction& in, int lane, const Memory& memory, std::uint64_t grain,
                         Access access, bool same_value, bool shared) {
  Cell& cell = const_cast<Memory&>(memory).shadow.cells[grain];
  const auto conflicts = [&](const Trace& before) {
    if (!before.set || (shared && before.block != block_.index)) return false;
    return !(before.strong && strong(access)) && !ordered(w, lane, before);
  };
  const std::uint64_t byte = grain * memory.shadow.grain;
  const Trace now{block_.index, block_.clock,
                  w.current,    static_cast<std::uint16_t>(w.index * kLanes + static_cast<std::uint32_t>(lane)),
                  true,         strong(access)};
  if (writes(access)) {
    if (!same_value && conflicts(cell.write)) race(w, in, lane, memory, byte, cell.write, true, true, shared);
    for (const Trace& read : cell.read)
      if (!same_value && conflicts(read)) race(w, in, lane, memory, byte, read, false, true, shared);
    cell.write = now;
    return;
  }
  if (conflicts(cell.write)) race(w, in, lane, memory, byte, cell.write, true, false, shared);
  Trace& last = cell.read[0];
  if (last.set && (last.thread != now.thread || last.block != now.block)) cell.read[1] = last;
  last = now;
}

void Machine::race(WarpState& w, const Instruction& in, int lane, const Memory& memory, std::uint64_t byte,
                   const Trace& before, bool before_writes, bool now_writes, bool shared) {
  const bool one_block = before.block == block_.index;
  const bool one_warp = one_block && before.thread / kLanes == w.index;
  const char* const missing = !one_block ? "nothing orders blocks"
                              : one_warp ? "want __syncwarp() between"
                                         : "want __syncthreads() between";
  const auto text = [&] {
    return thread_text(w, lane) + (now_writes ? " writes " : " reads ") +
           (shared ? shared_text(byte) : "'" + memory.name + "', byte " + std::to_string(byte)) + ", which " +
           (one_block ? "thread " + std::to_string(before.thread)
                      : "a thread of block " + std::to_string(before.block)) +
           (before_writes ? " writes" : " reads") + " at " + place_of(before.at) + ": " + missing;
  };
  note(Code::ac601, "race", in, text, before.at, missing);
}

const std::uint8_t* Machine::parameters(std::uint64_t at, std::uint64_t bytes) const {
  if (at + bytes > launch_.params.size())
    throw PtxError("[" + program_.text.path + "] kernel '" + kernel_.name +
                   "' reads parameter bytes behind its list, want arguments that fit");
  return launch_.params.data() + at;
}

}  // namespace ampcheck::ptx
