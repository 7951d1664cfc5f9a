// SPDX-License-Identifier: Apache-2.0
#include "checks/device_buffers.h"

#include "src/error.h"

namespace ampcheck::checks {

void run_on(Device device, const kernels::KernelFn& kernel, const kernels::KernelCall& call, const std::vector<GuardedTensor*>& buffers) {
  if (device == Device::cpu) {
    kernel(call);
    return;
  }
  (void)buffers;
  throw EnvironmentError("[device] cuda is not there");
}

}  // namespace ampcheck::checks
