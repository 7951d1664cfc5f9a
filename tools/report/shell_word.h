// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace ampcheck::tools {

/// A word as a shell reads it back.
std::string shell_word(std::string_view word);

}  // namespace ampcheck::tools
