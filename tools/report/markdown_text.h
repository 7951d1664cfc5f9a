// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace ampcheck::tools {

/// A text of anybody's as one line of Markdown, also in a table: nothing in it is markup, a link or HTML.
std::string markdown_word(std::string_view text);
/// The same as code, between backquotes.
std::string markdown_code(std::string_view text);

}  // namespace ampcheck::tools
