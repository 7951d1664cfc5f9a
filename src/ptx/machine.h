// SPDX-License-Identifier: Apache-2.0
// The state of one launch: memory with a shadow of who touched it, the block that runs, and what was found.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "src/ptx/lanes.h"
#include "src/ptx/run.h"

namespace ampcheck::ptx {

enum class Access : std::uint8_t { read, write, strong_read, strong_write, atomic };

/// Who touched a grain of memory.
struct Trace {
  std::uint32_t block = 0, clock = 0;  ///< clock: of synchronisation in its block
  std::uint32_t at = 0;                ///< index of the instruction
  std::uint16_t thread = 0;            ///< in its block
  bool set = false, strong = false;
};
struct Cell {
  Trace write, read[2];
};

/// A piece of memory with its shadow. The grain is 4 bytes until something smaller is touched.
struct Shadow {
  std::vector<Cell> cells = {};
  std::vector<std::uint8_t> written = {};  ///< of global memory, by grain
  std::uint32_t grain = 4;
  std::uint64_t bytes = 0;
};

struct Memory {
  std::string name;
  std::uint64_t address = 0, bytes = 0;
  std::uint8_t* host = nullptr;
  bool constant = false, initialised = true;
  Shadow shadow = {};
};

struct Frame {
  std::uint32_t back = 0, function = 0;
  friend bool operator==(const Frame&, const Frame&) = default;
};

/// Lanes of a warp that stand at one instruction.
struct Group {
  enum class State : std::uint8_t { ready, parked, barrier };
  Mask mask = 0;
  std::uint32_t at = 0;
  State state = State::ready;
  Mask awaited = 0;  ///< of a parked one: lanes that its mask names and that go elsewhere
  std::vector<Frame> frames = {};
};

struct WarpState : Warp {
  std::vector<std::uint8_t> registers, local;
  std::vector<Group> groups;
  std::uint32_t synced = 0;               ///< clock of the last synchronisation of all its live lanes
  std::vector<std::uint32_t> known;       ///< by warp of the block: what came before this clock is ordered
  std::vector<std::uint32_t> lane_pairs;  ///< 32 * 32 clocks of synchronisations of some lanes, or empty
  std::uint32_t current = 0;              ///< instruction at hand
};

struct Barrier {
  std::vector<std::pair<std::uint32_t, Mask>> arrived;  ///< warp and lanes
  std::vector<std::uint32_t> at;                        ///< instructions from which they came
  std::uint32_t threads = 0, wanted = 0;                ///< wanted 0: all that live
  std::uint32_t passed = 0, holds = 0;                  ///< of bar.red: threads with a true predicate
};

struct Block {
  std::uint32_t index = 0;
  std::uint32_t ctaid[3] = {};
  std::uint32_t clock = 1;
  std::vector<std::uint8_t> shared;
  std::vector<std::unique_ptr<WarpState>> warps;
  std::map<std::uint32_t, Barrier> barriers;
  bool fenced = false;                         ///< it ran a fence: its next atomic tells others
  std::map<std::uint64_t, std::size_t> heard;  ///< atomics of this block: how many blocks had told there before
};

class Shades;

class Machine {
 public:
  Machine(const Program& program, const Routine& kernel, const Launch& launch);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  Outcome all();

  // ---- for instructions ----
  /// Where an access of a lane goes, or null if it may not: that is noted. `fresh`: the bytes that a write puts there.
  std::uint8_t* locate(Warp& w, const Instruction& in, int lane, std::uint64_t address, std::uint32_t bytes,
                       Access access, const void* fresh = nullptr);
  /// Where a plain access of a whole warp goes whose lanes follow each other, `bytes` each, or null if each lane has to
  /// be looked at by itself.
  std::uint8_t* locate_row(Warp& w, std::uint64_t first, std::uint32_t bytes, Access access);
  /// A note, once for each code, kind and source line; further ones are counted, and their text is never made.
  /// `other`: the second instruction of two, `kind`: tells apart what else is alike.
  template <class Text>
  void note(Code code, const char* what, const Instruction& in, Text text, std::uint32_t other = 0,
            const char* kind = "") {
    const auto key = std::tuple(code, what, in.place, other == 0 ? kNone : program_.code[other].place, kind);
    const auto known = found_.find(key);
    if (known != found_.end())
      ++known->second.count;
    else if (found_.size() < kMostFound)
      found_[key] = {{code, what, program_.text.place_text(static_cast<int>(in.place)) + ": " + text()}, 1};
  }
  /// Where a read of some lanes goes that needs no shadow: what is added to an address gives its place on the host.
  /// False: lane by lane.
  bool plain_read(std::uint64_t low, std::uint64_t bytes, std::uint64_t& to_host) {
    if (low >> 56 == kParamWindow >> 56) {
      to_host = reinterpret_cast<std::uintptr_t>(launch_.params.data()) - kParamWindow;
      return low - kParamWindow + bytes <= kernel_.param_bytes;
    }
    if (low >> 56 != 0) return false;
    const Memory* const memory = global_at(low, bytes);
    if (memory == nullptr || (watch_global_ && !memory->shadow.cells.empty())) return false;
    to_host = reinterpret_cast<std::uintptr_t>(memory->host) - memory->address;
    return true;
  }
  /// What lies at an address, or null: nobody is told.
  const std::uint8_t* peek(std::uint64_t address, std::uint32_t bytes);
  std::string place_of(std::uint32_t instruction) const;
  std::string thread_text(const Warp& w, int lane) const;
  void print(const std::string& text);
  std::uint64_t steps() const { return steps_; }
  const Program& program() const { return program_; }
  void warp_synced(Warp& w, Mask lanes);
  void fence() { block_.fenced = true; }
  const std::uint8_t* parameters(std::uint64_t at, std::uint64_t bytes) const;

