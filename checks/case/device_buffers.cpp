// SPDX-License-Identifier: Apache-2.0
#include "checks/case/device_buffers.h"

#include <memory>

#include "kernels/device.h"
#include "src/error.h"

namespace ampcheck::checks {

void run_on(Device device, const kernels::KernelFn& kernel, const kernels::KernelCall& call,
            const std::vector<GuardedTensor*>& buffers) {
  if (device == Device::cpu) {
    kernel(call);
    return;
  }
  std::string why;
  if (!kernels::cuda_available(&why)) throw EnvironmentError("[device] got cuda, but " + why + "; want --device cpu");
  // Whole buffers travel, so that guards and stride gaps are seen on the device too.
  std::vector<std::shared_ptr<void>> memory;
  for (const GuardedTensor* buffer : buffers) {
    memory.push_back(kernels::allocate_on_device(buffer->bytes().size()));
    kernels::copy_to_device(memory.back().get(), buffer->bytes().data(), buffer->bytes().size());
  }
  kernels::KernelCall there = call;
  for (auto& [name, view] : there.tensors)
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      const std::byte *begin = buffers[i]->bytes().data(), *at = static_cast<const std::byte*>(view.data);
      if (at < begin || at >= begin + buffers[i]->bytes().size()) continue;
      view.data = static_cast<std::byte*>(memory[i].get()) + (at - begin);
      break;
    }
  kernel(there);
  kernels::synchronize_device();
  for (std::size_t i = 0; i < buffers.size(); ++i)
    kernels::copy_to_host(buffers[i]->bytes().data(), memory[i].get(), buffers[i]->bytes().size());
}

}  // namespace ampcheck::checks
