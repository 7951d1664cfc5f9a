// SPDX-License-Identifier: Apache-2.0
// Cotangents as a case needs them: their values, and what is read off them while they are in the nearest cache.
#pragma once

#include <cstddef>

#include "checks/data/regimes.h"
#include "reference/ball/ball.h"

namespace ampcheck::checks {

/// The extremes of a cotangent, and its bits where there is a place for them (dense, of a float dtype).
struct CotangentBits {
  std::byte* to = nullptr;
  reference::Extremes range;
};
/// One as it was made.
struct Drawn {
  std::vector<double> values;
  reference::Extremes range;
  const std::byte* bits = nullptr;  ///< of the same numbers, dense; borrowed, or none
};
/// cotangent_values() with these. `room`: memory that may be used. `like`: the one of probe_like(), where the caller
/// has kept it.
std::vector<double> cotangent_values(const OpCall& call, const std::string& output, const Shape& shape, Dtype dtype,
                                     int probe, std::vector<double> room, CotangentBits& bits,
                                     const Drawn* like = nullptr);

/// The first probe of the same regime: large cotangents of further ones are its numbers at other places and with other
/// signs. `probe` itself, if it is the first one.
int probe_like(const OpCall& call, int probe);

}  // namespace ampcheck::checks
