// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ampcheck::tools {

/// RFC 4648, with padding.
std::string to_base64(std::string_view bytes);
/// Nothing for a text that is none.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace ampcheck::tools
