// SPDX-License-Identifier: Apache-2.0
// Equal algebra that cancels or overflows where the formula does not: one-pass variance, exp(v) - 1, 1 - erf(v).
#pragma once

#include <string>

#include "checks/case/wrong_tensor.h"

namespace ampcheck::checks {

/// Words if replays in fp32 of an equal but unstable algebra are wrong by as much, and at the same elements.
std::string unstable_algebra(const WrongTensor& wrong);

}  // namespace ampcheck::checks
