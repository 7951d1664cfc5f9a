// SPDX-License-Identifier: Apache-2.0
// Finds fused multiply-adds in the PTX of a CUDA source that the source did not write: with line information every
// instruction names the line it came from, and the only line that writes one is the body of math::fma.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"

namespace ampcheck::ptx {

struct Fusions {
  int written = 0;
  std::vector<std::string> unwritten;  ///< "file:line: instruction"
};

inline std::string line_of(const std::string& file, int number) {
  std::ifstream in(file);
  std::string line;
  for (int i = 0; i < number && std::getline(in, line); ++i) continue;
  return line;
}

inline Fusions fusions(const std::string& ptx) {
  static const std::regex kFile("^\\s*\\.file\\s+(\\d+)\\s+\"([^\"]*)\""), kLoc("^\\s*\\.loc\\s+(\\d+)\\s+(\\d+)");
  static const std::regex kFused("^\\s*(@\\S+\\s+)?(fma|mad)\\.\\S*f(16|32|64)");
  std::map<int, std::string> files;
  std::vector<std::pair<std::pair<int, int>, std::string>> found;  // ((file, line), instruction)
  std::pair<int, int> at{0, 0};
  std::istringstream in(ptx);
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (std::regex_search(line, match, kLoc))
      at = {std::stoi(match[1]), std::stoi(match[2])};
    else if (std::regex_search(line, match, kFused))
      found.emplace_back(at, line);
    else if (std::regex_search(line, match, kFile))
      files[std::stoi(match[1])] = match[2];
  }
  Fusions result;
  for (const auto& [place, instruction] : found) {
    const std::string& file = files[place.first];
    if (line_of(file, place.second).find("__fmaf_rn(") != std::string::npos)
      ++result.written;
    else
      result.unwritten.push_back(file + ":" + std::to_string(place.second) + ": " + instruction);
  }
  return result;
}

/// PTX of a source with our flags, or with `extra` after them; empty if nvcc fails.
inline std::string compile(const std::string& source, const std::string& extra = "") {
  const std::filesystem::path out =
      std::filesystem::path(testing::TempDir()) / (std::filesystem::path(source).stem().string() + ".ptx");
  const std::string command = tests::nvcc() +
                              " -std=c++20 -O3 -lineinfo --fmad=false --expt-relaxed-constexpr --extended-lambda"
                              " -Wno-deprecated-gpu-targets -I" +
                              tests::in_source(" -I") + tests::in_build("/generated") + " -ptx " + extra + " " +
                              source + " -o " + out.string();
  if (std::system(command.c_str()) != 0) return "";
  std::ostringstream text;
  text << std::ifstream(out).rdbuf();
  std::filesystem::remove(out);
  return text.str();
}

inline bool has_nvcc() { return !tests::nvcc().empty(); }

/// Every fused multiply-add of kernels/<name>.cu is one that the source wrote.
inline void expect_only_written_fma(const std::string& name) {
  const std::string ptx = compile(tests::in_source("/kernels/") + name + ".cu");
  ASSERT_NE(ptx.find(".entry "), std::string::npos) << name << ".cu has no kernel in its PTX";
  const Fusions found = fusions(ptx);
  for (const std::string& where : found.unwritten) ADD_FAILURE() << name << ": an fma nobody wrote at " << where;
}

}  // namespace ampcheck::ptx
