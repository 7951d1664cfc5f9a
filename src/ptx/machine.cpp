// SPDX-License-Identifier: Apache-2.0
// Blocks and warps of a launch: which of them runs next, barriers, and the flow of control inside a warp.
#include "src/ptx/machine.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "src/ptx/lexer.h"
#include "src/ptx/shades.h"
#include "src/random.h"

namespace ampcheck::ptx {

namespace {

constexpr std::uint32_t kTurn =
    200'000;  ///< instructions after which a group lets others run: one may wait for another
constexpr std::uint32_t kLookAround = 4096;  ///< instructions between two looks at whether the run was cancelled
constexpr std::uint32_t kEnd = 0xffffffffu;

/// 0, 1, ... n-1, or in another order that the seed draws.
std::vector<std::uint32_t> order_of(std::uint32_t n, std::uint64_t seed, std::uint64_t salt) {
  std::vector<std::uint32_t> out(n);
  std::iota(out.begin(), out.end(), 0u);
  if (seed == 0) return out;
  if (seed == 1) {
    std::reverse(out.begin(), out.end());
    return out;
  }
  const Random random(seed * 1000003 + salt, "schedule");
  for (std::uint32_t i = n; i > 1; --i) std::swap(out[i - 1], out[random.below(i, i)]);
  return out;
}

std::uint8_t* aligned_data(std::vector<std::uint8_t>& bytes) {
  const auto at = reinterpret_cast<std::uintptr_t>(bytes.data());
  return bytes.data() + ((64 - at % 64) & 63);
}

}  // namespace

Machine::Machine(const Program& program, const Routine& kernel, const Launch& launch)
    : program_(program), kernel_(kernel), launch_(launch) {
  const auto bad = [&](const std::string& what) {
    throw PtxError("[" + program.text.path + ": kernel '" + kernel.name + "'] " + what);
  };
  const auto& b = launch.block;
  const std::uint64_t threads = std::uint64_t{b[0]} * b[1] * b[2];
  if (threads < 1 || threads > 1024 || b[2] > 64)
    bad("got a block of " + std::to_string(threads) + " threads, want 1 to 1024");
  const auto& g = launch.grid;
  if (g[0] < 1 || g[1] < 1 || g[2] < 1 || std::uint64_t{g[1]} * g[2] > (1u << 31) ||
      std::uint64_t{g[0]} * g[1] * g[2] > (1u << 31))
    bad("got a grid of " + std::to_string(g[0]) + " x " + std::to_string(g[1]) + " x " + std::to_string(g[2]) +
        " blocks, want 1 to 2^31");
  if (launch.params.size() < kernel.param_bytes)
    bad("got " + std::to_string(launch.params.size()) + " bytes of arguments, want " +
        std::to_string(kernel.param_bytes));
  if (launch.dynamic_shared > (1u << 20))
    bad("got " + std::to_string(launch.dynamic_shared) + " bytes of shared memory, want at most 1 MiB");
  threads_ = static_cast<std::uint32_t>(threads);
  warps_ = (threads_ + kLanes - 1) / kLanes;
  shared_bytes_ = kernel.shared_bytes + launch.dynamic_shared;
  set_up_memory(launch);
  block_.shared.resize(shared_bytes_ + 16);
  for (std::uint32_t i = 0; i < warps_; ++i) {
    auto w = std::make_unique<WarpState>();
    w->registers.resize(kernel.register_end + 128);
    w->local.resize(std::size_t{program.local_bytes} * kLanes + 16);
    w->base[0] = aligned_data(w->registers);
    w->machine = this;
    w->block = &block_;
    w->index = i;
    block_.warps.push_back(std::move(w));
  }
  if (launch.follow) shades_ = std::make_unique<Shades>(program, *this, warps_);
}
Machine::~Machine() = default;

Outcome Machine::all() {
  // Constants are vectors of lanes: aligned once for all warps.
  std::vector<std::uint8_t> constants(program_.constants.size() + 64);
  std::uint8_t* const at = aligned_data(constants);
  std::copy(program_.constants.begin(), program_.constants.end(), at);
  for (const auto& w : block_.warps) w->base[1] = at;
  const std::uint32_t blocks = launch_.grid[0] * launch_.grid[1] * launch_.grid[2];
  for (const std::uint32_t index : order_of(blocks, launch_.schedule, 0)) {
    start_block(index);
    if (!run_block() || cancelled_) break;
  }
  if (!stopped_ && !cancelled_) fact_unwritten();
  Outcome out;
  if (shades_ != nullptr) out.lines = shades_->lines(kernel_.name);
  facts_of_results();
  fact_lost(out.lines);
  out.facts = std::move(facts_);
  for (auto& [key, found] : found_) {
    if (found.count > 1) found.note.text += "; " + std::to_string(found.count) + " times";
    out.notes.push_back(std::move(found.note));
  }
  out.warp_instructions = steps_;
  out.cancelled = cancelled_;
  if (!printed_.empty()) std::fwrite(printed_.data(), 1, printed_.size(), stdout);
  return out;
}

void Machine::start_block(std::uint32_t index) {
  block_.index = index;
  block_.ctaid[0] = index % launch_.grid[0];
  block_.ctaid[1] = index / launch_.grid[0] % launch_.grid[1];
  block_.ctaid[2] = index / launch_.grid[0] / launch_.grid[1];
  block_.clock = 1;
  block_.barriers.clear();
  block_.fenced = false;
  block_.heard.clear();
  std::fill(block_.shared.begin(), block_.shared.end(), std::uint8_t{0xff});
  for (const auto& w : block_.warps) start_warp(*w);
  if (shades_ != nullptr) shades_->start_block();
}

void Machine::start_warp(WarpState& w) {
  std::fill(w.registers.begin(), w.registers.end(), std::uint8_t{0});
  std::fill(w.local.begin(), w.local.end(), std::uint8_t{0xff});
  const std::uint32_t threads = std::min<std::uint32_t>(threads_ - w.index * kLanes, kLanes);
  w.live = threads == kLanes ? kAll : (Mask{1} << threads) - 1;
  w.carry = 0;
  w.synced = 0;
  w.known.assign(warps_, 0);
  w.lane_pairs.clear();
  w.groups.assign(1, {});
  w.groups[0].mask = w.live;
  w.groups[0].at = kernel_.first;
  fill_specials(w);
}

void Machine::fill_specials(WarpState& w) {
  const Specials& s = program_.specials;
  const auto fill = [&](Slot slot, auto of) {
    std::uint32_t* const to = w.lanes<std::uint32_t>(slot);
    for (std::uint32_t i = 0; i < kLanes; ++i) to[i] = of(i);
  };
  const auto& b = launch_.block;
  const auto thread = [&](std::uint32_t lane) { return w.index * kLanes + lane; };
  fill(s.tid[0], [&](std::uint32_t i) { return thread(i) % b[0]; });
  fill(s.tid[1], [&](std::uint32_t i) { return thread(i) / b[0] % b[1]; });
  fill(s.tid[2], [&](std::uint32_t i) { return thread(i) / b[0] / b[1]; });
  for (std::size_t k = 0; k < 3; ++k) {
    fill(s.ntid[k], [&](std::uint32_t) { return b[k]; });
    fill(s.nctaid[k], [&](std::uint32_t) { return launch_.grid[k]; });
    fill(s.ctaid[k], [&](std::uint32_t) { return block_.ctaid[k]; });
  }
  fill(s.lane, [](std::uint32_t i) { return i; });
  fill(s.warp, [&](std::uint32_t) { return w.index; });
  fill(s.warps, [&](std::uint32_t) { return warps_; });
  fill(s.lanes_below, [](std::uint32_t i) { return (Mask{1} << i) - 1; });
  fill(s.equal, [](std::uint32_t i) { return Mask{1} << i; });
  fill(s.lanes_up_to, [](std::uint32_t i) { return (Mask{1} << i) - 1 + (Mask{1} << i); });
  fill(s.lanes_from, [](std::uint32_t i) { return ~((Mask{1} << i) - 1); });
  fill(s.lanes_above, [](std::uint32_t i) { return ~((Mask{1} << i) - 1 + (Mask{1} << i)); });
  fill(s.dynamic_shared, [&](std::uint32_t) { return launch_.dynamic_shared; });
  fill(s.all_shared, [&](std::uint32_t) { return shared_bytes_; });
}

bool Machine::run_block() {
  const std::vector<std::uint32_t> order = order_of(warps_, launch_.schedule, block_.index + 1);
  for (;;) {
    const std::uint64_t before = steps_;
    bool any = false;
    for (const std::uint32_t i : order) {
      WarpState& w = *block_.warps[i];
      if (w.groups.empty()) continue;
      any = true;
      run_warp(w);
      if (stopped_ || cancelled_) return false;
    }
    if (!any) return true;
    if (release_barriers() || steps_ != before) continue;
    bool forced = false;
    for (const std::uint32_t i : order) forced = force_parked(*block_.warps[i]) || forced;
    if (forced) continue;
    explain_stall();
    return false;
  }
}

/// Runs each group that can run, the lowest first, so that lanes meet again where their paths do.
void Machine::run_warp(WarpState& w) {
  std::uint32_t budget = kTurn;
  while (budget > 0 && !stopped_ && !cancelled_ && pick(w)) {
    std::uint32_t limit = kEnd;
    for (std::size_t i = 1; i < w.groups.size(); ++i)
      if (w.groups[i].state != Group::State::barrier && w.groups[i].frames == w.groups[0].frames)
        limit = std::min(limit, w.groups[i].at);
    run_group(w, limit, budget);
  }
  if (budget == 0 && w.groups.size() > 1) {  // the group at hand may wait for another one
    const auto ready = std::find_if(w.groups.begin() + 1, w.groups.end(),
                                    [](const Group& g) { return g.state == Group::State::ready; });
    if (ready != w.groups.end()) {
      std::rotate(w.groups.begin(), ready, w.groups.end());
      std::uint32_t turn = kTurn / 16;
      run_group(w, kEnd, turn);
    }
  }
}

/// Merges groups that stand at one instruction, and puts the one that is to run first. False if none can.
bool Machine::pick(WarpState& w) {
  auto& groups = w.groups;
  for (std::size_t i = 0; i < groups.size(); ++i)
    for (std::size_t k = i + 1; k < groups.size();) {
      const bool same = groups[i].at == groups[k].at && groups[i].state != Group::State::barrier &&
                        groups[k].state != Group::State::barrier && groups[i].frames == groups[k].frames;
      if (!same) {
        ++k;
        continue;
      }
      groups[i].mask |= groups[k].mask;
      groups[i].state = Group::State::ready;
      groups[i].awaited |= groups[k].awaited;
      groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(k));
    }
  std::size_t best = groups.size();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].state != Group::State::ready) continue;
    if (best == groups.size() || groups[i].frames.size() > groups[best].frames.size() ||
        (groups[i].frames.size() == groups[best].frames.size() && groups[i].at < groups[best].at))
      best = i;
  }
  if (best == groups.size()) return false;
  if (best != 0) std::swap(groups[0], groups[best]);
  return true;
}

