// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/report/markdown_text.h"

#include <cstring>
#include <utility>

#include "tools/report/plain_text.h"

namespace ampcheck::tools {

namespace {

/// Addresses become links by themselves: http://a and www.a, unless their marks are entities.
std::string without_links(std::string text) {
  for (const auto& [mark, entity] : {std::pair{"://", "&#58;//"}, {"www.", "www&#46;"}, {"WWW.", "WWW&#46;"}})
    for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += std::strlen(entity))
      text.replace(at, std::strlen(mark), entity);
  return text;
}

}  // namespace

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
  return without_links(std::move(out));
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
  return without_links(std::move(out)) + "</code>";
}

}  // namespace ampcheck::tools
