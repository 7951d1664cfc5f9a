// SPDX-License-Identifier: Apache-2.0
// A device as the command line names it.
#pragma once

#include "src/device.h"
#include "src/ptx/gpu.h"

namespace ampcheck::tools {

/// Device cuda where its GPU is simulated: kernels believe that they are on a GPU.
inline constexpr const char* kSimulatedGpu = "ptx";

inline const char* device_word(Device device) {
  return device == Device::cuda && ptx::simulates_gpu() ? kSimulatedGpu : name(device);
}

}  // namespace ampcheck::tools
