// SPDX-License-Identifier: Apache-2.0
// What mma and wmma share: which tensor core a text is meant for, and products of whole numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "src/ptx/decode.h"
#include "src/tensor_core/instruction.h"

namespace ampcheck::ptx {

/// sm_90 and the like to a generation.
TensorCore generation_of(std::string_view target);
bool input_of(const Type& t, tensor_core::Input& out);
/// c + a . b of numbers of 8 bits.
std::uint32_t whole_dot(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b, std::uint32_t c,
                        bool a_signed, bool b_signed, bool saturates);

}  // namespace ampcheck::ptx
