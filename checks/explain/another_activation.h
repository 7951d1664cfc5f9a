// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checks/case/wrong_tensor.h"

namespace ampcheck::checks {

/// Words if `agrees` to the values of another activation of the inputs, or of its gradient; empty otherwise.
std::string another_activation(const WrongTensor& wrong, const std::function<bool(const std::vector<double>&)>& agrees);

}  // namespace ampcheck::checks
