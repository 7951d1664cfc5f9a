// SPDX-License-Identifier: Apache-2.0
// No GPU is a device, not an #ifdef: kernels are called the same way on both.
#pragma once

#include <cstdint>

namespace ampcheck {

enum class Device : std::uint8_t { cpu, cuda };

inline const char* name(Device device) { return device == Device::cpu ? "cpu" : "cuda"; }

}  // namespace ampcheck
