// SPDX-License-Identifier: Apache-2.0
// Which lane a lane takes its value from in shfl.
#pragma once

#include <cstdint>

namespace ampcheck::ptx {

enum class Shuffle : std::uint8_t { up, down, butterfly, index };

/// Where a lane takes its value, and whether that lies inside its segment.
struct Source {
  int lane = 0;
  bool inside = false;
};
inline Source source_of(Shuffle way, int lane, std::uint32_t b, std::uint32_t c) {
  const int by = static_cast<int>(b & 31u), clamp = static_cast<int>(c & 31u), segment = static_cast<int>(c >> 8 & 31u);
  const int most = (lane & segment) | (clamp & ~segment), least = lane & segment;
  Source out;
  switch (way) {
    case Shuffle::up: out = {lane - by, lane - by >= most}; break;
    case Shuffle::down: out = {lane + by, lane + by <= most}; break;
    case Shuffle::butterfly: out = {lane ^ by, (lane ^ by) <= most}; break;
    case Shuffle::index: out = {least | (by & ~segment), (least | (by & ~segment)) <= most}; break;
  }
  if (!out.inside) out.lane = lane;
  return out;
}

}  // namespace ampcheck::ptx
