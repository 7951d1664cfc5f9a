// SPDX-License-Identifier: Apache-2.0
#include "checks/models/real_data.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "src/error.h"

namespace ampcheck::checks::models {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kPixels = 64;
constexpr double kWhite = 16;
constexpr std::size_t kClasses = 10;

bool holds_data(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kDigitsFile, ignored) && fs::exists(folder / kTextFile, ignored);
}

std::vector<fs::path> standard_places() {
  std::vector<fs::path> out;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) out.push_back(program.parent_path().parent_path() / "share/ampcheck/data");
#ifdef AMPCHECK_SOURCE_DATA
  out.emplace_back(AMPCHECK_SOURCE_DATA);
#endif
  return out;
}

std::ifstream open(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in)
    throw EnvironmentError("[real data] file, got none readable at " + file.string() +
                           ", want it there (--data DIR names another folder)");
  return in;
}

[[noreturn]] void fail_line(const fs::path& file, std::size_t line, const std::string& got) {
  throw Error("[real data] " + file.string() + " line " + std::to_string(line) + ", got " + got +
              ", want 64 pixels from 0 to 16 and a class from 0 to 9");
}

}  // namespace

fs::path find_data(const std::string& chosen) {
  std::vector<fs::path> places;
  const char* variable = std::getenv("AMPCHECK_DATA");
  if (!chosen.empty())
    places.emplace_back(chosen);
  else if (variable != nullptr && *variable != '\0')
    places.emplace_back(variable);
  else
    places = standard_places();
  std::string list;
  for (const fs::path& place : places) {
    if (holds_data(place)) return place;
    list += (list.empty() ? "" : " or ") + place.string();
  }
  throw EnvironmentError(std::string("[real data] ") + kDigitsFile + " and " + kTextFile +
                         ", got neither folder nor both files at " + list +
                         ", want a folder with both, named by --data DIR or AMPCHECK_DATA");
}

Digits read_digits(const fs::path& folder) {
  const fs::path file = folder / kDigitsFile;
  std::ifstream in = open(file);
  Digits out;
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    const char *from = line.data(), *const end = from + line.size();
    for (std::size_t column = 0; column <= kPixels; ++column) {
      int value = -1;
      const auto [after, error] = std::from_chars(from, end, value);
      const bool last = column == kPixels;
      if (error != std::errc{} || value < 0 ||
          value > (last ? static_cast<int>(kClasses) - 1 : static_cast<int>(kWhite)) ||
          (!last && (after == end || *after != ',')))
        fail_line(file, number, "'" + std::string(from, end) + "' at column " + std::to_string(column + 1));
      if (last)
        out.classes.push_back(value);
      else
        out.pixels.push_back(value / kWhite);
      from = last ? after : after + 1;
    }
    if (from != end && *from != '\r') fail_line(file, number, "'" + std::string(from, end) + "' after the class");
  }
  if (out.classes.empty()) fail_line(file, 1, "an empty file");
  return out;
}

Text read_text(const fs::path& folder) {
  std::ifstream in = open(folder / kTextFile);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  std::array<std::int64_t, 256> number{};
  for (const char c : text) number[static_cast<unsigned char>(c)] = 1;
  Text out;
  for (std::int64_t& n : number) n = n != 0 ? out.vocabulary++ : -1;
  for (const char c : text) out.tokens.push_back(number[static_cast<unsigned char>(c)]);
  return out;
}

}  // namespace ampcheck::checks::models
