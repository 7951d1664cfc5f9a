// SPDX-License-Identifier: Apache-2.0
// Barriers of a block, and calls.
#include <algorithm>
#include <charconv>

#include "src/ptx/machine.h"

namespace ampcheck::ptx {

namespace {

constexpr std::uint32_t kMostFrames = 64;

std::string listed(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : " and ") + part;
  return out;
}

}  // namespace

void Machine::arrive(WarpState& w, Group& group, const Instruction& in, Mask active) {
  if (active == 0) {
    ++group.at;
    return;
  }
  if (active != group.mask) {  // the guard lets some lanes pass
    Group rest = group;
    rest.mask &= ~active;
    ++rest.at;
    group.mask = active;
    w.groups.push_back(std::move(rest));
  }
  Group& here = w.groups[0];
  const int first = std::countr_zero(active);
  const std::uint32_t id = w.lanes<std::uint32_t>(in.from[0])[first];
  Barrier& barrier = block_.barriers[id];
  if (in.from[1] != kNone) barrier.wanted = w.lanes<std::uint32_t>(in.from[1])[first];
  barrier.arrived.emplace_back(w.index, active);
  barrier.threads += static_cast<std::uint32_t>(std::popcount(active));
  if (std::find(barrier.at.begin(), barrier.at.end(), here.at) == barrier.at.end()) barrier.at.push_back(here.at);
  if (in.from[2] != kNone) {
    const Mask p = in.bytes != 0 ? ~w.predicate(in.from[2]) : w.predicate(in.from[2]);
    barrier.passed += static_cast<std::uint32_t>(std::popcount(active));
    barrier.holds += static_cast<std::uint32_t>(std::popcount(active & p));
  }
  if (in.number == 1) {  // bar.arrive does not wait
    ++here.at;
    return;
  }
  here.state = Group::State::barrier;
}

bool Machine::release_barriers() {
  std::uint32_t live = 0;
  for (const auto& w : block_.warps) live += static_cast<std::uint32_t>(std::popcount(w->live));
  bool any = false;
  for (auto at = block_.barriers.begin(); at != block_.barriers.end();) {
    Barrier& barrier = at->second;
    // With a number of threads, warps count as a whole.
    std::uint32_t arrived = barrier.threads;
    if (barrier.wanted != 0) {
      std::vector<bool> seen(warps_, false);
      arrived = 0;
      for (const auto& [warp, mask] : barrier.arrived)
        if (!seen[warp]) {
          seen[warp] = true;
          arrived += kLanes;
        }
    }
    const std::uint32_t wanted = barrier.wanted != 0 ? std::min(barrier.wanted, warps_ * kLanes) : live;
    if (arrived == 0 || arrived < wanted) {
      ++at;
      continue;
    }
    release(at->first, barrier);
    at = block_.barriers.erase(at);
    any = true;
  }
  return any;
}

void Machine::release(std::uint32_t id, Barrier& barrier) {
  if (barrier.at.size() > 1 && barrier.wanted == 0) {
    std::vector<std::string> places;
    for (const std::uint32_t at : barrier.at)
      if (const std::string place = place_of(at); std::find(places.begin(), places.end(), place) == places.end())
        places.push_back(place);
    const auto& [warp, mask] = barrier.arrived.front();
    note(
        Code::ac604, "divergent barrier", program_.code[barrier.at[0]],
        [&, w = warp, lanes = mask] {
          return "threads of a block stand at different barriers (" + listed(places) +
                 ") and take them for one: the first that came is " +
                 thread_text(*block_.warps[w], std::countr_zero(lanes));
        },
        barrier.at[1]);
  }
  const std::uint32_t now = ++block_.clock;
  std::vector<std::uint32_t> joined(warps_, 0), members;
  for (const auto& [warp, mask] : barrier.arrived) members.push_back(warp);
  std::sort(members.begin(), members.end());
  members.erase(std::unique(members.begin(), members.end()), members.end());
  for (const std::uint32_t member : members)
    for (std::uint32_t other = 0; other < warps_; ++other)
      joined[other] = std::max(joined[other], block_.warps[member]->known[other]);
  for (const std::uint32_t member : members) joined[member] = now;
  for (const std::uint32_t member : members) {
    WarpState& w = *block_.warps[member];
    w.known = joined;
    Mask all = 0;
    for (const auto& [warp, mask] : barrier.arrived) all |= warp == member ? mask : 0;
    if ((w.live & ~all) == 0) w.synced = now;
    for (Group& group : w.groups) {
      if (group.state != Group::State::barrier) continue;
      const Instruction& in = program_.code[group.at];
      const int first = std::countr_zero(group.mask);
      if (w.lanes<std::uint32_t>(in.from[0])[first] != id) continue;
      w.mask = group.mask;
      if (in.number == 2) {
        into<std::uint32_t>(w, in.to[0], [&](int) { return barrier.holds; });
      } else if (in.number > 2) {
        const bool value = in.number == 3 ? barrier.holds == barrier.passed : barrier.holds != 0;
        Mask& p = w.predicate(in.to[0]);
        p = (value ? w.mask : 0) | (p & ~w.mask);
      }
      group.state = Group::State::ready;
      ++group.at;
    }
  }
}

