// SPDX-License-Identifier: Apache-2.0
#include "tools/choose/device_choice.h"

#include <fmt/format.h>

#include "src/error.h"
#include "tools/report/environment.h"

namespace ampcheck::tools {

std::string require_device(Device device) {
  if (device == Device::cpu)
    return cuda_is_possible() ? "kernels run with the CPU's bit-exact arithmetic (--device cuda: on the GPU)"
                              : "no CUDA device: kernels run with the CPU's bit-exact arithmetic";
  const CudaFacts facts = cuda_facts();
  if (!facts.usable)
    throw EnvironmentError("[--device] got cuda, but " + facts.reason +
                           "; want --device cpu (ampcheck doctor says more)");
  const CudaDevice& first = facts.devices.front();
  return fmt::format("{} (sm_{}{})", first.name, first.major, first.minor);
}

}  // namespace ampcheck::tools
