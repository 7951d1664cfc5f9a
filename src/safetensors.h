// SPDX-License-Identifier: Apache-2.0
// Tensors by name as safetensors files: the length of a JSON header in 8 bytes, the header, the data.
// Format: https://github.com/huggingface/safetensors#format
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/tensor.h"

namespace ampcheck {

/// One tensor of a file.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

inline constexpr std::size_t kMostSafetensorsHeader = std::size_t{16} << 20;
inline constexpr std::size_t kMostTensorName = 1024;

/// The tensors in the bytes of a safetensors file, in the order of their data: F64 F32 F16 BF16 F8_E4M3 F8_E5M2 I64 I32
/// U8, and BOOL as u8. `where` names the file in messages. Throws Error for a header longer than kMostSafetensorsHeader
/// or that is not the JSON wanted (a key twice included), for data with a hole, an overlap or bytes left over, for
/// another rank or dtype.
std::vector<NamedTensor> parse_safetensors(std::string_view bytes, const std::string& where);

/// The bytes of a safetensors file. Throws Error for names that the reader would refuse.
std::string safetensors_bytes(std::span<const NamedTensor> tensors);

/// Throws Error that begins with `where` for a name that is empty, too long, has control characters or was there
/// before.
void require_tensor_name(const std::string& name, std::span<const NamedTensor> before, const std::string& where);

}  // namespace ampcheck
