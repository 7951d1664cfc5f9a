// SPDX-License-Identifier: Apache-2.0
// Numbers and type words of PTX.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "src/ptx/text.h"

namespace ampcheck::ptx {

/// Kind and width of a type word such as ".f32".
std::optional<Register> type_of(std::string_view word);

/// Reads 12, 0x1F, 017, 0b11, 12U, 1.5e3, 0f3F800000 or 0d3FF0000000000000. Empty, or what was wanted.
std::string read_number(std::string_view text, Operand& out);

}  // namespace ampcheck::ptx
