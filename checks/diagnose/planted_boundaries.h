// SPDX-License-Identifier: Apache-2.0
// Parts of nets that look for a maximum by equality, with and without the roundings that it went through.
#pragma once

#include "checks/diagnose/planted_nets.h"

namespace ampcheck::checks::diagnose {

/// What a column's number is to the activations of that column.
enum class Meets : std::uint8_t { gain, shift };

struct LargestParts {
  bool most_stored = true;      ///< the maximum is of numbers as they are stored
  bool compared_stored = true;  ///< and so are those that it is compared with
  bool divided = true, exact_first = true;
  Meets how = Meets::gain;
};

/// Gains or shifts of the columns, what they make of h, and of this the largest of each row, found by equality.
Var largest_found(Tape& t, Var h, const LargestParts& parts);
/// All of it in one kernel. `through_memory`: its maximum was stored on the way, its other numbers were not.
Var largest_in_one_kernel(Tape& t, Var h, Meets how, bool through_memory);

}  // namespace ampcheck::checks::diagnose
