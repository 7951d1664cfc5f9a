// SPDX-License-Identifier: Apache-2.0
// Where numbers of a launch come from: the lines at which NaN and infinity are born, at which numbers are rounded to 16
// bits, which write a tensor, and over which an endless loop runs.
#include <algorithm>

#include "src/ptx/machine.h"
#include "src/ptx/shades.h"

namespace ampcheck::ptx {

namespace {

constexpr std::size_t kShown = 6;

Mask not_finite(const Warp& w, const std::uint32_t* a) {
  std::uint32_t largest = 0;
  for (int i = 0; i < kLanes; ++i) largest = std::max(largest, a[i] & 0x7f800000u);
  if (largest != 0x7f800000u) return 0;
  return where(w, 0, [=](int i) { return (a[i] & 0x7f800000u) == 0x7f800000u; });
}

Mask not_finite_half(const Warp& w, Slot slot, Watch watch) {
  const std::uint32_t* const a = w.lanes<std::uint32_t>(slot);
  const std::uint32_t ones = watch == Watch::half ? 0x7c00u : 0x7f80u;
  return where(w, 0, [=](int i) { return (a[i] & ones) == ones; });
}

}  // namespace

Machine::Origin& Machine::origin(std::uint32_t at) {
  if (origin_at_.empty()) origin_at_.assign(program_.code.size(), 0);
  std::uint32_t& known = origin_at_[at];
  if (known == 0) {
    origins_.push_back({.at = at});
    known = static_cast<std::uint32_t>(origins_.size());
  }
  return origins_[known - 1];
}

/// An instruction whose result is looked at, or that is followed in fp64.
void Machine::carry_out(WarpState& w, const Instruction& in) {
  if (shades_ != nullptr) shades_->before(w, in);
  if (in.watch == Watch::none)
    in.run(w, in);
  else
    run_watched(w, in);
  if (shades_ != nullptr) shades_->after(w, in);
}

void Machine::run_watched(WarpState& w, const Instruction& in) {
  const bool over = in.from[0] == in.to[0] || in.from[1] == in.to[0] || in.from[2] == in.to[0];
  std::uint32_t old[kLanes];  // of an operand whose place the result takes
  if (over) std::memcpy(old, w.lanes<std::uint32_t>(in.to[0]), sizeof old);
  in.run(w, in);
  std::uint32_t* const value = w.lanes<std::uint32_t>(in.to[0]);
  const bool narrow = in.watch != Watch::single;
  const Mask after = narrow ? not_finite_half(w, in.to[0], in.watch) : not_finite(w, value);
  if (after == 0 && !narrow) return;
  if (!narrow)  // as on a GPU: the lanes of a butterfly agree, whose NaN it ever is
    for (Mask rest = after & w.mask; rest != 0; rest &= rest - 1)
      if (std::uint32_t& bits = value[std::countr_zero(rest)]; (bits & 0x7fffffu) != 0) bits = 0x7fffffffu;
  Mask before = over ? not_finite(w, old) : 0;
  for (const Slot slot : in.from)
    if (slot != kNone && slot != in.to[0]) before |= not_finite(w, w.lanes<std::uint32_t>(slot));
  const Mask born = after & ~before;
  if (born == 0 && !narrow) return;
  Origin& origin = this->origin(w.current);
  origin.lanes += std::popcount(w.mask);
  const std::uint32_t fraction = in.watch == Watch::single ? 0x7fffffu : in.watch == Watch::half ? 0x3ffu : 0x7fu;
  for (Mask rest = born; rest != 0; rest &= rest - 1)
    ++((value[std::countr_zero(rest)] & fraction) != 0 ? origin.nans : origin.infinities);
}

void Machine::facts_of_results() {
  std::string nans, infinities, narrow[2];
  std::size_t shown[4] = {};
  const auto add = [&](std::string& to, std::size_t which, const std::string& text) {
    if (to.find(text) != std::string::npos || ++shown[which] > kShown) return;
    to += (to.empty() ? "" : ", ") + text;
  };
  std::sort(origins_.begin(), origins_.end(), [](const Origin& a, const Origin& b) { return a.at < b.at; });
  for (const Origin& origin : origins_) {
    const Instruction& in = program_.code[origin.at];
    const std::string place = place_of(origin.at);
    if (origin.nans > 0) add(nans, 0, place);
    if (origin.infinities > 0) add(infinities, 1, place);
    if (in.watch == Watch::half) add(narrow[0], 2, place);
    if (in.watch == Watch::bfloat) add(narrow[1], 3, place);
  }
  using Kind = LaunchFact::Kind;
  if (!nans.empty()) facts_.push_back({Kind::born, "", "NaN is born of finite numbers at " + nans});
  if (!infinities.empty()) facts_.push_back({Kind::born, "", "infinity is born of finite numbers at " + infinities});
  if (!narrow[0].empty())
    facts_.push_back({.kind = Kind::narrowed, .text = "numbers are rounded to fp16 at " + narrow[0], .fp16 = true});
  if (!narrow[1].empty())
    facts_.push_back({.kind = Kind::narrowed, .text = "numbers are rounded to bf16 at " + narrow[1], .bf16 = true});
  LaunchFact formats{.kind = Kind::formats};
  for (const Routine& routine : program_.functions)
    if (&routine == &kernel_ || !routine.entry) {  // and whatever it may call
      formats.fp16 |= routine.fp16;
      formats.bf16 |= routine.bf16;
    }
  facts_.push_back(formats);
}

/// The lines that took half of the digits of numbers in global memory.
void Machine::fact_lost(const std::vector<LineErrors>& lines) {
  std::string text;
  std::size_t shown = 0;
  for (const LineErrors& line : lines)
    if (line.lost() > 0 && ++shown <= kShown)
      text += (text.empty() ? "" : ", ") + line.place + " (" + line.lost_words() + ")";
  if (!text.empty())
    facts_.push_back({LaunchFact::Kind::lost, "", "numbers lose half of their digits or more at " + text});
}

/// Where stores to a tensor stand that leave a part of it. No finding by itself: the tensor may have gaps.
void Machine::fact_unwritten() {
  for (const Memory& memory : memories_) {
    const Shadow& shadow = memory.shadow;
    if (memory.initialised || shadow.cells.empty()) continue;
    // The last of the wider grains that became these may reach behind the end.
    const auto grains =
        std::min<std::uint64_t>((memory.bytes + shadow.grain - 1) / shadow.grain, shadow.written.size());
    const auto end = shadow.written.begin() + static_cast<std::ptrdiff_t>(grains);
    const auto left = std::count(shadow.written.begin(), end, std::uint8_t{0});
    if (left == 0) continue;
    const auto first = std::find(shadow.written.begin(), end, std::uint8_t{0}) - shadow.written.begin();
    std::vector<std::uint32_t> stores;
    for (const Cell& cell : shadow.cells)
      if (cell.write.set && std::find(stores.begin(), stores.end(), cell.write.at) == stores.end())
        stores.push_back(cell.write.at);
    std::sort(stores.begin(), stores.end());
    std::string places, last;
    for (const std::uint32_t at : stores)
      if (const std::string place = place_of(at); place != last) {
        places += (places.empty() ? "" : ", ") + place;
        last = place;
      }
    facts_.push_back({LaunchFact::Kind::unwritten, memory.name,
                      "'" + memory.name + "' is written by " + (places.empty() ? "no line" : places) +
                          ", which leaves " + std::to_string(static_cast<std::uint64_t>(left) * shadow.grain) +
                          " of its " + std::to_string(memory.bytes) + " bytes, the first at byte " +
                          std::to_string(static_cast<std::uint64_t>(first) * shadow.grain)});
  }
}

/// The shortest loop around an instruction: from the target of a branch back to the branch.
std::string Machine::loop_text(std::uint32_t at) const {
  std::uint32_t from = at, to = at, least = ~0u;
  for (const Routine& routine : program_.functions) {
    if (at < routine.first || at >= routine.last) continue;
    for (std::uint32_t i = at; i < routine.last; ++i) {
      const Instruction& in = program_.code[i];
      if (in.flow != Flow::branch || in.target > at || i - in.target >= least) continue;
      least = i - in.target;
      from = in.target;
      to = i;
    }
  }
  if (least == ~0u) return "at " + place_of(at) + ", in no loop";
  std::vector<std::string> places;
  for (std::uint32_t i = from; i <= to; ++i)
    if (const std::string place = place_of(i); std::find(places.begin(), places.end(), place) == places.end())
      places.push_back(place);
  std::string out = "in a loop over ";
  for (std::size_t i = 0; i < places.size() && i < kShown; ++i) out += (i == 0 ? "" : ", ") + places[i];
  return out + (places.size() > kShown ? ", ..." : "");
}

}  // namespace ampcheck::ptx
