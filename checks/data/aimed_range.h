// SPDX-License-Identifier: Apache-2.0
// Data regimes that are made for one formula: inputs drawn between two numbers, where no other regime shows some part
// of it (checks/reach/aim.h). The name says all that there is to say: range=aimed:x@1235.5..1239.5, further inputs
// behind further colons.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/op_signature.h"

namespace ampcheck::checks {

/// Where one input is drawn: between these numbers, some of them at the ends, a step within and a step beyond.
struct AimedInput {
  std::string input;
  double low = 0, high = 0;  ///< finite, low <= high
};

/// Whether a data regime is one of these.
bool is_aimed_range(std::string_view range);
/// The name of a regime; other inputs are as in the regime "normal".
std::string aimed_range(const std::vector<AimedInput>& inputs);
/// What such a name says. Throws Error for one that says nothing, or names no floating input of the signature.
std::vector<AimedInput> parse_aimed_range(const OpSignature& signature, const std::string& range);

}  // namespace ampcheck::checks
