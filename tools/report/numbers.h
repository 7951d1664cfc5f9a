// SPDX-License-Identifier: Apache-2.0
// Numbers as text, the same in every locale.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/float_format.h"

namespace ampcheck::tools {

/// A decimal or hexadecimal number ("0.1", "-1e-3", "0x1.8p-3"), "inf", "infinity" or "nan" with an optional sign.
/// Empty for anything else, and for decimals beyond fp64's range.
std::optional<double> parse_number(std::string_view text);
/// A whole decimal number.
std::optional<std::int64_t> parse_whole(std::string_view text);

/// "0x1.999999999999ap-4", "-0x0p+0", "inf", "nan": reads back as the same bits (NaN payloads aside).
std::string hex_float(double value);
/// "0x3dcd": as many digits as the format has.
std::string hex_bits(const FloatFormat& format, std::uint64_t bits);
/// The shortest decimal that rounds to the same code of the format; a whole number of up to six digits as it is.
std::string short_decimal(const FloatFormat& format, double value);
/// At most `digits` significant digits.
std::string rounded_decimal(double value, int digits);
/// "61,204,112"
std::string grouped(std::int64_t value);
/// "exact" for 0, "< 0.1 %", "4.1 %", "41 %"
std::string percent(double ratio, const char* zero = "0 %");
/// "0.4 s", "38 s", "2 min 5 s"
std::string duration(double seconds);

/// Distance of a and b in ulps of the format at the larger of both; infinite if one of them is not finite and they
/// differ.
double ulps_between(const FloatFormat& format, double a, double b);

}  // namespace ampcheck::tools