void Machine::run_group(WarpState& w, std::uint32_t limit, std::uint32_t& budget) {
  const Instruction* const code = program_.code.data();
  std::uint32_t at = w.groups[0].at;
  const Mask mask = w.groups[0].mask;
  std::uint64_t steps = steps_;
  const bool followed = shades_ != nullptr;
  for (;;) {
    const Instruction& in = code[at];
    Mask active = mask;
    if (in.guard != kNone) {
      const Mask guard = w.predicate(in.guard);
      active &= in.guard_negated ? ~guard : guard;
    }
    if ((++steps & (kLookAround - 1)) == 0 && check_cancel()) break;
    w.current = at;
    if (in.flow == Flow::plain) {
      if (active != 0) {
        w.mask = active;
        if (in.watch == Watch::none && !followed)
          in.run(w, in);
        else
          carry_out(w, in);
      }
      ++at;
    } else if (in.flow == Flow::branch && (active == 0 || active == mask)) {
      at = active == 0 ? at + 1 : in.target;
    } else {
      w.groups[0].at = at;
      steps_ = steps;
      const bool goes_on = control(w, w.groups[0], in, active);
      steps = steps_;
      if (!goes_on) return;
      at = w.groups[0].at;
    }
    if (at >= limit || --budget == 0) break;
  }
  steps_ = steps;
  w.groups[0].at = at;
}

