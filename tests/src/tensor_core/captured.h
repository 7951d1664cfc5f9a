// SPDX-License-Identifier: Apache-2.0
// The captured instructions (shared/tensor_core_captures), with the instruction that each file is of.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "src/error.h"
#include "src/tensor_core/vectors.h"
#include "tests/support/shared_data.h"

namespace ampcheck::tensor_core {

struct Captured {
  std::string name;  ///< "h100_fp16_fp32"
  Vectors vectors;
  Instruction instruction;
  bool with_c = true;

  std::uint32_t c_of(const Vector& v) const { return with_c ? from_fp32(instruction.output, v.c) : 0; }
};

/// How the file's instruction was captured: Hopper's of 8 bits to fp32 by wgmma, with c = 0 whatever the line says.
inline Captured captured(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  Captured out;
  out.name = file.stem().string();
  out.vectors = read_vectors(text.str(), file.string());
  Accumulator accumulator;
  if (!find_accumulator("tensor_core(" + out.name.substr(0, out.name.find('_')) + ")", accumulator))
    throw Error("no tensor cores of " + out.name);
  const Input type = out.vectors.a.value();
  out.instruction = {.generation = accumulator.core,
                     .a = type,
                     .b = type,
                     .output = out.vectors.output.value(),
                     .k = static_cast<int>(out.vectors.all.at(0).a.size())};
  if (accumulator.core == TensorCore::h100 && out.instruction.output == Output::fp32 &&
      (type == Input::e4m3 || type == Input::e5m2)) {
    out.instruction.unit = Unit::wgmma;
    out.with_c = false;
  }
  return out;
}

/// Sorted; none where the folder is missing.
inline std::vector<std::filesystem::path> captured_files() {
  std::vector<std::filesystem::path> out;
  const auto folder = tests::shared_file("tensor_core_captures");
  if (!folder) return out;
  for (const auto& entry : std::filesystem::directory_iterator(*folder))
    if (entry.path().extension() == ".txt") out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace ampcheck::tensor_core
