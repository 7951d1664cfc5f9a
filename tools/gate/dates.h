// SPDX-License-Identifier: Apache-2.0
// Days as text, "2026-12-31", which sort as text does.
#pragma once

#include <string>
#include <string_view>

namespace ampcheck::tools {

/// A day that exists, written so.
bool is_date(std::string_view text);
/// In UTC.
std::string today();

}  // namespace ampcheck::tools
