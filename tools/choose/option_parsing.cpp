// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/option_parsing.h"

#include <cmath>
#include <optional>

#include "tools/report/numbers.h"

namespace ampcheck::tools {

std::uint64_t parse_count(const char* flag, const std::string& text, std::int64_t low, std::int64_t high) {
  const std::optional<std::int64_t> value = parse_whole(text);
  if (!value || *value < low || *value > high)
    throw UsageError(std::string("[") + flag + "] got '" + text + "', want a whole number from " + std::to_string(low) +
                     " to " + std::to_string(high));
  return static_cast<std::uint64_t>(*value);
}

std::int64_t parse_size(const char* flag, const std::string& text) {
  std::string number = text;
  bool size = false;
  try {
    size = CLI::AsSizeValue(false)(number).empty() && number != "0";
  } catch (const CLI::Error&) {  // an unknown unit
  }
  if (!size) throw UsageError(std::string("[") + flag + "] got '" + text + "', want a size, as 8GB or 500MB");
  return static_cast<std::int64_t>(parse_count(flag, number, 1, std::int64_t{1} << 62));
}

double parse_positive(const char* flag, const std::string& text) {
  const std::optional<double> value = parse_number(text);
  if (!value || !(*value >= 0) || !std::isfinite(*value))
    throw UsageError(std::string("[") + flag + "] got '" + text + "', want a number from 0 on");
  return *value;
}

CLI::Option* text_option(CLI::App* command, const char* name, const char* meta, const char* help, std::string& to) {
  return command->add_option(name, to, help)->type_name(meta);
}

void add_number(CLI::App* command, const char* flag, const char* help, double& value) {
  each(command, flag, "X", help, [flag, &value](const std::string& text) { value = parse_positive(flag, text); });
}

void add_seed_option(CLI::App* command, const char* help, std::uint64_t& seed) {
  each(command, "--seed", "S", help,
       [&seed](const std::string& t) { seed = parse_count("--seed", t, 0, std::int64_t{1} << 53); });
}

}  // namespace ampcheck::tools
