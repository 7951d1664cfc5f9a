// SPDX-License-Identifier: Apache-2.0
#include "src/ptx/literals.h"

#include <bit>
#include <charconv>

namespace ampcheck::ptx {

namespace {

bool read_whole(std::string_view digits, int base, std::uint64_t& bits) {
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits, base);
  return error == std::errc() && end == digits.data() + digits.size() && !digits.empty();
}

/// 0f and 8 digits of a float's bits, 0d and 16 of a double's.
bool read_bits(std::string_view text, bool single, Operand& out) {
  std::uint64_t bits = 0;
  if (text.size() != (single ? 10u : 18u) || !read_whole(text.substr(2), 16, bits)) return false;
  out.kind = Operand::Kind::real;
  out.real = single ? static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)))
                    : std::bit_cast<double>(bits);
  out.number = static_cast<std::int64_t>(bits);
  return true;
}

}  // namespace

/// Kind and width of a type word such as ".f32".
std::optional<Register> type_of(std::string_view word) {
  if (word == ".pred") return Register{'p', 1};
  if (word == ".f16x2" || word == ".bf16x2") return Register{'b', 32};
  if (word == ".bf16") return Register{'b', 16};
  if (word.size() < 3 || word[0] != '.' || std::string_view("busf").find(word[1]) == std::string_view::npos) return {};
  int bits = 0;
  const auto [end, error] = std::from_chars(word.data() + 2, word.data() + word.size(), bits);
  if (error != std::errc() || end != word.data() + word.size()) return {};
  if (bits != 8 && bits != 16 && bits != 32 && bits != 64 && bits != 128) return {};
  return Register{word[1], bits};
}

namespace {

/// 0x7f, 0b11, 017 or 12, with or without U.
bool read_integer(std::string_view text, std::uint64_t& bits) {
  if (text.back() == 'U') text.remove_suffix(1);
  if (text.size() < 2 || text[0] != '0') return read_whole(text, 10, bits);
  const char second = static_cast<char>(text[1] | 0x20);
  if (second == 'x' || second == 'b') return read_whole(text.substr(2), second == 'x' ? 16 : 2, bits);
  return read_whole(text.substr(1), 8, bits);
}

}  // namespace

std::string read_number(std::string_view text, Operand& out) {
  out.kind = Operand::Kind::integer;
  std::uint64_t bits = 0;
  const char second = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
  if (second == 'f' || second == 'd')
    return read_bits(text, second == 'f', out) ? "" : "0f with 8 or 0d with 16 digits";
  if (text.find_first_of(".eE") != std::string_view::npos && second != 'x') {
    out.kind = Operand::Kind::real;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out.real);
    if (error != std::errc() || end != text.data() + text.size()) return "a number";
    out.number = std::bit_cast<std::int64_t>(out.real);
    return "";
  }
  if (!read_integer(text, bits)) return "a number";
  out.number = static_cast<std::int64_t>(bits);
  return "";
}

}  // namespace ampcheck::ptx
