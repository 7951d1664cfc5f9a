// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/report/markdown_text.h"

#include "tools/report/plain_text.h"

namespace ampcheck::tools {

std::string markdown_word(std::string_view text) {
  std::string out;
  for (const char c : one_line(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '@': out += "&#64;"; break;  // a name behind it would be called
      case '|':
      case '`':
      case '*':
      case '_':
      case '[':
      case ']':
      case '#':
      case '~':
      case '!':
      case '$':
      case '\\':
        out += '\\';
        out += c;
        break;
      default: out += c;
    }
  }
  return out;
}

std::string markdown_code(std::string_view text) {
  // Between <code> tags everything that would be markup is an entity: backquotes cannot hold a backquote in a table.
  std::string out = "<code>";
  for (const char c : one_line(text)) {
    if (std::string_view("&<>@|`*_[]#~!$\\").find(c) != std::string_view::npos)
      out += "&#" + std::to_string(static_cast<int>(c)) + ";";
    else
      out += c;
  }
  return out + "</code>";
}

}  // namespace ampcheck::tools
