// SPDX-License-Identifier: Apache-2.0
// An extent as the description of an op writes it: a dimension symbol ("D"), or + - * / ( ) over symbols, attributes
// and whole numbers ("D/2", "2*H", "k"). A division rounds down.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/op_signature.h"

namespace ampcheck {

bool has_dim(const OpSignature& signature, std::string_view symbol);

/// Extents of a list such as "N D/2", blanks beside operators left out.
std::vector<std::string> extents_in(std::string_view dims);

/// Names of symbols and attributes in one of them, each once. Throws Error("got ..., want ...") for a text that is no
/// extent.
std::vector<std::string> names_in_extent(const std::string& extent);

/// Its value; nothing where a name has none, an attribute is no whole number, a number leaves 2^40, or the divisor is
/// 0. What is below 0 is an extent that the op does not take. Throws Error as names_in_extent() does.
std::optional<std::int64_t> extent_value(const std::string& extent, const Dims& dims, const Attributes& attributes);

/// How the value comes about: "D/2 of D=7", "k=3"; of a symbol alone nothing.
std::string extent_origin(const std::string& extent, const Dims& dims, const Attributes& attributes);

/// Whether each of them has a value and none is below 0.
bool extents_exist(const std::vector<std::string>& extents, const Dims& dims, const Attributes& attributes);

}  // namespace ampcheck
