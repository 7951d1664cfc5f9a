// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/doors/description_fields.h"

#include <algorithm>

namespace ampcheck::checks::description {

std::string text(const char* from, std::size_t most, const char* what, const Place& place) {
  if (from == nullptr) return "";
  const std::size_t length = strnlen(from, most + 1);
  if (length > most) place.fail(std::string(what) + ", got more than " + std::to_string(most) + " characters");
  return {from, length};
}

std::string one_line(const char* from, const char* what, const Place& place) {
  std::string out = text(from, kMostLine, what, place);
  for (const char c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      place.fail(std::string(what) + ", got a control character, want one line of text");
  return out;
}

SourceLine source_line(const ac_source* from, const Place& place) {
  if (from == nullptr) place.fail("data, got a null pointer, want an ac_source");
  const ac_source source = sized(from, place);
  SourceLine out{one_line(source.file, "file", place), source.line};
  if (out.file.empty()) place.fail("file, got an empty text");
  if (out.line < 1) place.fail("line, got " + std::to_string(out.line) + ", want 1 or more");
  return out;
}

std::string name_of(const char* from, const char* what, const Place& place) {
  const std::string out = text(from, kMostName, what, place);
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool right = !out.empty() && letter(out.front()) &&
                     std::all_of(out.begin(), out.end(), [&](char c) { return letter(c) || digit(c); });
  if (!right) {
    std::string shown = out;
    for (char& c : shown)
      if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
    place.fail(std::string(what) + ", got '" + shown + "', want letters, digits and _, not beginning with a digit");
  }
  return out;
}

void require_flags(std::uint32_t flags, std::uint32_t known, const Place& place) {
  if ((flags & ~known) != 0) place.fail("flags, got the unknown bits " + std::to_string(flags & ~known));
}

}  // namespace ampcheck::checks::description
