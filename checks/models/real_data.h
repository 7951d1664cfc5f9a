// SPDX-License-Identifier: Apache-2.0
// The data that the small nets are trained on, and where it lies.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace ampcheck::checks::models {

/// 8x8 grey images, row-major, 0 to 1, and their classes 0 to 9.
struct Digits {
  std::vector<double> pixels;  ///< 64 an image
  std::vector<double> classes;
};

/// Text as numbers of its characters in the order of their codes.
struct Text {
  std::vector<std::int64_t> tokens;
  std::int64_t vocabulary = 0;
};

/// Files of the real runs. Read by read_digits() and read_text().
inline constexpr const char* kDigitsFile = "digits.csv";
inline constexpr const char* kTextFile = "text_gpl3.txt";

/// The folder that holds both files. `chosen` (from --data) alone is looked at if given, else $AMPCHECK_DATA alone if
/// set, else ../share/ampcheck/data beside the program's folder, then tests/data of the source tree. EnvironmentError
/// that names the places if the files are in none of them.
std::filesystem::path find_data(const std::string& chosen);

/// Error with file and line for what is not such a file.
Digits read_digits(const std::filesystem::path& folder);
Text read_text(const std::filesystem::path& folder);

}  // namespace ampcheck::checks::models
