// SPDX-License-Identifier: Apache-2.0
// How options are declared: their words become values here, and whatever is no value becomes a UsageError that says
// what was wanted. Included by the files that declare options, not by those that read them.
#pragma once

#include <CLI/CLI.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/dtype.h"
#include "src/suggestion.h"
#include "tools/report/usage_error.h"

namespace CLI {
class App;
}

namespace ampcheck::tools {

template <class T>
using Named = std::pair<const char*, T>;

/// The value of a word. UsageError with the nearest word and the list.
template <class T, std::size_t N>
T choose(const char* flag, const std::string& word, const std::array<Named<T>, N>& choices) {
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) {
    if (word == name) return value;
    names.push_back(name);
  }
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  throw UsageError(std::string("[") + flag + "] got '" + word + "'" + did_you_mean(word, names) + ", want " + list);
}

inline constexpr std::array kStorageTypes = {Named<Dtype>{"fp32", Dtype::fp32},     Named<Dtype>{"fp16", Dtype::fp16},
                                             Named<Dtype>{"bf16", Dtype::bf16},     Named<Dtype>{"fp64", Dtype::fp64},
                                             Named<Dtype>{"e4m3fn", Dtype::e4m3fn}, Named<Dtype>{"e5m2", Dtype::e5m2}};
inline constexpr std::array kComputeTypes = {Named<Dtype>{"fp32", Dtype::fp32}, Named<Dtype>{"fp16", Dtype::fp16},
                                             Named<Dtype>{"bf16", Dtype::bf16}};

/// Whole numbers in a range; sizes in bytes with the usual units (kB, MB, ... are powers of 1024); numbers from 0 on.
std::uint64_t parse_count(const char* flag, const std::string& text, std::int64_t low, std::int64_t high);
std::int64_t parse_size(const char* flag, const std::string& text);
double parse_positive(const char* flag, const std::string& text);

/// "scale=amp/s,step=it" of a log's columns: name in the file -> quantity.
void parse_columns(const std::string& text, std::map<std::string, std::string>& columns);

/// An option whose every value is handled by `take`, which throws UsageError.
void each(CLI::App* command, const char* name, const char* meta, const char* help,
          std::function<void(const std::string&)> take);
/// An option with one text.
void text_option(CLI::App* command, const char* name, const char* meta, const char* help, std::string& to);
void add_flag(CLI::App* command, const char* name, bool& to, const char* help);
void add_flag(CLI::App* command, const char* name, std::function<void()> given, const char* help);
/// Words without dashes: any number of them, at least one, or at least one and at most two.
enum class Words { any, some, one_or_two };
void add_words(CLI::App* command, const char* name, std::vector<std::string>& to, const char* help,
               Words count = Words::any);
/// One word without dashes. `meta`: what stands for it in the help, if not the name.
void add_word(CLI::App* command, const char* name, std::string& to, const char* help, bool required,
              const char* meta = nullptr);
void add_number(CLI::App* command, const char* flag, const char* help, double& value);
/// --engine of commands whose cases ranks may share.
void add_engine_option(CLI::App* command, bool& ranks);
inline constexpr char kNoTimes[] = "report every time as 0, so that equal results make equal files";
/// --seed: the first of several, or the only one.
void add_seed_option(CLI::App* command, const char* help, std::uint64_t& seed);

template <class T>
void add_whole(CLI::App* command, const char* flag, const char* help, T& value) {
  each(command, flag, "N", help,
       [flag, &value](const std::string& text) { value = static_cast<T>(parse_count(flag, text, 1, 1'000'000)); });
}

}  // namespace ampcheck::tools
