// SPDX-License-Identifier: Apache-2.0
// What stands in a trace, field by field: the format's one description, printed by `ampcheck explain trace`.
#pragma once

#include <span>

namespace ampcheck::checks::train {

struct TraceField {
  const char* key;
  const char* unit;     ///< or what it is: "text", "yes or no", "elements"
  const char* meaning;  ///< lines that fit a terminal
  bool always = true;   ///< in every line of its kind
};

/// A kind of line.
struct TraceLine {
  const char* kind;
  const char* when;
  std::span<const TraceField> fields;
};
/// In the order in which a file has them.
std::span<const TraceLine> trace_lines();

}  // namespace ampcheck::checks::train
