// SPDX-License-Identifier: Apache-2.0
// Whole products: every fast way against the reference, to the bit, and against faults that it must see.
#include "src/tensor_core/multiply.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "src/rounding.h"
#include "tests/src/tensor_core/captured.h"

namespace ampcheck::tensor_core {
namespace {

enum class Data { usual, spread, one_sided, bits };

struct Operands {
  std::int64_t m = 5, n = 37, k = 99;  // none a multiple of anything
  std::vector<std::uint32_t> a, b;
  std::vector<float> c;
  Codes a_codes() const { return {a.data(), 4, m, k, k, 1}; }
  Codes b_codes() const { return {b.data(), 4, k, n, n, 1}; }
};

std::uint32_t number(Input type, Data data, std::mt19937& random) {
  const std::uint32_t any = static_cast<std::uint32_t>(random());
  if (data == Data::bits) return random() % 3 == 0 ? any : 0;  // infinities, NaN and subnormals among them
  double value = std::normal_distribution<double>()(random);
  if (data == Data::one_sided) value = std::fabs(value);
  if (data == Data::spread) value = any % 8 == 0 ? 0 : std::ldexp(value, static_cast<int>(any % 21) - 10);
  return static_cast<std::uint32_t>(encode_scalar(type == Input::tf32 ? kFp32 : format_of(type), value));
}

Operands operands(const Instruction& i, Data data, unsigned seed) {
  std::mt19937 random(seed);
  Operands out;
  out.a.resize(static_cast<std::size_t>(out.m * out.k));
  out.b.resize(static_cast<std::size_t>(out.k * out.n));
  out.c.resize(static_cast<std::size_t>(out.m * out.n));
  for (std::uint32_t& each : out.a) each = number(i.a, data, random);
  for (std::uint32_t& each : out.b) each = number(i.b, data, random);
  for (float& each : out.c) {
    std::uint32_t code = number(Input::tf32, data, random);
    if (i.output == Output::fp16) code = to_fp32(Output::fp16, from_fp32(Output::fp16, code));
    each = std::bit_cast<float>(code);
  }
  return out;
}

std::vector<float> product(const Product& p, const Operands& o, Path path) {
  std::vector<float> out(o.c.size());
  multiply(p, o.a_codes(), o.b_codes(), o.c.data(), out.data(), path);
  return out;
}

std::size_t differences(const std::vector<float>& x, const std::vector<float>& y) {
  std::size_t out = 0;
  for (std::size_t i = 0; i < x.size(); ++i) out += std::memcmp(&x[i], &y[i], sizeof(float)) != 0;
  return out;
}

/// Every instruction that some generation has.
std::vector<Instruction> all_instructions() {
  std::vector<Instruction> out;
  using enum TensorCore;
  for (const TensorCore core : {v100, turing, a100, ada, h100, b200})
    for (const Input type : {Input::fp16, Input::bf16, Input::tf32, Input::e4m3, Input::e5m2})
      for (const Output output : {Output::fp32, Output::fp16})
        for (const Unit unit : {Unit::mma, Unit::wgmma, Unit::tcgen05})
          for (const Floor floor : {Floor::of_output, Floor::of_zeros})
            for (const int k : {4, 8, 16, 32}) {
              const Instruction i{core, type, type, output, k, unit, floor};
              if (lacking(i).empty()) out.push_back(i);
            }
  return out;
}

TEST(TensorCoreMultiply, EveryFastWayGivesTheBitsOfTheReference) {
  const std::vector<Instruction> all = all_instructions();
  ASSERT_GT(all.size(), 100u);
  constexpr Data kData[] = {Data::usual, Data::spread, Data::one_sided, Data::bits};
  unsigned seed = 0;
  for (const Instruction& i : all) {
    const Data data = kData[seed % 4];
    const Operands o = operands(i, data, ++seed);
    const Product p{i, {.split = seed % 3 == 0 ? 2 : 1, .promote = seed % 5 == 0 ? 3 : 0}};
    const std::vector<float> want = product(p, o, Path::reference);
    for (const Path path : paths()) {
      if (path == Path::reference) continue;
      EXPECT_EQ(differences(product(p, o, path), want), 0u)
          << name(path) << ": " << name(i.unit) << " " << name(i.a) << " " << name(i.output) << " k=" << i.k << " on "
          << name(Accumulator(i.generation)) << ", data " << static_cast<int>(data);
    }
  }
}

/// The comparison above sees what may go wrong: one bit of fraction, one block, one order, one rounding, one element.
TEST(TensorCoreMultiply, TheBitsTellOneRuleFromAnother) {
  const Instruction hopper{.generation = TensorCore::h100};
  const Operands o = operands(hopper, Data::one_sided, 1);
  const std::vector<float> right = product({hopper, {}}, o, Path::best);
  const auto changed = [&](TensorCore core, int k, Order order) {
    Instruction other = hopper;
    other.generation = core;
    other.k = k;
    return differences(product({other, order}, o, Path::best), right);
  };
  EXPECT_EQ(changed(TensorCore::b200, 16, {}), 0u) << "the same cores";
  EXPECT_GT(changed(TensorCore::a100, 16, {}), 20u);
  EXPECT_GT(changed(TensorCore::v100, 16, {}), 20u);
  EXPECT_GT(changed(TensorCore::h100, 8, {}), 20u);
  EXPECT_GT(changed(TensorCore::h100, 16, {.split = 2}), 20u);
  EXPECT_GT(changed(TensorCore::h100, 16, {.promote = 2}), 20u);
  Operands other = o;
  other.a[98] ^= 0x200;  // the last of the first row
  EXPECT_GT(differences(product({hopper, {}}, other, Path::best), right), 30u) << "of 37";
}

TEST(TensorCoreMultiply, GivesTheBitsOfCaptures) {
  if (captured_files().empty()) GTEST_SKIP() << "tensor_core_captures is not on this machine (AMPCHECK_SHARED)";
  for (const auto& file : captured_files()) {
    const Captured capture = captured(file);
    const auto k = static_cast<std::int64_t>(capture.instruction.k);
    for (std::size_t at = 0; at < capture.vectors.all.size(); at += 100) {
      const Vector& v = capture.vectors.all[at];
      const float c = std::bit_cast<float>(to_fp32(capture.instruction.output, capture.c_of(v)));
      float d = 0;
      multiply({capture.instruction, {}}, {v.a.data(), 4, 1, k, k, 1}, {v.b.data(), 4, k, 1, 1, 1}, &c, &d);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(d), v.d.value()) << capture.name << ":" << v.line;
    }
  }
}

TEST(TensorCoreMultiply, HopperLosesOnOneSidedDataInEightBits) {
  // wgmma keeps 13 bits: the sum of 4096 positive products comes out small; promoted every four instructions it does
  // not.
  const Instruction e4m3{
      .generation = TensorCore::h100, .a = Input::e4m3, .b = Input::e4m3, .k = 32, .unit = Unit::wgmma};
  std::mt19937 random(3);
  std::uniform_real_distribution<double> positive(0, 1);
  const std::int64_t k = 4096;
  std::vector<std::uint8_t> a(k), b(k);
  double exact = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<std::uint8_t>(encode_scalar(kE4m3fn, positive(random)));
    b[i] = static_cast<std::uint8_t>(encode_scalar(kE4m3fn, positive(random)));
    exact += decode_scalar(kE4m3fn, a[i]) * decode_scalar(kE4m3fn, b[i]);
  }
  const auto error = [&](Order order) {
    float d = 0;
    multiply({e4m3, order}, {a.data(), 1, 1, k, k, 1}, {b.data(), 1, k, 1, 1, 1}, nullptr, &d);
    return d / exact - 1;
  };
  EXPECT_LT(error({}), -0.03);
  EXPECT_LT(std::fabs(error({.promote = 4})), 0.002);
}

TEST(TensorCoreMultiply, OrdersAreAsDeclared) {
  const Product p{{.generation = TensorCore::h100}, {.split = 3, .promote = 2}};
  std::string text;
  for (const Segment& s : segments(p, 16 * 8 - 5))  // eight instructions
    text += std::to_string(s.run) + ":" + std::to_string(s.begin) + "-" + std::to_string(s.end) + " ";
  EXPECT_EQ(text, "0:0-2 0:2-3 1:3-5 1:5-6 2:6-8 ");
  EXPECT_TRUE(segments(p, 0).empty());
  float d = 1, c = 5;
  multiply(p, {nullptr, 2, 1, 0, 0, 1}, {nullptr, 2, 0, 1, 1, 1}, &c, &d);
  EXPECT_EQ(d, 5) << "nothing is added to c";
  EXPECT_THROW(multiply(p, {nullptr, 2, 1, 3, 3, 1}, {nullptr, 2, 2, 1, 1, 1}, nullptr, &d), Error);
}

}  // namespace
}  // namespace ampcheck::tensor_core
