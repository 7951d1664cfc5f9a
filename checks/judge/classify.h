// SPDX-License-Identifier: Apache-2.0
// The class of a wrong tensor and its likely cause.
#pragma once

#include <vector>

#include "checks/case/wrong_tensor.h"
#include "checks/explain/notes.h"

namespace ampcheck::checks {

/// Sets code, verdict and cause of the check of a wrong tensor. `unexplained`: the elements outside that no grouping of
/// the formula admits. `together`: the tensors of the launch that are judged.
void classify(const WrongTensor& wrong, const std::vector<std::int64_t>& unexplained,
              const std::vector<Subject>& together, Notes& notes, CheckResult& check);

}  // namespace ampcheck::checks