 private:
  void set_up_memory(const Launch& launch);
  void start_block(std::uint32_t index);
  void start_warp(WarpState& w);
  void fill_specials(WarpState& w);
  bool run_block();
  /// False: it stands at a barrier or waits; true: it ended.
  void run_warp(WarpState& w);
  bool pick(WarpState& w);
  void run_group(WarpState& w, std::uint32_t limit, std::uint32_t& budget);
  bool control(WarpState& w, Group& group, const Instruction& in, Mask active);
  bool indexed_branch(WarpState& w, Group& group, const Instruction& in, Mask active);
  bool branch(WarpState& w, Group& group, std::uint32_t target, Mask taken);
  bool warp_instruction(WarpState& w, Group& group, const Instruction& in, Mask active);
  void arrive(WarpState& w, Group& group, const Instruction& in, Mask active);
  bool release_barriers();
  void release(std::uint32_t id, Barrier& barrier);
  bool force_parked(WarpState& w);
  bool check_cancel();
  void explain_stall();
  void leave(WarpState& w, Group& group, Mask lanes);
  void call(WarpState& w, Group& group, const Instruction& in, Mask active);
  bool by_address(WarpState& w, const Instruction& in, Mask active, std::uint32_t& target);
  void give_back(WarpState& w, const Frame& frame, Mask lanes);
  bool special_call(WarpState& w, const Instruction& in, Mask active, const std::string& name);

  // ---- memory ----
  void tell(std::uint64_t address);
  bool heard_of(std::uint32_t block) const;
  Memory* global_at(std::uint64_t address, std::uint64_t bytes);
  void outside(Warp& w, const Instruction& in, int lane, std::uint64_t address, std::uint32_t bytes, Access access);
  std::string outside_text(const Warp& w, int lane, std::uint64_t address, std::uint32_t bytes, Access access) const;
  void touch(WarpState& w, const Instruction& in, int lane, Memory& memory, std::uint64_t at, std::uint32_t bytes,
             Access access, const void* fresh, bool shared);
  bool touch_row(const WarpState& w, Shadow& shadow, std::uint64_t at, std::uint32_t bytes, Access access, bool shared);
  std::uint32_t ordered_before(const WarpState& w) const;
  void touch_cell(WarpState& w, const Instruction& in, int lane, const Memory& memory, std::uint64_t grain,
                  Access access, bool same_value, bool shared);
  bool ordered(const WarpState& w, int lane, const Trace& before) const;
  void race(WarpState& w, const Instruction& in, int lane, const Memory& memory, std::uint64_t byte,
            const Trace& before, bool before_writes, bool writes, bool shared);
  void fact_unwritten();
  void facts_of_results();
  void fact_lost(const std::vector<LineErrors>& lines);
  void carry_out(WarpState& w, const Instruction& in);
  void run_watched(WarpState& w, const Instruction& in);
  std::string loop_text(std::uint32_t at) const;
  std::string shared_text(std::uint64_t offset) const;

  struct Found {
    LaunchNote note;
    std::int64_t count = 0;
  };

  const Program& program_;
  const Routine& kernel_;
  const Launch& launch_;
  std::uint32_t threads_ = 0, warps_ = 0, shared_bytes_ = 0;
  std::vector<std::uint8_t> globals_;
  std::vector<Memory> memories_;
  Memory* last_ = nullptr;
  Memory shared_;
  Block block_;
  /// By address of an atomic: blocks that told there, each with its place in the list.
  std::map<std::uint64_t, std::map<std::uint32_t, std::size_t>> told_;
  bool stopped_ = false, cancelled_ = false;
  std::uint64_t steps_ = 0, shadow_bytes_ = 0;
  bool watch_global_ = true;
  static constexpr std::size_t kMostFound = 64;
  std::map<std::tuple<Code, std::string_view, std::uint32_t, std::uint32_t, std::string_view>, Found> found_;
  std::string printed_;
  struct Origin {
    std::uint32_t at = 0;  ///< instruction
    std::int64_t nans = 0, infinities = 0, lanes = 0;
  };
  Origin& origin(std::uint32_t at);
  std::vector<Origin> origins_;
  std::vector<std::uint32_t> origin_at_;  ///< by instruction, one more than its place in origins_; 0: none
  std::vector<LaunchFact> facts_;
  std::unique_ptr<Shades> shades_;  ///< null: no float is followed
};

}  // namespace ampcheck::ptx
