// SPDX-License-Identifier: Apache-2.0
// Texts of anybody's (names of ops, files and cases, words of a kernel) before they stand in a report.
#pragma once

#include <string>
#include <string_view>

namespace ampcheck::tools {

/// Bytes of the valid UTF-8 sequence at the start of `text`, 0 if there is none. `text` is not empty.
std::size_t utf8_length(std::string_view text);

/// Valid UTF-8 without control characters and without marks that turn the direction of writing: a line end, a tab and
/// whatever else is not shown becomes a blank, a byte that is no character '?'.
std::string one_line(std::string_view text);

/// The same with its line ends.
std::string clean_lines(std::string_view text);

/// At most `bytes`, cut between two characters, with "..." where something is gone.
std::string shortened(std::string_view text, std::size_t bytes);

}  // namespace ampcheck::tools
