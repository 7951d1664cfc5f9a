// SPDX-License-Identifier: Apache-2.0
#include "tools/runs/base64.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace ampcheck::tools {

namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::uint8_t kNoDigit = 64;

constexpr auto kValues = [] {
  std::array<std::uint8_t, 256> out{};
  out.fill(kNoDigit);
  for (std::size_t i = 0; i < kDigits.size(); ++i)
    out[static_cast<unsigned char>(kDigits[i])] = static_cast<std::uint8_t>(i);
  return out;
}();

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string out((bytes.size() + 2) / 3 * 4, '=');
  char* to = out.data();
  for (std::size_t at = 0; at < bytes.size(); at += 3, to += 4) {
    const std::size_t there = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i)
      group = group << 8 | (i < there ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (std::size_t i = 0; i <= there; ++i) to[i] = kDigits[group >> (18 - 6 * i) & 63];
  }
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string out(text.size() / 4 * 3, '\0');
  char* to = out.data();
  for (std::size_t at = 0; at < text.size(); at += 4, to += 3) {
    std::uint32_t group = 0, wrong = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const bool pad = at + i >= text.size() - padding;
      const std::uint32_t digit = pad ? 0 : kValues[static_cast<unsigned char>(text[at + i])];
      wrong |= digit & kNoDigit;
      group = group << 6 | digit;
    }
    if (wrong != 0) return std::nullopt;
    for (std::size_t i = 0; i < 3; ++i) to[i] = static_cast<char>(group >> (16 - 8 * i) & 255);
  }
  out.resize(out.size() - padding);
  return out;
}

}  // namespace ampcheck::tools
