// SPDX-License-Identifier: Apache-2.0
// torch.autograd.gradcheck's rules on a kernel of the zoo, in fp32 at the op's first standard shape. torch wants fp64
// for them; a kernel of a fixed storage type cannot give that, so its differences are taken in two ways.
#pragma once

#include <span>
#include <vector>

#include "checks/audit/gates.h"

namespace ampcheck::checks::zoo {

/// "gradcheck in fp32": differences of the kernel's own forward at torch's step. The other two take exact differences,
/// those of the formula: what gradcheck could see at best of a backward, and nothing of a forward.
std::span<const Gate> gradcheck_rules();

/// For each rule whether it rejects the op.
std::vector<char> rejected_by_gradcheck(const OpDef& op);

}  // namespace ampcheck::checks::zoo
