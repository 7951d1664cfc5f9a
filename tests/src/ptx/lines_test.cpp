// SPDX-License-Identifier: Apache-2.0
// What a followed launch says of source lines: planted losses at one line, and twins that lose nothing.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/src/ptx/machine_for_tests.h"

namespace ampcheck::ptx {
namespace {

Ran followed(const std::string& body, const std::vector<std::uint32_t>& a, const std::string& variables = "") {
  Shape shape;
  shape.follow = true;
  return run_text(kernel_text(body, ".file 1 \"k.cu\"\n" + variables), a, 64, shape);
}

std::vector<std::uint32_t> bits_of(float first, float step) {
  std::vector<std::uint32_t> out(64);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = std::bit_cast<std::uint32_t>(first + step * static_cast<float>(i));
  return out;
}

const LineErrors& line(const Ran& ran, int number) {
  static const LineErrors none;
  for (const LineErrors& known : ran.outcome.lines)
    if (known.place == "k.cu:" + std::to_string(number)) return known;
  return none;
}
std::int64_t lost(const Ran& ran) {
  std::int64_t out = 0;
  for (const LineErrors& known : ran.outcome.lines) out += known.lost();
  return out;
}

const std::string load = ".loc 1 1 1\nld.global.f32 %f0, [%pa];\n", store = ".loc 1 9 1\nst.global.f32 [%pb], %f9;\n";

/// (x^2 + 1) - x^2 in two ways: the difference of two squares loses what the product rounded.
TEST(Lines, CancellationIsFoundAtItsLine) {
  const std::string squares =
                        ".loc 1 2 1\nmul.f32 %f1, %f0, %f0;\n.loc 1 3 1\nadd.f32 %f2, %f0, 0f3F800000;\nmul.f32 %f3, "
                        "%f2, %f2;\n",
                    bad = ".loc 1 4 1\nsub.f32 %f9, %f3, %f1;\n",
                    good = ".loc 1 4 1\nadd.f32 %f9, %f0, %f2;\n";  // the same number: (x + 1)^2 - x^2 = 2 x + 1
  const std::vector<std::uint32_t> x = bits_of(123456.7f, 13.1f);
  const Ran wrong = followed(load + squares + bad + store, x), right = followed(load + squares + good + store, x);
  EXPECT_GE(line(wrong, 4).lost(), 48);
  EXPECT_STREQ(line(wrong, 4).lost_words(), "cancellation");
  EXPECT_GE(line(wrong, 4).cancelled_bits, 12);
  EXPECT_EQ(line(wrong, 4).local, 0);  // the subtraction itself is exact
  EXPECT_GT(line(wrong, 4).carried, 0x1p-12);
  EXPECT_EQ(line(wrong, 2).lost() + line(wrong, 3).lost(), 0);
  EXPECT_EQ(lost(right), 0);
  EXPECT_LE(line(right, 4).carried_ulp, 2);
  EXPECT_LE(line(right, 2).local_ulp, 0.5);
  const auto says = [](const Ran& ran) {
    for (const LaunchFact& fact : ran.outcome.facts)
      if (fact.kind == LaunchFact::Kind::lost) return fact.text;
    return std::string();
  };
  EXPECT_EQ(says(wrong), "numbers lose half of their digits or more at k.cu:4 (cancellation)");
  EXPECT_EQ(says(right), "");
}

/// Whole numbers by 1.5 * 2^23, as the exponential of a compiler has them: what is rounded so is wanted, and 2^23 more
/// than a fraction that was wanted loses it.
TEST(Lines, RoundingToWholeNumbersOnPurposeIsNoLoss) {
  const auto fraction = [](const std::string& large) {  // x - round(x), and twice that
    return load + ".loc 1 2 1\nadd.f32 %f1, %f0, " + large + ";\n.loc 1 3 1\nsub.f32 %f2, %f1, " + large +
           ";\n.loc 1 4 1\nsub.f32 %f3, %f0, %f2;\nadd.f32 %f9, %f3, %f3;\n" + store;
  };
  const std::vector<std::uint32_t> x = bits_of(0.3f, 1.37f);
  const Ran wanted = followed(fraction("0f4B400000"), x), above = followed(fraction("0f4B40007F"), x),
            table = followed(fraction("0f48400000"), x), detour = followed(fraction("0f4B000000"), x);
  for (const Ran* const ran : {&wanted, &above, &table}) {
    EXPECT_EQ(lost(*ran), 0);
    EXPECT_EQ(line(*ran, 4).carried, 0);
  }
  EXPECT_GE(lost(detour), 48);
  EXPECT_STREQ(line(detour, 3).lost_words(), "cancellation");
}

/// A square in fp16 overflows, and what is scaled before does not; a square of small numbers goes to zero.
TEST(Lines, RangesOfHalvesAreFoundAtTheirLine) {
  const auto squared = [](const std::string& scale) {
    return load + ".loc 1 2 1\n" + scale +
           "cvt.rn.f16.f32 %h0, %f0;\n.loc 1 3 1\nmul.f16 %h1, %h0, %h0;\n.loc 1 4 1\n" + "cvt.f32.f16 %f9, %h1;\n" +
           store;
  };
  const Ran large = followed(squared(""), bits_of(300, 1)),
            scaled = followed(squared("mul.f32 %f0, %f0, 0f3C000000;\n"), bits_of(300, 1)),
            small = followed(squared(""), bits_of(0x1p-14f, 0x1p-22f)),
            subnormal = followed(squared(""), bits_of(0x1p-10f, 0x1p-18f));
  EXPECT_EQ(line(large, 3).infinities, 64);
  EXPECT_EQ(line(large, 3).lost(), 64);
  EXPECT_STREQ(line(large, 3).lost_words(), "overflow");
  EXPECT_EQ(line(large, 2).infinities + line(large, 4).infinities, 0);
  EXPECT_EQ(line(scaled, 3).infinities + line(scaled, 3).underflows, 0);
  EXPECT_EQ(line(small, 3).underflows, 64);
  EXPECT_STREQ(line(small, 3).lost_words(), "underflow");
  EXPECT_EQ(line(small, 2).subnormals, 0);
  EXPECT_EQ(line(subnormal, 3).subnormals, 64);
  // An f32 of eleven digits has less than half of its own, and the line that rounds it is named; in halves it is right.
  EXPECT_EQ(line(scaled, 4).lost(), 0);
  const Ran halves = followed(load +
                                  ".loc 1 2 1\nmul.f32 %f0, %f0, 0f3C000000;\ncvt.rn.f16.f32 %h0, %f0;\n.loc 1 3 "
                                  "1\nmul.f16 %h1, %h0, %h0;\nst.global.b16 [%pb], %h1;\n",
                              bits_of(300, 1));
  EXPECT_EQ(lost(halves), 0);
  EXPECT_LE(line(halves, 3).local_ulp, 0.5);
  EXPECT_GT(line(halves, 3).local, 0x1p-13);
}

/// Through shared memory, a shuffle, a choice, halves in pairs and an atomic the shadow stays with its number.
TEST(Lines, TheShadowFollowsWhatCarriesANumber) {
  const std::string third = ".loc 1 2 1\nmul.f32 %f1, %f0, 0f3EAAAAAB;\n";
  const std::string ways[] = {
      "mov.u32 %r0, buffer;\nadd.s32 %r1, %r0, %s;\nst.shared.f32 [%r1], %f1;\nld.shared.f32 %f9, [%r1];\n",
      "mov.b32 %r0, %f1;\nshfl.sync.bfly.b32 %r1, %r0, 0, 31, -1;\nmov.b32 %f9, %r1;\n",
      "setp.ge.u32 %p0, %t, 0;\nselp.f32 %f9, %f1, %f0, %p0;\n",
      "max.f32 %f9, %f1, 0f00000000;\n",
      "mov.b64 %d0, {%f1, %f0};\nmov.b64 {%f9, %f3}, %d0;\n",
  };
  for (const std::string& way : ways) {
    SCOPED_TRACE(way);
    // Behind the way the shadow is taken off: what is left is the rounding of the product, all of it lost.
    const Ran ran = followed(load + third + way + ".loc 1 4 1\nfma.rn.f32 %f9, %f0, 0fBEAAAAAB, %f9;\n" + store,
                             bits_of(1, 0.37f), ".shared .align 4 .b8 buffer[256];\n");
    EXPECT_GT(line(ran, 4).lost(), 32) << line(ran, 4).carried;
    EXPECT_STREQ(line(ran, 4).lost_words(), "cancellation");
  }
  const Ran pair = followed(load +
                                ".loc 1 2 1\ncvt.rn.f16x2.f32 %r0, %f0, %f0;\n.loc 1 3 1\nmul.f16x2 %r1, %r0, %r0;\n"
                                "mov.b32 {%h0, %h1}, %r1;\n.loc 1 4 1\ncvt.f32.f16 %f9, %h1;\n" +
                                store,
                            bits_of(1, 0.37f));
  EXPECT_EQ(line(pair, 3).results, 128);
  EXPECT_GT(line(pair, 4).carried, 0x1p-12);
  EXPECT_EQ(line(pair, 4).local, 0);
}

/// What 64 threads add to one place is followed: a third of each, and then their sum is taken off.
TEST(Lines, AtomicSumsAreFollowed) {
  Shape shape;
  shape.follow = true;
  shape.b_initialised = true;
  const Ran ran = run_text(
      kernel_text(load +
                      ".loc 1 2 1\nmul.f32 %f1, %f0, 0f3EAAAAAB;\nred.global.add.f32 [%b], %f1;\nbar.sync 0;\n.loc 1 3 "
                      "1\nld.global.f32 %f2, [%b];\nadd.f32 %f9, %f2, 0fC2000000;\n" +
                      store,
                  ".file 1 \"k.cu\"\n"),
      bits_of(1.5f, 0), 64, shape);
  EXPECT_GT(line(ran, 3).cancelled_bits, 12);  // 64 thirds of 1.5 are 32 and a rounding
  EXPECT_STREQ(line(ran, 3).lost_words(), "cancellation");
  EXPECT_GT(line(ran, 3).lost(), 0);
}

/// Sums of a product of matrices in halves overflow, in floats they do not.
TEST(Lines, AProductOfMatricesIsFollowed) {
  const auto product = [](const std::string& sum, int registers) {
    const auto list = [](int first, int count) {
      std::string out = "{";
      for (int i = 0; i < count; ++i) out += (i == 0 ? "%r" : ",%r") + std::to_string(first + i);
      return out + "}";
    };
    const std::string c = list(16, registers), d = list(24, registers);
    std::string zeros;
    for (int i = 0; i < registers; ++i) zeros += "mov.b32 %r" + std::to_string(16 + i) + ", 0;\n";
    return ".loc 1 2 1\n" + zeros + "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 " + list(0, 8) +
           ", [%a], 16;\nwmma.load.b.sync.aligned.row.m16n16k16.global.f16 " + list(8, 8) +
           ", [%a], 16;\n.loc 1 3 1\nwmma.mma.sync.aligned.row.row.m16n16k16." + sum + "." + sum + " " + d + ", " +
           list(0, 8) + ", " + list(8, 8) + ", " + c +
           ";\n.loc 1 4 1\nwmma.store.d.sync.aligned.row.m16n16k16.global." + sum + " [%b], " + d + ", 16;\n";
  };
  const auto run = [&](const std::string& text) {
    Shape shape;
    shape.block = 32;
    shape.follow = true;
    const std::vector<std::uint32_t> a(128, 0x54005400u);  // 64
    return run_text(kernel_text(text, ".file 1 \"k.cu\"\n"), a, 256, shape);
  };
  const Ran halves = run(product("f16", 4)), singles = run(product("f32", 8));
  EXPECT_EQ(halves.findings() + singles.findings(), 0) << halves.text() << singles.text();
  EXPECT_EQ(line(halves, 3).results, 256);
  EXPECT_EQ(line(halves, 3).infinities, 256);
  EXPECT_EQ(line(halves, 3).lost(), 256);
  EXPECT_STREQ(line(halves, 3).lost_words(), "overflow");
  EXPECT_EQ(line(singles, 3).infinities + lost(singles), 0);
  EXPECT_EQ(line(singles, 3).carried, 0);
  EXPECT_EQ(singles.f(5), 65536.0f);
}

TEST(Lines, NothingIsFollowedUnlessAsked) {
  const Ran ran =
      run_text(kernel_text(load + "mov.f32 %f9, %f0;\n" + store, ".file 1 \"k.cu\"\n"), bits_of(1, 1), 64, {});
  EXPECT_TRUE(ran.outcome.lines.empty());
}

}  // namespace
}  // namespace ampcheck::ptx
