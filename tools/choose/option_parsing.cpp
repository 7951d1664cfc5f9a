// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/option_parsing.h"

#include <CLI/CLI.hpp>

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

void parse_columns(const std::string& text, std::map<std::string, std::string>& columns) {
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string one = text.substr(at, end - at);
    const std::size_t equals = one.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == one.size())
      throw UsageError("[--columns] got '" + one + "', want QUANTITY=NAME, as scale=amp/s");
    columns[one.substr(equals + 1)] = one.substr(0, equals);
    at = end + 1;
  }
}

double parse_positive(const char* flag, const std::string& text) {
  const std::optional<double> value = parse_number(text);
  if (!value || !(*value >= 0) || !std::isfinite(*value))
    throw UsageError(std::string("[") + flag + "] got '" + text + "', want a number from 0 on");
  return *value;
}

void each(CLI::App* command, const char* name, const char* meta, const char* help,
          std::function<void(const std::string&)> take) {
  using Texts = std::vector<std::string>;
  command
      ->add_option_function<Texts>(
          name,
          [take = std::move(take)](const Texts& values) {
            for (const std::string& v : values) take(v);
          },
          help)
      ->type_name(meta)
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void text_option(CLI::App* command, const char* name, const char* meta, const char* help, std::string& to) {
  command->add_option(name, to, help)->type_name(meta);
}

void add_flag(CLI::App* command, const char* name, bool& to, const char* help) { command->add_flag(name, to, help); }
void add_flag(CLI::App* command, const char* name, std::function<void()> given, const char* help) {
  command->add_flag_function(
      name, [given = std::move(given)](std::int64_t) { given(); }, help);
}

void add_words(CLI::App* command, const char* name, std::vector<std::string>& to, const char* help, Words count) {
  CLI::Option* const option = command->add_option(name, to, help);
  if (count != Words::any) option->required();
  if (count == Words::one_or_two) option->expected(1, 2);
}

void add_word(CLI::App* command, const char* name, std::string& to, const char* help, bool required, const char* meta) {
  CLI::Option* const option = command->add_option(name, to, help)->required(required);
  if (meta != nullptr) option->type_name(meta);
}

void add_number(CLI::App* command, const char* flag, const char* help, double& value) {
  each(command, flag, "X", help, [flag, &value](const std::string& text) { value = parse_positive(flag, text); });
}

void add_engine_option(CLI::App* command, bool& ranks) {
  each(command, "--engine", "E",
       "mpi: the ranks of 'mpirun -n N' or srun share the cases through the folder of --run-file, and rank 0 reports",
       [&ranks](const std::string& t) {
         constexpr std::array kEngines = {Named<bool>{"mpi", true}, Named<bool>{"none", false}};
         ranks = choose("--engine", t, kEngines);
       });
}

void add_seed_option(CLI::App* command, const char* help, std::uint64_t& seed) {
  each(command, "--seed", "S", help,
       [&seed](const std::string& t) { seed = parse_count("--seed", t, 0, std::int64_t{1} << 53); });
}

}  // namespace ampcheck::tools