/// Every thread waits for another one.
void Machine::explain_stall() {
  std::vector<std::string> waits;
  std::uint32_t at = 0;
  for (const auto& [id, barrier] : block_.barriers) {
    if (barrier.at.empty()) continue;
    at = barrier.at[0];
    waits.push_back(std::to_string(barrier.threads) + " threads at " + place_of(at) + " for barrier " +
                    std::to_string(id) +
                    (barrier.wanted != 0 ? ", which " + std::to_string(barrier.wanted) + " have to reach" : ""));
  }
  note(Code::ac604, "divergent barrier", program_.code[at], [&] { return "the block cannot go on: " + listed(waits); });
  stopped_ = true;
}

/// The function that the first lane calls; lanes that call another one come here again. False: it is none.
bool Machine::by_address(WarpState& w, const Instruction& in, Mask active, std::uint32_t& target) {
  Group& here = w.groups[0];
  const std::uint64_t* const to = w.lanes<std::uint64_t>(in.from[0]);
  const std::uint64_t wanted = to[std::countr_zero(active)];
  Mask same = 0;
  for (Mask rest = active; rest != 0; rest &= rest - 1)
    if (to[std::countr_zero(rest)] == wanted) same |= Mask{1} << std::countr_zero(rest);
  if (same != here.mask) {
    Group rest = here;
    rest.mask &= ~same;
    here.mask = same;
    w.groups.push_back(std::move(rest));
  }
  target = static_cast<std::uint32_t>(wanted - kCodeWindow);
  if (wanted >= kCodeWindow && wanted - kCodeWindow < program_.functions.size()) return true;
  note(Code::ac603, "out of bounds", in,
       [&] { return "calls an address that is no function (" + thread_text(w, std::countr_zero(active)) + ")"; });
  stopped_ = true;
  return false;
}

void Machine::call(WarpState& w, Group& group, const Instruction& in, Mask active) {
  if (active != group.mask) {
    Group rest = group;
    rest.mask &= ~active;
    ++rest.at;
    w.groups[0].mask = active;
    if (rest.mask != 0) w.groups.push_back(std::move(rest));
    if (active == 0) {
      w.groups.erase(w.groups.begin());
      return;
    }
  }
  std::uint32_t target = in.target;
  if (in.from[0] != kNone && !by_address(w, in, active, target)) return;
  Group& caller = w.groups[0];
  const Routine& callee = program_.functions[target];
  w.mask = caller.mask;
  if (!callee.defined) {
    if (!special_call(w, in, caller.mask, callee.name))
      throw PtxError("[" + program_.text.path + ":" + std::to_string(in.line) + "] got a call of '" + callee.name +
                     "', which the text does not define, want a kernel that is whole");
    ++caller.at;
    return;
  }
  const bool again =
      std::any_of(caller.frames.begin(), caller.frames.end(), [&](const Frame& f) { return f.function == target; });
  if (again || caller.frames.size() >= kMostFrames)
    throw PtxError("[" + program_.text.path + ":" + std::to_string(in.line) + "] got a function that calls itself, '" +
                   callee.name + "', which device ptx does not run");
  const std::uint32_t* extra = &program_.extra[in.more];
  const std::uint32_t arguments = *extra++;
  for (std::uint32_t k = 0; k < arguments && k < callee.param_at.size(); ++k)
    for (Mask rest = caller.mask; rest != 0; rest &= rest - 1) {
      std::uint8_t* const own =
          w.local.data() + static_cast<std::size_t>(std::countr_zero(rest)) * program_.local_bytes;
      std::memmove(own + callee.param_at[k], own + extra[2 * k],
                   std::min<std::uint64_t>(extra[2 * k + 1], callee.params[k].bytes));
    }
  caller.frames.push_back({caller.at, target});
  caller.at = callee.first;
}

void Machine::give_back(WarpState& w, const Frame& frame, Mask lanes) {
  const Instruction& in = program_.code[frame.back];
  const Routine& callee = program_.functions[frame.function];
  const std::uint32_t* extra = &program_.extra[in.more];
  extra += 1 + 2 * *extra;
  const std::uint32_t results = *extra++;
  for (std::uint32_t k = 0; k < results && k < callee.return_at.size(); ++k)
    for (Mask rest = lanes; rest != 0; rest &= rest - 1) {
      std::uint8_t* const own =
          w.local.data() + static_cast<std::size_t>(std::countr_zero(rest)) * program_.local_bytes;
      std::memmove(own + extra[2 * k], own + callee.return_at[k],
                   std::min<std::uint64_t>(extra[2 * k + 1], callee.returns[k].bytes));
    }
}

}  // namespace ampcheck::ptx
