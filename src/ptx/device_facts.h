// SPDX-License-Identifier: Apache-2.0
// What the simulated GPU says of itself to a program that asks the CUDA runtime. The numbers are those of an A100.
#pragma once

#include <cstddef>

namespace ampcheck::ptx {

inline constexpr std::size_t kDeviceMemory = std::size_t{40} << 30;

/// By the numbers of cudaDeviceAttr; 0 for what is not known here.
int attribute_of_device(int attribute);

/// How cudaDeviceProp lies in memory: it has lost and gained fields from one toolkit to the next.
enum class PropertyLayout { of_11, of_12, of_13 };

/// Writes the fields that are known, and zeros in the other ones. Of CUDA 11 nothing is written behind the last field
/// that is known. False for no memory at all.
bool write_properties(void* out, PropertyLayout layout);

}  // namespace ampcheck::ptx
