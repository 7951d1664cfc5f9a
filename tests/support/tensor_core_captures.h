// SPDX-License-Identifier: Apache-2.0
// What real tensor cores computed: one file a GPU, input type and output type, captured by F. A. Khattak and M.
// Mikaitis (github: north-numerical-computing/MATLAB-tensor-core). They stay outside of the project.
#pragma once

#include <bit>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "src/accumulator.h"
#include "src/error.h"
#include "src/rounding.h"
#include "tests/support/shared_data.h"
#include "tests/support/tensor_core_model.h"

namespace ampcheck::tests {

/// D = c + sum of products, as the GPU computed it.
struct Captured {
  std::vector<Factors> products;
  double c = 0, d = 0;
};

struct CaptureFile {
  std::string name;  ///< "h100_fp16_fp32"
  std::string gpu, in, out;
  std::vector<Captured> lines;

  bool is_fp8() const { return in == "e4m3" || in == "e5m2"; }
  /// Hopper's wgmma of fp8 was captured with c = 0 whatever the line says.
  bool without_c() const { return is_fp8() && out == "fp32" && (gpu == "h100" || gpu == "h200"); }
  Dtype operand() const {
    return in == "fp16"   ? Dtype::fp16
           : in == "bf16" ? Dtype::bf16
           : in == "e4m3" ? Dtype::e4m3fn
           : in == "e5m2" ? Dtype::e5m2
                          : Dtype::fp32;
  }
  const FloatFormat& operand_format() const { return in == "tf32" ? kTf32 : format(operand()); }
  Accumulator accumulator() const {
    Accumulator found;
    if (!find_accumulator("tensor_core(" + gpu + ")", found)) throw Error("no tensor cores of " + gpu);
    return found;
  }
  /// What the instruction computes.
  double model(const Captured& line) const {
    using enum CoreModel::Result;
    const bool hopper = gpu == "h100" || gpu == "h200" || gpu == "b200", tf32 = in == "tf32";
    CoreModel core;
    if (gpu == "v100") core = {4, 23};
    if (gpu == "a100" || gpu == "ada") core = {tf32 ? 4 : 8, 24};
    if (hopper) core = {tf32 ? 8 : 16, 25};
    if (gpu == "ada" && is_fp8()) core = {16, 13, truncated_13_bits};
    if (without_c()) core = {32, 13, truncated_13_bits};
    if (out == "fp16") core.result = nearest_fp16;
    if (hopper && is_fp8() && !without_c()) return two_blocks_of_fp8(core, line.products, line.c);
    return chain(core, operand_format(), operand_format(), line.products, line.c);
  }
};

inline double decoded(const FloatFormat& format, unsigned long code) {
  double out = 0;
  decode(format, &code, std::span<double>(&out, 1));  // little-endian: the code's low bytes
  return out;
}

/// Every `every`-th line of a file.
inline CaptureFile read_captures(const std::filesystem::path& path, int every) {
  CaptureFile out;
  out.name = path.stem().string();
  std::istringstream parts(out.name);
  std::getline(parts, out.gpu, '_');
  std::getline(parts, out.in, '_');
  std::getline(parts, out.out, '_');
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);  // a heading
  for (int number = 0; std::getline(file, line); ++number) {
    if (number % every != 0) continue;
    std::istringstream words(line);
    std::vector<double> fields[4];
    int field = 0;
    for (std::string word; words >> word;) {
      if (word == "|") {
        ++field;
        continue;
      }
      const auto code = std::stoul(word, nullptr, 16);
      const bool fp32 = field > 1 || out.in == "tf32";
      fields[field].push_back(fp32 ? static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(code)))
                                   : decoded(out.operand_format(), code));
    }
    Captured captured{{}, fields[2].at(0), fields[3].at(0)};
    for (std::size_t k = 0; k < fields[0].size(); ++k) captured.products.push_back({fields[0][k], fields[1].at(k)});
    if (out.out == "fp16") captured.c = nearest(kFp16, captured.c);
    if (out.without_c()) captured.c = 0;
    out.lines.push_back(std::move(captured));
  }
  return out;
}

/// The files that are there, sorted; none where the folder is missing.
inline std::vector<std::filesystem::path> capture_files() {
  std::vector<std::filesystem::path> out;
  const auto folder = shared_file("tensor_core_captures");
  if (!folder) return out;
  for (const auto& entry : std::filesystem::directory_iterator(*folder))
    if (entry.path().extension() == ".txt") out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace ampcheck::tests
