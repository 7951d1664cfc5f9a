// SPDX-License-Identifier: Apache-2.0
// Pages of the manual are Markdown. Here they become text for a terminal, pages for `man`, and HTML.
#pragma once

#include <string>
#include <string_view>

#include "tools/report/output.h"

namespace ampcheck::tools {

/// Paragraphs are wrapped at `width` columns; code and tables stand as they are. A link to another page (`ci.md`) is
/// followed by the command that shows it.
std::string terminal_text(std::string_view markdown, const Style& style, std::size_t width);

/// The head of a page for `man`.
struct ManHead {
  std::string name;     ///< "ampcheck-tutorial"
  int section = 7;      ///< 1: commands, 7: all else
  std::string version;  ///< of the program
};
/// The same page in roff. The first heading becomes the line of NAME.
std::string man_page(std::string_view markdown, const ManHead& head);

/// The page as what stands in the body of an HTML page: links lead to .html, headings have anchors.
std::string html_body(std::string_view markdown);

/// The text of the first heading, without markup.
std::string title_of(std::string_view markdown);

}  // namespace ampcheck::tools
