// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "src/error.h"
#include "src/float_format.h"
#include "src/rounding.h"
#include "src/suggestion.h"
#include "tools/commands/commands.h"
#include "tools/report/json.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

/// A format with its name owned: parsed ones have a name of the user's.
struct NamedFormat {
  std::string name;
  FloatFormat format;
};

std::vector<NamedFormat> chosen_formats(const FormatsOptions& options) {
  std::vector<NamedFormat> out;
  if (options.formats.empty())
    for (const FloatFormat& format : all_formats()) out.push_back({std::string(format.name), format});
  for (const std::string& word : options.formats) {
    try {
      out.push_back({word, parse_format(word)});
    } catch (const Error& error) {
      std::vector<std::string> names;
      for (const FloatFormat& format : all_formats()) names.emplace_back(format.name);
      throw UsageError(error.what() + did_you_mean(word, names));
    }
  }
  return out;
}

const char* specials_text(const FloatFormat& format) {
  switch (format.specials) {
    case Specials::ieee: return "inf, NaN";
    case Specials::nan_only: return "NaN, no inf";
    case Specials::nan_is_negative_zero: return "NaN at -0, no inf";
    case Specials::none: return "finite only";
    case Specials::scale: return "powers of two, NaN";
  }
  return "";
}

Json facts_json(const NamedFormat& named) {
  const FloatFormat& f = named.format;
  return {{"name", named.name},
          {"bits", f.bits()},
          {"exponent_bits", f.exponent_bits},
          {"precision", f.precision},
          {"bias", f.bias},
          {"max_finite", hex_float(f.max_finite())},
          {"min_normal", hex_float(f.min_normal())},
          {"min_subnormal", hex_float(f.min_subnormal())},
          {"unit_roundoff", hex_float(f.unit_roundoff())},
          {"infinity", f.has_infinity()},
          {"nan", f.has_nan()},
          {"zero", f.has_zero()},
          {"negative_zero", f.has_negative_zero()},
          {"subnormals", f.has_subnormals()}};
}

std::string facts_table(const std::vector<NamedFormat>& formats) {
  const Style style = stdout_style();
  std::string out =
      fmt::format("{}{:<12}{:>5}{:>10}{:>6}{:>14}{:>12}{:>15}{:>8}  {}{}\n", style.bold, "format", "bits", "exp+frac",
                  "bias", "max_finite", "min_normal", "min_subnormal", "u", "specials", style.reset);
  for (const auto& [name, f] : formats)
    out += fmt::format("{:<12}{:>5}{:>10}{:>6}{:>14}{:>12}{:>15}{:>8}  {}\n", name, f.bits(),
                       fmt::format("{}+{}", f.exponent_bits, f.fraction_bits()), f.bias,
                       rounded_decimal(f.max_finite(), 6), rounded_decimal(f.min_normal(), 4),
                       f.has_subnormals() ? rounded_decimal(f.min_subnormal(), 4) : "-",
                       fmt::format("2^{}", -f.precision), specials_text(f));
  return out +
         "\nu: unit roundoff, half the distance from 1 to the next number. ampcheck formats VALUE shows what each "
         "makes of a number.\n";
}

/// What a format makes of one number.
struct Made {
  std::uint64_t bits = 0;
  double value = 0;
  double ulp = 0;       ///< signed error in ulps of the format
  double relative = 0;  ///< signed relative error
};

Made made_of(const FloatFormat& format, const RoundingMode& mode, double number) {
  Made made;
  made.bits = encode_scalar(format, number, mode);
  made.value = decode_scalar(format, made.bits);
  const double sign = made.value < number ? -1 : 1;
  made.ulp = sign * ulps_between(format, number, made.value);
  made.relative = number == made.value ? 0 : (made.value - number) / std::fabs(number);
  return made;
}

std::string error_text(const Made& made, double number) {
  if (made.ulp == 0) return "exact";
  if (std::isnan(made.value) || std::isnan(number)) return "becomes " + rounded_decimal(made.value, 4);
  if (!std::isfinite(made.ulp)) return std::isinf(made.value) ? "overflows" : "saturates";
  std::string out = fmt::format("{:+.3g} ulp", made.ulp);
  if (made.value == 0) return out + ", underflows to zero";
  return out + fmt::format(", {:+.2g} relative", made.relative);
}

double number_of(const std::string& word) {
  const std::optional<double> value = parse_number(word);
  if (!value)
    throw UsageError("[formats] got '" + word +
                     "', want a number inside fp64: decimal, hexadecimal as 0x1.8p-3, inf or nan");
  return *value;
}

std::string value_table(const std::vector<NamedFormat>& formats, const FormatsOptions& options,
                        const std::string& word) {
  const Style style = stdout_style();
  const double number = number_of(word);
  std::string out = fmt::format("{}{}{}  =  {} = {} in fp64\n", style.bold, word, style.reset,
                                rounded_decimal(number, 17), hex_float(number));
  for (const auto& [name, format] : formats) {
    const Made made = made_of(format, options.rounding, number);
    out += fmt::format("  {:<12}{:<20}{:<24}{:<24}{}\n", name, hex_bits(format, made.bits),
                       short_decimal(format, made.value), hex_float(made.value), error_text(made, number));
  }
  return out;
}

Json value_json(const std::vector<NamedFormat>& formats, const FormatsOptions& options, const std::string& word) {
  const double number = number_of(word);
  Json out = {{"input", word}, {"value", hex_float(number)}, {"formats", Json::array()}};
  for (const auto& [name, format] : formats) {
    const Made made = made_of(format, options.rounding, number);
    out["formats"].push_back({{"format", name},
                              {"bits", hex_bits(format, made.bits)},
                              {"value", hex_float(made.value)},
                              {"decimal", short_decimal(format, made.value)},
                              {"ulp", json_number(made.ulp)},
                              {"relative", json_number(made.relative)}});
  }
  return out;
}

}  // namespace

ExitCode formats_command(const FormatsOptions& options) {
  const std::vector<NamedFormat> formats = chosen_formats(options);
  if (options.json) {
    Json out = {{"schema", "ampcheck.formats/1"}};
    if (options.values.empty()) {
      out["formats"] = Json::array();
      for (const NamedFormat& format : formats) out["formats"].push_back(facts_json(format));
    } else {
      out["values"] = Json::array();
      for (const std::string& word : options.values) out["values"].push_back(value_json(formats, options, word));
    }
    write_stdout(json_text(out));
    return ExitCode::passed;
  }
  std::string out = options.values.empty() ? facts_table(formats) : "";
  for (const std::string& word : options.values) out += (out.empty() ? "" : "\n") + value_table(formats, options, word);
  write_stdout(out);
  return ExitCode::passed;
}

}  // namespace ampcheck::tools
