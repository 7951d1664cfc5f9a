// SPDX-License-Identifier: Apache-2.0
#include "src/float_format.h"

#include <charconv>
#include <mutex>
#include <set>
#include <string>

#include "src/error.h"

namespace ampcheck {
namespace {

constexpr FloatFormat kFormats[] = {kFp64,     kFp32,        kTf32, kFp16, kBf16,    kE4m3fn, kE5m2,   kE4m3fnuz,
                                    kE5m2fnuz, kE4m3b11fnuz, kE4m3, kE3m4, kE8m0fnu, kE2m3fn, kE3m2fn, kE2m1fn};

[[noreturn]] void reject(std::string_view text, std::string_view why) {
  throw Error("[float format] " + std::string(why) + ", got '" + std::string(text) +
              "', want a built-in name or e<E>m<M>[b<bias>][fn|fnuz|f], such as e5m7 or e4m3b11fnuz");
}

/// Reads letter + decimal number from the front of `rest`; false when it does not start with the letter.
bool take_number(std::string_view text, std::string_view& rest, char letter, int& value) {
  if (rest.empty() || rest.front() != letter) return false;
  rest.remove_prefix(1);
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc{}) reject(text, std::string("no number after '") + letter + "'");
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return true;
}

Specials parse_suffix(std::string_view text, std::string_view suffix) {
  if (suffix.empty()) return Specials::ieee;
  if (suffix == "fn") return Specials::nan_only;
  if (suffix == "fnuz") return Specials::nan_is_negative_zero;
  if (suffix == "f") return Specials::none;
  reject(text, "unknown suffix '" + std::string(suffix) + "'");
}

/// FloatFormat owns no text, so the names of user-given formats live as long as the program.
std::string_view keep_name(std::string_view name) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> names;
  const std::lock_guard lock(mutex);
  return *names.emplace(name).first;
}

}  // namespace

std::span<const FloatFormat> all_formats() { return kFormats; }

const FloatFormat* find_format(std::string_view name) {
  for (const FloatFormat& format : kFormats)
    if (name == format.name) return &format;
  return nullptr;
}

FloatFormat parse_format(std::string_view text) {
  if (const FloatFormat* known = find_format(text)) return *known;
  std::string_view rest = text;
  int exponent_bits = 0;
  int fraction_bits = 0;
  if (!take_number(text, rest, 'e', exponent_bits)) reject(text, "unknown format");
  if (!take_number(text, rest, 'm', fraction_bits)) reject(text, "no fraction width");
  if (exponent_bits < 2 || exponent_bits > 11) reject(text, "exponent bits outside 2..11");
  if (fraction_bits < 1 || fraction_bits > 52) reject(text, "fraction bits outside 1..52");
  int bias = 0;
  const bool given_bias = take_number(text, rest, 'b', bias);
  const Specials specials = parse_suffix(text, rest);
  const int half = 1 << (exponent_bits - 1);
  if (!given_bias) bias = specials == Specials::nan_is_negative_zero ? half : half - 1;
  if (bias < -1000 || bias > 2000) reject(text, "bias outside -1000..2000");
  const FloatFormat format{keep_name(text), exponent_bits, fraction_bits + 1, bias, specials};
  if (format.max_exponent() > 1023 || format.min_exponent() < -1022) reject(text, "values outside fp64");
  return format;
}

}  // namespace ampcheck
