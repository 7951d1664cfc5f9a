// SPDX-License-Identifier: Apache-2.0
// Memory for guarded tensors, where kernels run in another process than their judge.
#pragma once

#include <cstddef>

#include "src/tensor_memory.h"

namespace ampcheck::checks {

class KernelMemory : public TensorMemory {
 public:
  /// What a buffer of `bytes` takes there: at least as much, and of that size again as much.
  virtual std::size_t whole(std::size_t bytes) const = 0;
};

/// From now on the guarded tensors of this process lie in `memory`, which is never destroyed; null: the host's.
void lend_kernel_memory(KernelMemory* memory);
KernelMemory* kernel_memory();

}  // namespace ampcheck::checks
