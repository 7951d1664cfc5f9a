// SPDX-License-Identifier: Apache-2.0
#include "tools/report/plain_text.h"

#include <algorithm>

namespace ampcheck::tools {

namespace {

char32_t code_of(std::string_view text, std::size_t length) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (length == 1) return byte(0);
  char32_t code = static_cast<char32_t>(byte(0) & (0x7f >> length));
  for (std::size_t i = 1; i < length; ++i) code = code << 6 | (byte(i) & 0x3f);
  return code;
}

/// Controls of C0 and C1, line and paragraph separators, and what turns or hides the direction of writing.
bool is_hidden(char32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 ||
         (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == 0x200e || code == 0x200f ||
         code == 0xfeff || code == 0xfffe || code == 0xffff;
}

std::string cleaned(std::string_view text, bool lines) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0)
      out += '?';
    else if (lines && text.front() == '\n')
      out += '\n';
    else if (is_hidden(code_of(text, length)))
      out += ' ';
    else
      out += text.substr(0, length);
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

}  // namespace

std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xc2 && lead < 0xe0   ? 2
                             : lead >= 0xe0 && lead < 0xf0 ? 3
                             : lead >= 0xf0 && lead < 0xf5 ? 4
                                                           : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const char32_t code = code_of(text, length);
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code < kSmallest[length] || code > 0x10ffff || surrogate ? 0 : length;
}

std::string one_line(std::string_view text) { return cleaned(text, false); }
std::string clean_lines(std::string_view text) { return cleaned(text, true); }

std::string shortened(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return std::string(text);
  std::size_t end = bytes < 3 ? 0 : bytes - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

}  // namespace ampcheck::tools