/// False: the groups have changed.
bool Machine::control(WarpState& w, Group& group, const Instruction& in, Mask active) {
  switch (in.flow) {
    case Flow::branch: return branch(w, group, in.target, active);
    case Flow::exit:
    case Flow::ret:
    case Flow::trap:
      if (active == 0) {
        ++group.at;
        return true;
      }
      if (in.flow == Flow::trap) {
        note(Code::ac501, "trap", in,
             [&] { return "the kernel stops itself (trap, " + thread_text(w, std::countr_zero(active)) + ")"; });
        stopped_ = true;
        return false;
      }
      if (in.flow == Flow::ret && !group.frames.empty()) {
        const std::uint32_t back = group.frames.back().back + 1;
        if (active != group.mask) {  // some lanes stay
          Group rest = group;
          rest.mask &= ~active;
          ++rest.at;
          group.mask = active;
          w.groups.push_back(std::move(rest));
        }
        give_back(w, w.groups[0].frames.back(), active);
        w.groups[0].frames.pop_back();
        w.groups[0].at = back;
        return false;
      }
      leave(w, group, active);
      return false;
    case Flow::call: call(w, group, in, active); return false;
    case Flow::indexed: return indexed_branch(w, group, in, active);
    case Flow::warp: return warp_instruction(w, group, in, active);
    case Flow::barrier: arrive(w, group, in, active); return false;
    case Flow::plain: break;
  }
  return false;
}

