// SPDX-License-Identifier: Apache-2.0
// What is wrong with a gradient that is added to a buffer, once the buffer's old content is out of the way.
#pragma once

#include "checks/case/wrong_tensor.h"
#include "src/finding.h"

namespace ampcheck::checks {

/// The check of the tensor where its backward runs once more on a buffer of zeros and nothing else is changed: it has
/// the code and cause that an op has which overwrites. Right (failed == 0) where the old content is what is wrongly
/// used, or where the op does not run so.
CheckResult judged_on_zeros(const WrongTensor& wrong);

}  // namespace ampcheck::checks
