// SPDX-License-Identifier: Apache-2.0
// Vectors for an instruction as text, as GPUs' instructions were captured by Khattak and Mikaitis: one a line,
//   a[0] ... a[k-1] | b[0] ... b[k-1] | c | d
// in hex. a and b in their type's bits (tf32: of an fp32), c and d in those of an fp32, whatever the output type is. d
// may be missing: nobody knows it yet. A first line "# gpu=H100 in=bf16 out=fp32 k=16" says the types; "in_b=" that of
// b where it differs. With scales (Blackwell) a line is
//   a ... | b ... | scales of a | scales of b | c | d
// and the first line "# scaled=mxf4nvf4 in=e2m1 scale=ue4m3".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/tensor_core/block_scaled.h"
#include "src/tensor_core/instruction.h"

namespace ampcheck::tensor_core {

struct Vector {
  std::size_t line = 0;  ///< of the file, from 1
  std::vector<std::uint32_t> a, b;
  std::vector<std::uint32_t> a_scales = {}, b_scales = {};  ///< where the file has scales
  std::uint32_t c = 0;                                      ///< fp32 bits
  std::optional<std::uint32_t> d;                           ///< fp32 bits
};

struct Vectors {
  std::string gpu;  ///< empty: the file does not say
  std::optional<Input> a, b;
  std::optional<Output> output;
  std::optional<ScaledInstruction> scaled;  ///< then a and b are not set
  std::vector<Vector> all;
};

/// Throws Error("[vectors] FILE:LINE: got ..., want ..."). `name` is the file's, for messages.
Vectors read_vectors(std::string_view text, const std::string& name);

/// fp32 bits as the output type's, to nearest, and back.
std::uint32_t from_fp32(Output output, std::uint32_t bits);
std::uint32_t to_fp32(Output output, std::uint32_t bits);

}  // namespace ampcheck::tensor_core