/// brx.idx: lanes of one target go there, the others come here again.
bool Machine::indexed_branch(WarpState& w, Group& group, const Instruction& in, Mask active) {
  if (active == 0) {
    ++group.at;
    return true;
  }
  const std::uint32_t* const table = &program_.extra[in.more];
  const std::uint32_t* const index = w.lanes<std::uint32_t>(in.from[0]);
  const std::uint32_t wanted = std::min(index[std::countr_zero(active)], table[0] - 1);
  Mask same = 0;
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    if (std::min(index[lane], table[0] - 1) == wanted) same |= Mask{1} << lane;
  }
  if (same == group.mask) {
    group.at = table[1 + wanted];
    return false;
  }
  Group rest = group;  // the others come here again
  rest.mask = group.mask & ~same;
  group.mask = same;
  group.at = table[1 + wanted];
  w.groups.push_back(std::move(rest));
  return false;
}

bool Machine::branch(WarpState& w, Group& group, std::uint32_t target, Mask taken) {
  Group other = group;
  other.mask = group.mask & ~taken;
  ++other.at;
  group.mask = taken;
  group.at = target;
  w.groups.push_back(std::move(other));
  return false;
}

void Machine::leave(WarpState& w, Group& group, Mask lanes) {
  w.live &= ~lanes;
  group.mask &= ~lanes;
  ++group.at;
  if (group.mask == 0) w.groups.erase(w.groups.begin());
}

