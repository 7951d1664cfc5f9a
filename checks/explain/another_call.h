// SPDX-License-Identifier: Apache-2.0
// Whether a wrong tensor is the right one of another call: an attribute not followed, an input left out, other indices,
// inputs that lose their subnormal numbers, a derivative taken at the output.
#pragma once

#include <string>

#include "checks/case/wrong_tensor.h"

namespace ampcheck::checks {

/// Words if the tensor is right for the call with one attribute at another value, an optional input left out, other
/// indices, or other values of an input that kernels take by mistake.
std::string right_for_another_call(const WrongTensor& wrong);

/// Words if the tensor is right for an input whose subnormal numbers are zero (`as_zero`), or the smallest normal one.
std::string without_subnormals(const WrongTensor& wrong, bool& as_zero);

}  // namespace ampcheck::checks
