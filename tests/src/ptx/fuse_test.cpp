// SPDX-License-Identifier: Apache-2.0
// mul and add without rounding, as two operations and as one.
#include <gtest/gtest.h>

#include <cmath>

#include "src/ptx/fuse.h"
#include "src/ptx/rounded.h"
#include "tests/src/ptx/machine_for_tests.h"

namespace ampcheck::ptx {
namespace {

Ran ran(const std::string& body, bool fuse) {
  std::vector<std::uint32_t> a(64);
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i] = std::bit_cast<std::uint32_t>(1.0f + 0x1p-13f * static_cast<float>(3 * i + 1));
  Shape shape;
  shape.fuse = fuse;
  return run_text(kernel_text("ld.global.f32 %f0, [%pa];\nmov.f32 %f9, 0f00000000;\n" + body), a, 64, shape);
}

float x_of(std::size_t i) { return 1.0f + 0x1p-13f * static_cast<float>(3 * i + 1); }

/// x^2 - 1 loses what the product rounded, unless it is one operation.
TEST(Fuse, ASumOfAProductIsRoundedOnce) {
  const std::string store = "st.global.f32 [%pb], %f9;\n";
  struct Way {
    const char *text, *one;
    float (*fused)(float);
  };
  const Way ways[] = {
      {"mul.f32 %f1, %f0, %f0;\nadd.f32 %f9, %f1, 0fBF800000;\n", "add", [](float x) { return std::fma(x, x, -1.0f); }},
      {"mul.f32 %f1, %f0, %f0;\nadd.f32 %f9, 0fBF800000, %f1;\n", "add", [](float x) { return std::fma(x, x, -1.0f); }},
      {"mul.f32 %f1, %f0, %f0;\nsub.f32 %f9, %f1, 0f3F800000;\n", "sub", [](float x) { return std::fma(x, x, -1.0f); }},
      {"mul.f32 %f1, %f0, %f0;\nsub.f32 %f9, 0f3F800000, %f1;\n", "sub",
       [](float x) { return std::fma(-x, x, 1.0f); }}};
  for (const Way& way : ways) {
    SCOPED_TRACE(way.text);
    const Ran two = ran(way.text + store, false), one = ran(way.text + store, true);
    int other = 0;
    for (std::size_t i = 0; i < 64; ++i) {
      const float x = x_of(i), square = x * x;
      EXPECT_EQ(one.f(i), way.fused(x)) << i;
      EXPECT_EQ(std::fabs(two.f(i)), std::fabs(square - 1.0f)) << i;
      other += one.f(i) != two.f(i);
    }
    EXPECT_GT(other, 32);
  }
}

TEST(Fuse, HalvesAreFusedAloneAndInPairs) {
  const std::string
      halves =
          "cvt.rn.f16.f32 %h0, %f0;\ncvt.rn.f16.f32 %h1, 0fBF800000;\nmov.b32 %r0, {%h0, %h0};\nmov.b32 "
          "%r1, {%h1, %h1};\n",
      single =
          "mul.f16 %h2, %h0, %h0;\nadd.f16 %h3, %h2, %h1;\ncvt.f32.f16 %f9, %h3;\nst.global.f32 [%pb], "
          "%f9;\n",
      pair =
          "mul.f16x2 %r2, %r0, %r0;\nadd.f16x2 %r3, %r2, %r1;\nmov.b32 {%h3, %h4}, %r3;\ncvt.f32.f16 %f9, "
          "%h4;\nst.global.f32 [%pb], %f9;\n";
  for (const std::string& body : {single, pair}) {
    const Ran one = ran(halves + body, true), two = ran(halves + body, false);
    int other = 0;
    for (std::size_t i = 0; i < 64; ++i) {
      const Half x = narrowed(x_of(i), Half{}), minus = narrowed(-1.0f, Half{});
      EXPECT_EQ(one.f(i), widened(fused(x, x, minus))) << i;
      other += one.f(i) != two.f(i);
    }
    EXPECT_GT(other, 0);
  }
}

/// What says how it rounds stays as it is, and so does a product that is another number by then.
TEST(Fuse, LeavesWhatIsRoundedOrChanged) {
  const char* const left[] = {"mul.rn.f32 %f1, %f0, %f0;\nadd.f32 %f9, %f1, 0fBF800000;\n",
                              "mul.f32 %f1, %f0, %f0;\nadd.rn.f32 %f9, %f1, 0fBF800000;\n",
                              "mul.f32 %f1, %f0, %f0;\nmov.f32 %f0, 0f00000000;\nadd.f32 %f9, %f1, 0fBF800000;\n",
                              "mul.f32 %f1, %f0, %f0;\nnext:\nadd.f32 %f9, %f1, 0fBF800000;\n",
                              "mul.f32 %f0, %f0, %f0;\nadd.f32 %f9, %f0, 0fBF800000;\n",
                              "mul.ftz.f32 %f1, %f0, %f0;\nadd.f32 %f9, %f1, 0fBF800000;\n"};
  for (const char* const body : left) {
    const std::string text = std::string(body) + "st.global.f32 [%pb], %f9;\n";
    EXPECT_EQ(ran(text, true).b, ran(text, false).b) << body;
    Module module = parse(kernel_text(text), "test.ptx");
    EXPECT_EQ(fuse_products(module), 0) << body;
  }
}

}  // namespace
}  // namespace ampcheck::ptx