/// Waits until every live lane of the masks is here.
bool Machine::warp_instruction(WarpState& w, Group& group, const Instruction& in, Mask active) {
  if (active == 0) {
    ++group.at;
    return true;
  }
  const Mask* const masks = w.lanes<Mask>(in.from[3]);
  Mask needed = 0, strangers = 0;
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    needed |= masks[lane];
    strangers |= (masks[lane] >> lane & 1) == 0 ? Mask{1} << lane : 0;
  }
  if (strangers != 0)
    note(Code::ac604, "warp mask", in, [&] {
      const int lane = std::countr_zero(strangers);
      return "lane " + std::to_string(lane) + " runs it and is not in its own mask (" + thread_text(w, lane) + ")";
    });
  if ((needed & w.live & ~active) != 0) {
    group.state = Group::State::parked;
    group.awaited = needed & w.live & ~active;
    for (const Group& other : w.groups) {  // one that is about to end may be named: it counts as gone
      const Instruction& next = program_.code[other.at];
      const bool ends =
          next.guard == kNone && (next.flow == Flow::exit || (next.flow == Flow::ret && other.frames.empty()));
      if (ends) group.awaited &= ~other.mask;
    }
    return false;
  }
  w.mask = active;
  carry_out(w, in);
  ++group.at;
  return true;
}

/// Lanes that are waited for will not come: says so, and goes on without them.
bool Machine::force_parked(WarpState& w) {
  const auto parked =
      std::find_if(w.groups.begin(), w.groups.end(), [](const Group& g) { return g.state == Group::State::parked; });
  if (parked == w.groups.end()) return false;
  std::swap(*parked, w.groups.front());
  Group& group = w.groups.front();
  const Instruction& in = program_.code[group.at];
  if (const Mask missing = group.awaited & ~group.mask; missing != 0) {
    std::string where = (missing & w.live) == 0 ? ": they end without it" : "";
    for (const Group& other : w.groups)
      if ((other.mask & missing) != 0 && where.empty()) where = ": they wait at " + place_of(other.at);
    const int first = std::countr_zero(missing), more = std::popcount(missing) - 1;
    note(Code::ac604, "warp mask", in, [&] {
      return "its mask names lane " + std::to_string(first) +
             (more > 0 ? " and " + std::to_string(more) + " more, which never come here" : ", which never comes here") +
             where + " (block " + std::to_string(block_.index) + ")";
    });
  }
  group.awaited = 0;
  Mask active = group.mask;
  if (in.guard != kNone) active &= in.guard_negated ? ~w.predicate(in.guard) : w.predicate(in.guard);
  w.current = group.at;
  w.mask = active;
  carry_out(w, in);
  ++group.at;
  group.state = Group::State::ready;
  ++steps_;
  return true;
}

void Machine::warp_synced(Warp& warp, Mask lanes) {
  auto& w = static_cast<WarpState&>(warp);
  const std::uint32_t now = ++block_.clock;
  if ((w.live & ~lanes) == 0) {
    w.synced = now;
    return;
  }
  if (w.lane_pairs.empty()) w.lane_pairs.assign(kLanes * kLanes, 0);
  for (Mask a = lanes; a != 0; a &= a - 1)
    for (Mask b = lanes; b != 0; b &= b - 1)
      w.lane_pairs[static_cast<std::size_t>(std::countr_zero(a)) * kLanes +
                   static_cast<std::size_t>(std::countr_zero(b))] = now;
}

bool Machine::check_cancel() {
  if (!launch_.cancelled || !launch_.cancelled()) return false;
  cancelled_ = true;
  std::string where;
  for (const auto& w : block_.warps)
    if (!w->groups.empty() && where.empty()) where = loop_text(w->current);
  // The launch has no result that could say it: whoever ends it shows what was printed.
  std::fprintf(stderr, "error: kernel '%s' was stopped in block %u after %llu warp instructions; it runs %s\n",
               kernel_.name.c_str(), block_.index, static_cast<unsigned long long>(steps_), where.c_str());
  return true;
}

void Machine::print(const std::string& text) {
  if (printed_.size() < (1u << 20)) printed_ += text;
}

Outcome run(const Program& program, const std::string& kernel, const Launch& launch) {
  const Routine* const code = program.entry(kernel);
  if (code == nullptr) {
    std::string list;
    for (const Routine& known : program.functions)
      if (known.entry && known.defined) list += (list.empty() ? "" : ", ") + known.name;
    throw PtxError("[" + program.text.path + "] got no kernel '" + kernel + "', want one of " +
                   (list.empty() ? "(it has none)" : list));
  }
  return Machine(program, *code, launch).all();
}

}  // namespace ampcheck::ptx
