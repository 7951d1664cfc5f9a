// SPDX-License-Identifier: Apache-2.0
// What a simulated GPU knows of a launch that is no finding by itself, and explains one: with source lines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ampcheck {

struct LaunchFact {
  enum class Kind : std::uint8_t {
    unwritten,  ///< which lines write a tensor of which a part stays as it was
    born,       ///< where NaN or infinity came from finite numbers
    narrowed,   ///< where numbers are rounded to 16 bits
    lost,       ///< where numbers lost most of their digits; of a launch that was followed in fp64
    formats,    ///< which 16-bit formats the kernel has instructions of; no words
  };
  Kind kind = Kind::unwritten;
  std::string tensor = {};  ///< of unwritten
  std::string text = {};
  bool fp16 = false, bf16 = false;  ///< of narrowed and of formats
  friend bool operator==(const LaunchFact&, const LaunchFact&) = default;
};

/// Of this thread, since forget_launch_facts().
void keep_launch_fact(LaunchFact fact);
const std::vector<LaunchFact>& launch_facts();
void forget_launch_facts();

}  // namespace ampcheck
