// SPDX-License-Identifier: Apache-2.0
// How much of its inputs' accuracy an op loses: where an output is small against the terms that it is made of.
#pragma once

#include <cstdint>

#include "checks/models/evaluation.h"

namespace ampcheck::checks::models {

/// In bits: log2(sum |dy/dx x| / |y|), the op's relative condition number at its inputs, for a sum the size of its
/// terms against that of the sum. 0: nothing is lost; below that (y = 1 + x) counts as 0.
struct Cancellation {
  double mean = 0, most = 0;  ///< of the elements looked at; infinite where all cancels, which `mean` leaves out
  std::int64_t elements = 0;  ///< 0: no element said anything (not finite, or no input has a gradient)
};

/// Of one output element in each row, of which the inputs are those of that row; of one element in all where the op has
/// no independent rows. `evaluation` has its inputs; its cotangent is another afterwards.
Cancellation cancellation(const OpDef& op, const RecordedCall& call, Evaluation& evaluation);

}  // namespace ampcheck::checks::models
