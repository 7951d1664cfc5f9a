// SPDX-License-Identifier: Apache-2.0
// What a simulated GPU knows of the instructions of a kernel refutes causes that its numbers do not.
#pragma once

#include <string>

#include "src/dtype.h"

namespace ampcheck::checks {

/// Whether the kernels of this case may keep numbers in that 16-bit format. True where their instructions are not
/// known.
bool may_keep(Dtype format);

/// The 16-bit format that their instructions round to and that none of the tensors of the call has: "bf16". Empty
/// without one.
std::string rounded_on_the_way(Dtype storage);

}  // namespace ampcheck::checks
