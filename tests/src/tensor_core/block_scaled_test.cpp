// SPDX-License-Identifier: Apache-2.0
// Products with scales: exact sums whatever the arithmetic is, and what the published model cuts off.
#include "src/tensor_core/block_scaled.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "src/error.h"
#include "src/rounding.h"
#include "src/tensor_core/instruction.h"

namespace ampcheck::tensor_core {
namespace {

using Kind = ScaledInstruction::Kind;
using Codes = std::vector<std::uint32_t>;

std::uint32_t code(const FloatFormat& f, double v) { return static_cast<std::uint32_t>(encode_scalar(f, v)); }
float value(std::uint32_t bits) { return std::bit_cast<float>(bits); }

const ScaledInstruction kMx{}, kNvfp4{.kind = Kind::mxf4nvf4, .a = kE2m1fn, .b = kE2m1fn, .scale = kE4m3fn},
    kMxfp4{.kind = Kind::mxf4nvf4, .a = kE2m1fn, .b = kE2m1fn};

Codes filled(const ScaledInstruction& i, const FloatFormat& f, double v) {
  return Codes(static_cast<std::size_t>(i.k()), code(f, v));
}
Codes scales(const ScaledInstruction& i, double v) {
  return Codes(static_cast<std::size_t>(i.k() / i.scaled_together()), code(i.scale, v));
}

TEST(BlockScaled, ScalesMultiplyWhatIsExact) {
  EXPECT_EQ(value(scaled_dot(kMx, filled(kMx, kE4m3fn, 1.5), filled(kMx, kE4m3fn, 2), scales(kMx, 4), scales(kMx, 0.5),
                             code(kFp32, 1))),
            32 * 3 * 2 + 1);
  EXPECT_EQ(value(scaled_dot(kMxfp4, filled(kMxfp4, kE2m1fn, 6), filled(kMxfp4, kE2m1fn, -0.5), scales(kMxfp4, 8),
                             scales(kMxfp4, 2), 0)),
            -64 * 3 * 16);
  EXPECT_EQ(value(scaled_dot(kNvfp4, filled(kNvfp4, kE2m1fn, 3), filled(kNvfp4, kE2m1fn, 1.5), scales(kNvfp4, 1.125),
                             scales(kNvfp4, 1.25), 0)),
            64 * 4.5f * 1.125f * 1.25f);
}

TEST(BlockScaled, RandomSumsThatFitAreExact) {
  std::mt19937 random(1);
  for (int n = 0; n < 200; ++n) {
    Codes a, b, x, y;
    double exact = 0;
    for (int k = 0; k < 64; ++k) {
      a.push_back(random() % 16);
      b.push_back(random() % 16);
    }
    for (int k = 0; k < 4; ++k) {
      x.push_back(code(kE4m3fn, std::ldexp(1 + static_cast<int>(random() % 8) / 8.0, static_cast<int>(random() % 4))));
      y.push_back(code(kE4m3fn, std::ldexp(1 + static_cast<int>(random() % 8) / 8.0, static_cast<int>(random() % 4))));
    }
    for (std::size_t k = 0; k < 64; ++k)
      exact += decode_scalar(kE2m1fn, a[k]) * decode_scalar(kE2m1fn, b[k]) * decode_scalar(kE4m3fn, x[k / 16]) *
               decode_scalar(kE4m3fn, y[k / 16]);
    EXPECT_EQ(value(scaled_dot(kNvfp4, a, b, x, y, 0)), exact) << "below 24 bits";
  }
}

TEST(BlockScaled, WithScalesOfOneItIsTheUnscaledInstruction) {
  std::mt19937 random(2);
  const Instruction plain{.generation = TensorCore::b200,
                          .a = Input::e4m3,
                          .b = Input::e4m3,
                          .k = 32,
                          .unit = Unit::tcgen05,
                          .floor = Floor::of_zeros};
  int differ = 0;
  for (int n = 0; n < 200; ++n) {
    Codes a, b;
    for (int k = 0; k < 32; ++k) {
      a.push_back(code(kE4m3fn, std::normal_distribution<double>()(random)));
      b.push_back(code(kE4m3fn, std::normal_distribution<double>()(random)));
    }
    const std::uint32_t c = code(kFp32, std::normal_distribution<double>()(random)), want = dot(plain, a, b, c);
    EXPECT_EQ(scaled_dot(kMx, a, b, scales(kMx, 1), scales(kMx, 1), c), want);
    ScaledInstruction shorter = kMx;
    shorter.open_fraction = 13;
    differ += scaled_dot(shorter, a, b, scales(kMx, 1), scales(kMx, 1), c) != want;
  }
  EXPECT_GT(differ, 100) << "F counts";
}

TEST(BlockScaled, WhatIsNotFiniteAndWhatIsNoInstruction) {
  Codes bad = scales(kMx, 1);
  bad[0] = 0xff;
  const Codes one = filled(kMx, kE4m3fn, 1);
  EXPECT_EQ(scaled_dot(kMx, one, one, bad, scales(kMx, 1), 0), 0x7fffffffu);
  EXPECT_EQ(scaled_dot(kMx, one, one, scales(kMx, 1), scales(kMx, 1), 0x7f800000u), 0x7f800000u);
  Codes nan = one;
  nan[3] = 0x7f;
  EXPECT_EQ(scaled_dot(kMx, nan, one, scales(kMx, 1), scales(kMx, 1), 0), 0x7fffffffu);
  EXPECT_THROW(scaled_dot(kMx, Codes(31), one, scales(kMx, 1), scales(kMx, 1), 0), Error);
  ScaledInstruction wrong = kNvfp4;
  wrong.a = kE4m3fn;
  EXPECT_THROW(scaled_dot(wrong, Codes(64), Codes(64), Codes(4), Codes(4), 0), Error);
}

}  // namespace
}  // namespace ampcheck::tensor_core
