// SPDX-License-Identifier: Apache-2.0
// Calls a kernel on host buffers: directly on the CPU, through device copies of the whole guarded buffers on CUDA,
// where they lie on the simulated GPU.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "checks/case/launch.h"

namespace ampcheck::checks {

/// `buffers` own the memory that `call`'s views point into; after the call they hold what the kernel left there.
/// `unwritten`: tensors that hold nothing before it.
void run_on(Device device, const kernels::KernelFn& kernel, const kernels::KernelCall& call,
            const std::vector<GuardedTensor*>& buffers, const std::set<std::string>& unwritten);

}  // namespace ampcheck::checks
