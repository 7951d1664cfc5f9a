// SPDX-License-Identifier: Apache-2.0
// The model that gpu_probe holds a GPU's tensor cores against explains what was captured of H100 and H200: so what
// tools/gpu_check expects of a GPU is known to be right before there is one.
#include <gtest/gtest.h>

#include "tests/support/shared_data.h"
#include "tools/gpu/captures.h"
#include "tools/gpu/fused_dot.h"

namespace ampcheck::gpu {
namespace {

/// Vectors of a capture whose d is not the model's; `with_c` false: as if c were 0.
std::size_t unexplained(const Capture& capture, Unit unit, bool with_c, const DotRule& rule = {}) {
  const Vectors& v = capture.vectors;
  const auto k = static_cast<std::size_t>(extent(v.input));
  std::size_t out = 0;
  for (std::size_t i = 0; i < v.count(); ++i) {
    const std::uint32_t d =
        instruction_dot(v.input, v.output, unit, {&v.a[i * k], k}, {&v.b[i * k], k}, with_c ? v.c[i] : 0, rule);
    out += (v.output == Output::fp16 ? widened(d) : d) != capture.d[i];
  }
  return out;
}

TEST(TensorCoreModel, ExplainsEveryCaptureOfHopperAndANarrowerOneDoesNot) {
  const auto folder = tests::shared_file("tensor_core_captures");
  if (!folder) GTEST_SKIP() << "no tensor_core_captures beside the source tree";
  for (const char* gpu : {"h100_", "h200_"})
    for (const char* name :
         {"fp16_fp32", "fp16_fp16", "bf16_fp32", "tf32_fp32", "e4m3_fp16", "e5m2_fp16", "e4m3_fp32", "e5m2_fp32"}) {
      const Capture capture = read_capture(*folder / (std::string(gpu) + name + ".txt"));
      const bool by_wgmma = std::string_view(name).starts_with("e") && capture.vectors.output == Output::fp32;
      ASSERT_EQ(capture.vectors.count(), 2500u) << gpu << name;
      EXPECT_EQ(unexplained(capture, by_wgmma ? Unit::wgmma : Unit::mma, !by_wgmma), 0u) << gpu << name;
      if (by_wgmma) {
        EXPECT_GT(unexplained(capture, Unit::mma, false), 500u) << gpu << name << ": another instruction";
      } else if (capture.vectors.output == Output::fp32) {
        EXPECT_GT(unexplained(capture, Unit::mma, true, {.fraction = 24}), 50u) << gpu << name << ": one bit less";
      }
    }
}

std::uint32_t dot_of(Input input, Output output, std::vector<std::uint32_t> a, std::vector<std::uint32_t> b,
                     Floor floor) {
  a.resize(static_cast<std::size_t>(extent(input)), 0);
  b.resize(a.size(), 0);
  return instruction_dot(input, output, Unit::mma, a, b, 0, {.floor = floor});
}

/// The vectors by which gpu_probe asks a GPU for the floor of the exponent: the two models answer as its table says.
TEST(TensorCoreModel, TheFloorsDifferOnTheVectorsThatAskForThem) {
  const auto bf16 = [](int exponent) { return static_cast<std::uint32_t>(exponent + 127) << 7; };
  const std::vector<std::uint32_t> eight(8, bf16(-76)), many(16, bf16(-76)), smaller(16, bf16(-77));
  EXPECT_EQ(dot_of(Input::bf16, Output::fp32, eight, eight, Floor::of_output), 1u);
  EXPECT_EQ(dot_of(Input::bf16, Output::fp32, eight, eight, Floor::of_zeros), 0u);
  EXPECT_EQ(dot_of(Input::bf16, Output::fp32, many, smaller, Floor::of_output), 1u);
  EXPECT_EQ(dot_of(Input::bf16, Output::fp32, many, smaller, Floor::of_zeros), 0u);
  const auto fp16 = [](double value) { return dot_detail::encoded(Output::fp16, value); };
  const std::vector<std::uint32_t> a = {fp16(0x1p-12), fp16(0x1p-24)}, b = {fp16(0x1p-13), fp16(0x1p-24)};
  EXPECT_EQ(dot_of(Input::fp16, Output::fp16, a, b, Floor::of_output), 0u);
  EXPECT_EQ(dot_of(Input::fp16, Output::fp16, a, b, Floor::of_zeros), 1u);
  const std::vector<std::uint32_t> x = {fp16(0x1p-12), fp16(0x1p-23)}, y = {fp16(0x1p-13), fp16(0x1p-23)};
  EXPECT_EQ(dot_of(Input::fp16, Output::fp16, x, y, Floor::of_output), 1u);
  EXPECT_EQ(dot_of(Input::fp16, Output::fp16, x, y, Floor::of_zeros), 1u);
}

}  // namespace
}  // namespace ampcheck::gpu
