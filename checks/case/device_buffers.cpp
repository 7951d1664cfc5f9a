// SPDX-License-Identifier: Apache-2.0
#include "checks/case/device_buffers.h"

#include <algorithm>
#include <memory>

#include "kernels/device.h"
#include "src/error.h"
#include "src/ptx/gpu.h"

namespace ampcheck::checks {

namespace {

/// The memory of a tensor: from its first to its last byte, whatever lies between.
ptx::Region region_of(const std::string& name, const TensorView& view, bool initialised) {
  std::int64_t low = 0, high = view.count() > 0 ? 1 : 0;  // elements
  for (int i = 0; i < view.shape.rank && view.count() > 0; ++i)
    (view.strides[i] < 0 ? low : high) += (view.shape[i] - 1) * view.strides[i];
  const std::int64_t size = bytes(view.dtype);
  return {name, reinterpret_cast<std::uintptr_t>(view.data) + static_cast<std::uint64_t>(low * size),
          static_cast<std::uint64_t>((high - low) * size), initialised};
}

/// The kernel believes that it is on a GPU, and its launches come to device ptx.
void run_simulated(const kernels::KernelFn& kernel, const kernels::KernelCall& call,
                   const std::set<std::string>& unwritten) {
  std::vector<ptx::Region> regions;
  for (const auto& [name, view] : call.tensors) {
    ptx::Region region = region_of(name, view, !unwritten.contains(name));
    const bool known = std::any_of(regions.begin(), regions.end(),
                                   [&](const ptx::Region& other) { return other.address == region.address; });
    if (!known) regions.push_back(std::move(region));  // an output over its input is one memory
  }
  ptx::GpuCall gpu(std::move(regions), call.cancel);
  kernels::KernelCall there = call;
  there.device = Device::cuda;
  try {
    kernel(there);
  } catch (const EnvironmentError&) {
    throw;
  } catch (const std::exception& error) {
    if (gpu.trouble().empty() && gpu.launches() > 0) throw;
    throw Error(error.what() + std::string(" ([device ptx] ") +
                (gpu.trouble().empty() ? "got no launch, want a library that finds the CUDA runtime when it is loaded: "
                                         "nvcc -cudart shared"
                                       : gpu.trouble()) +
                ")");
  }
  gpu.finish();
}

}  // namespace

void run_on(Device device, const kernels::KernelFn& kernel, const kernels::KernelCall& call,
            const std::vector<GuardedTensor*>& buffers, const std::set<std::string>& unwritten) {
  if (device == Device::cpu) {
    kernel(call);
    return;
  }
  if (ptx::simulates_gpu()) return run_simulated(kernel, call, unwritten);
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
