// SPDX-License-Identifier: Apache-2.0
#include "checks/scaler/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace ampcheck::checks::scaler {

std::string LoopSetup::str() const {
  std::string out = fmt::format("scale {:g}", scale);
  if (growth_interval < 1 << 30) out += fmt::format(", growth interval {}", growth_interval);
  if (clip > 0) out += fmt::format(", clip {:g}", clip);
  if (accumulate > 1) out += fmt::format(", {} micro-batches", accumulate);
  if (ranks > 1) out += fmt::format(", {} ranks", ranks);
  return out;
}

const char* name(LoopOp op) {
  constexpr const char* kNames[] = {"look", "step", "reload"};
  return kNames[static_cast<std::size_t>(op)];
}

const char* name(Ability ability) {
  constexpr const char* kNames[] = {"scaler", "clip", "accumulate", "resume", "ranks"};
  return kNames[static_cast<std::size_t>(ability)];
}

std::string LoopCall::str() const {
  if (op != LoopOp::step) return name(op);
  std::string out = fmt::format("step(batch {}", batch);
  if (poison) {
    out += fmt::format(", {} in the {} gradient", std::isnan(*poison) ? "nan" : fmt::format("{:g}", *poison),
                       last ? "last" : "first");
    if (micro_batch > 0) out += fmt::format(" of micro-batch {}", micro_batch);
    if (rank > 0) out += fmt::format(" on rank {}", rank);
  }
  return out + ")";
}

bool StatePart::operator==(const StatePart& other) const {
  const auto same = [](double a, double b) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) || (std::isnan(a) && std::isnan(b));
  };
  return digest == other.digest && std::ranges::equal(numbers, other.numbers, same);
}

bool StatePart::finite() const {
  return std::ranges::all_of(numbers, [](double x) { return std::isfinite(x); });
}

}  // namespace ampcheck::checks::scaler
