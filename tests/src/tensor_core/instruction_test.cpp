// SPDX-License-Identifier: Apache-2.0
// The integer model of tensor cores: against every captured instruction, against changed rules, which the captures must
// refute, and on what no capture has.
#include "src/tensor_core/instruction.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>

#include "src/rounding.h"
#include "src/tensor_core/product.h"
#include "tests/src/tensor_core/captured.h"

namespace ampcheck::tensor_core {
namespace {

constexpr const char* kNoCaptures = "tensor_core_captures is not on this machine (AMPCHECK_SHARED)";

std::size_t mismatches(const Captured& capture, const Instruction& instruction) {
  std::size_t out = 0;
  for (const Vector& v : capture.vectors.all)
    out += to_fp32(instruction.output, dot(instruction, v.a, v.b, capture.c_of(v))) != v.d.value();
  return out;
}

TEST(TensorCoreInstruction, GivesTheBitsOfEveryCapture) {
  if (captured_files().empty()) GTEST_SKIP() << kNoCaptures;
  for (const auto& file : captured_files()) {
    const Captured capture = captured(file);
    ASSERT_GT(capture.vectors.all.size(), 1000u) << capture.name;
    EXPECT_EQ(mismatches(capture, capture.instruction), 0u) << capture.name;
  }
}

/// Vectors of a capture of one block whose d a changed rule does not give.
std::size_t refuted(const char* name, const std::function<void(Rule&)>& change) {
  const Captured capture = captured(*tests::shared_file("tensor_core_captures") / (std::string(name) + ".txt"));
  const Instruction& i = capture.instruction;
  Rule rule = rule_of(i);
  change(rule);
  const auto step = static_cast<std::size_t>(rule.products);
  std::size_t out = 0;
  for (const Vector& v : capture.vectors.all) {
    std::uint32_t d = capture.c_of(v);
    for (std::size_t k = 0; k < v.a.size(); k += step) {
      const std::size_t n = std::min(step, v.a.size() - k);
      d = block(rule, i.a, i.b, i.output, std::span(v.a).subspan(k, n), std::span(v.b).subspan(k, n), d);
    }
    out += to_fp32(i.output, d) != v.d.value();
  }
  return out;
}

TEST(TensorCoreInstruction, TheCapturesRefuteEveryChangedRule) {
  if (captured_files().empty()) GTEST_SKIP() << kNoCaptures;
  for (const char* name : {"v100_fp16_fp32", "a100_fp16_fp32", "a100_bf16_fp32", "a100_tf32_fp32", "ada_e4m3_fp32",
                           "h100_fp16_fp32", "h200_bf16_fp32", "b200_fp16_fp32", "h100_e5m2_fp32"}) {
    EXPECT_EQ(refuted(name, [](Rule&) {}), 0u) << name;
    EXPECT_GT(refuted(name, [](Rule& r) { --r.fraction; }), 20u) << name << ": one bit less";
    EXPECT_GT(refuted(name, [](Rule& r) { ++r.fraction; }), 20u) << name << ": one bit more";
    EXPECT_GT(refuted(name, [](Rule& r) { r.products /= 2; }), 20u) << name << ": half the block";
    EXPECT_GT(refuted(name,
                      [](Rule& r) {
                        r.result = r.result == Rule::Result::truncated ? Rule::Result::truncated_13_bits
                                                                       : Rule::Result::truncated;
                      }),
              20u)
        << name << ": another result";
  }
  const Captured ada = captured(*tests::shared_file("tensor_core_captures") / "ada_fp16_fp32.txt");
  Instruction other = ada.instruction;
  other.generation = TensorCore::h100;
  EXPECT_GT(mismatches(ada, other), 20u) << "another generation";
}

std::uint32_t code(Input type, double value) {
  return static_cast<std::uint32_t>(encode_scalar(type == Input::tf32 ? kFp32 : format_of(type), value));
}

std::uint32_t one(Instruction i, const std::vector<std::pair<double, double>>& products, double c = 0) {
  std::vector<std::uint32_t> a(static_cast<std::size_t>(i.k), 0), b(a);
  for (std::size_t k = 0; k < products.size(); ++k) {
    a[k] = code(i.a, products[k].first);
    b[k] = code(i.b, products[k].second);
  }
  return dot(i, a, b, static_cast<std::uint32_t>(encode_scalar(format_of(i.output), c)));
}

constexpr Instruction kHopper{.generation = TensorCore::h100};
std::uint32_t bits(float v) { return std::bit_cast<std::uint32_t>(v); }

TEST(TensorCoreInstruction, WhatIsNotFiniteFollowsIeee) {
  const double inf = INFINITY;
  EXPECT_EQ(one(kHopper, {{inf, 1}}), 0x7f800000u);
  EXPECT_EQ(one(kHopper, {{inf, -1}}), 0xff800000u);
  EXPECT_EQ(one(kHopper, {{inf, 0}}), 0x7fffffffu);
  EXPECT_EQ(one(kHopper, {{inf, 1}, {-inf, 1}}), 0x7fffffffu);
  EXPECT_EQ(one(kHopper, {{NAN, 1}}), 0x7fffffffu);
  EXPECT_EQ(one(kHopper, {{1, 1}}, -inf), 0xff800000u);
  EXPECT_EQ(one(kHopper, {{1, 1}}, NAN), 0x7fffffffu);
  Instruction to_fp16 = kHopper;
  to_fp16.output = Output::fp16;
  EXPECT_EQ(one(to_fp16, {{NAN, 1}}), 0x7fffu);
  EXPECT_EQ(one(to_fp16, {{65504, 1}, {16, 1}}), 0x7c00u) << "overflow of fp16";
  EXPECT_EQ(one(to_fp16, {{65504, 1}, {15, 1}}), 0x7bffu);
  Instruction bf16 = kHopper;
  bf16.a = bf16.b = Input::bf16;
  EXPECT_EQ(one(bf16, {{0x1p127, 2}}), 0x7f800000u) << "overflow of fp32";
  Instruction e4m3{.generation = TensorCore::ada, .a = Input::e4m3, .b = Input::e4m3, .k = 32};
  EXPECT_EQ(one(e4m3, {{NAN, 1}}), 0x7fffffffu) << "its only NaN";
  EXPECT_EQ(one(e4m3, {{448, 448}}), bits(448.0f * 448)) << "no infinity";
  e4m3.b = Input::e5m2;
  EXPECT_EQ(one(e4m3, {{448, inf}}), 0x7f800000u);
}

TEST(TensorCoreInstruction, ZerosSubnormalsAndLowBits) {
  EXPECT_EQ(one(kHopper, {{1, 1}, {-1, 1}}), 0u);
  EXPECT_EQ(one(kHopper, {{-1, 0}}, -0.0), 0u) << "a zero is +0";
  EXPECT_EQ(one(kHopper, {{0x1p-24, 0x1p-24}}), bits(0x1p-48f)) << "subnormal factors count";
  EXPECT_EQ(one(kHopper, {{1, 1}, {0x1p-12, 0x1p-13}}), bits(1)) << "2^-25 stands, and fp32 cuts it off";
  EXPECT_EQ(one(kHopper, {{1, 1}, {-0x1p-12, 0x1p-13}}), bits(1 - 0x1p-24f)) << "2^-25 below 1 stands";
  EXPECT_EQ(one(kHopper, {{1, 1}, {-0x1p-13, 0x1p-13}}), bits(1)) << "2^-26 is cut off";
  Instruction tf32{.generation = TensorCore::a100, .a = Input::tf32, .b = Input::tf32, .k = 8};
  EXPECT_EQ(one(tf32, {{1 + 0x1p-10 + 0x1p-11, 1}}), bits(1 + 0x1p-10f)) << "low bits of tf32 are not read";
  // wgmma keeps 13 bits of c as well; mma adds c outside.
  Instruction e4m3{.generation = TensorCore::h100, .a = Input::e4m3, .b = Input::e4m3, .k = 32, .unit = Unit::wgmma};
  EXPECT_EQ(one(e4m3, {{1, 1}}, 1 + 0x1p-13), bits(2)) << "13 bits";
  e4m3.unit = Unit::mma;
  EXPECT_EQ(one(e4m3, {{1, 1}}, 1 + 0x1p-13), bits(2 + 0x1p-13f));
}

TEST(TensorCoreInstruction, TheFloorsDifferWhereTheModelsDo) {
  const auto by = [](Input input, Output output, TensorCore core, Floor floor, int k,
                     const std::vector<std::pair<double, double>>& products) {
    return one({.generation = core, .a = input, .b = input, .output = output, .k = k, .floor = floor}, products);
  };
  const std::vector<std::pair<double, double>> eight(8, {0x1p-76, 0x1p-76}), sixteen(16, {0x1p-76, 0x1p-77});
  constexpr Input bf16 = Input::bf16;
  constexpr Output fp32 = Output::fp32;
  EXPECT_EQ(by(bf16, fp32, TensorCore::h100, Floor::of_output, 16, eight), 1u);
  EXPECT_EQ(by(bf16, fp32, TensorCore::h100, Floor::of_zeros, 16, eight), 0u);
  EXPECT_EQ(by(bf16, fp32, TensorCore::h100, Floor::of_output, 16, sixteen), 1u);
  EXPECT_EQ(by(bf16, fp32, TensorCore::h100, Floor::of_zeros, 16, sixteen), 0u);
  EXPECT_EQ(by(bf16, fp32, TensorCore::a100, Floor::of_output, 8, eight), 1u);
  EXPECT_EQ(by(bf16, fp32, TensorCore::a100, Floor::of_zeros, 8, eight), 0u);
  const std::vector<std::pair<double, double>> tiny = {{0x1p-12, 0x1p-13}, {0x1p-24, 0x1p-24}},
                                               control = {{0x1p-12, 0x1p-13}, {0x1p-23, 0x1p-23}};
  const auto fp16_of = [&](Floor floor, const auto& products) {
    return by(Input::fp16, Output::fp16, TensorCore::h100, floor, 16, products);
  };
  EXPECT_EQ(fp16_of(Floor::of_output, tiny), 0u);
  EXPECT_EQ(fp16_of(Floor::of_zeros, tiny), 1u);
  EXPECT_EQ(fp16_of(Floor::of_output, control), 1u);
  EXPECT_EQ(fp16_of(Floor::of_zeros, control), 1u);
}

TEST(TensorCoreInstruction, SaysWhatAGenerationLacks) {
  const auto why = [](Instruction i) { return lacking(i); };
  EXPECT_EQ(why(kHopper), "");
  EXPECT_EQ(why({.generation = TensorCore::v100, .a = Input::bf16, .b = Input::bf16}),
            "got mma of 16 products, bf16 to fp32, on tensor_core(v100), want fp16: it has no bf16");
  EXPECT_NE(why({.generation = TensorCore::a100, .a = Input::e4m3, .b = Input::e4m3, .k = 32}), "");
  EXPECT_NE(why({.generation = TensorCore::a100, .unit = Unit::wgmma}), "");
  EXPECT_NE(why({.generation = TensorCore::any}), "");
  EXPECT_NE(why({.generation = TensorCore::h100, .a = Input::fp16, .b = Input::bf16}), "");
  EXPECT_NE(why({.generation = TensorCore::h100, .k = 12}), "");
  EXPECT_THROW(rule_of({.generation = TensorCore::none}), Error);
  EXPECT_THROW(dot(kHopper, std::vector<std::uint32_t>(8), std::vector<std::uint32_t>(8), 0), Error);
}

TEST(TensorCoreVectors, SayWhatIsWrongAndWhere) {
  const auto fault = [](const char* text) -> std::string {
    try {
      read_vectors(text, "v.txt");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(fault("# in=fp16 out=fp32\n3c00 | 3c00 | 0 | 3f800000\n\n0x3c00|3c00|0\r\n"), "");
  EXPECT_EQ(fault("3c00 | 3c0z | 0\n"), "[vectors] v.txt:1: got '3c0z', want a number in hex, of 32 bits at most");
  EXPECT_NE(fault("3c00 | 3c00 3c00 | 0\n").find("v.txt:1: got 1 numbers of a and 2 of b"), std::string::npos);
  EXPECT_NE(fault("\n3c00 | 3c00\n").find("v.txt:2: got 2 fields"), std::string::npos);
  EXPECT_NE(fault("3c00 | 3c00 | 0 1\n").find("got 2 numbers of c"), std::string::npos);
  EXPECT_NE(fault("3c00 | 3c00 | 123456789\n").find("'123456789'"), std::string::npos);
  EXPECT_NE(fault("# in=fp17\n").find("'fp17'"), std::string::npos);
}

}  // namespace
}  // namespace ampcheck::tensor_core
