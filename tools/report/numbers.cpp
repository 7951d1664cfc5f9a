// SPDX-License-Identifier: Apache-2.0
#include "tools/report/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "src/rounding.h"

namespace ampcheck::tools {

namespace {

template <class T, class... Format>
std::optional<T> parse_all(std::string_view text, Format... format) {
  T value{};
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value, format...);
  if (end.ec != std::errc{} || end.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<double> parse_number(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text.starts_with('-') || text.starts_with('+')) return std::nullopt;
  const bool hexadecimal = text.starts_with("0x") || text.starts_with("0X");
  if (hexadecimal) text.remove_prefix(2);
  const auto value = hexadecimal ? parse_all<double>(text, std::chars_format::hex)
                                 : parse_all<double>(text, std::chars_format::general);
  if (!value || (hexadecimal && !std::isfinite(*value))) return std::nullopt;
  return negative ? -*value : *value;
}

std::optional<std::int64_t> parse_whole(std::string_view text) { return parse_all<std::int64_t>(text, 10); }

std::string hex_float(double value) {
  if (std::isnan(value)) return std::signbit(value) ? "-nan" : "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, std::fabs(value), std::chars_format::hex);
  return std::string(std::signbit(value) ? "-0x" : "0x") + std::string(buffer, end.ptr);
}

std::string hex_bits(const FloatFormat& format, std::uint64_t bits) {
  return fmt::format("0x{:0{}x}", bits, (format.bits() + format.storage_shift() + 3) / 4);
}

std::string rounded_decimal(double value, int digits) {
  if (std::isnan(value)) return "nan";
  return fmt::format("{:.{}g}", value, digits);
}

std::string short_decimal(const FloatFormat& format, double value) {
  if (std::isnan(value)) return "nan";
  if (value == std::rint(value) && std::fabs(value) < 1e6)
    return fmt::format("{:.0f}", value);  // exact: -10 and 1024, not -1e+01 and 1.02e+03
  const std::uint64_t code = encode_scalar(format, value);
  for (int digits = format.precision <= 4 ? 3 : 1; digits < 17;
       ++digits) {  // 448 in 8 bits reads better than 4.5e+02, of the same code
    std::string text = rounded_decimal(value, digits);
    const auto back = parse_number(text);
    if (back && encode_scalar(format, *back) == code) return text;
  }
  return rounded_decimal(value, 17);
}

std::string grouped(std::int64_t value) {
  std::string text = std::to_string(value);
  for (std::ptrdiff_t at = std::ssize(text) - 3; at > (value < 0 ? 1 : 0); at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

std::string percent(double ratio, const char* zero) {
  const double value = 100 * ratio;
  if (value == 0) return zero;
  if (std::fabs(value) < 0.1) return "< 0.1 %";
  return fmt::format("{:.{}f} %", value, std::fabs(value) < 9.95 ? 1 : 0);
}

std::string duration(double seconds) {
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  if (seconds < 119.5) return fmt::format("{:.0f} s", seconds);
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  return fmt::format("{} min {} s", whole / 60, whole % 60);
}

double ulps_between(const FloatFormat& format, double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
  const double magnitude = std::max({std::fabs(a), std::fabs(b), format.min_normal()});
  const int exponent = std::min(std::ilogb(magnitude), format.max_exponent());
  return std::ldexp(std::fabs(a - b), format.fraction_bits() - exponent);
}

}  // namespace ampcheck::tools
