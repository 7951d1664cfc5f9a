// SPDX-License-Identifier: Apache-2.0
// Instructions one by one: what they compute, lane by lane, against the same thing said in C++ or worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "src/random.h"
#include "src/rounding.h"
#include "src/tensor_core/instruction.h"
#include "tests/src/ptx/machine_for_tests.h"

namespace ampcheck::ptx {
namespace {

/// Bit patterns of every kind: specials, small, large and any.
std::vector<std::uint32_t> patterns(std::size_t n, const char* salt) {
  const Random random(7, salt);
  std::vector<std::uint32_t> out = {0u,          0x80000000u, 0x3f800000u, 0xbf800000u, 0x7f800000u, 0xff800000u,
                                    0x7fc00000u, 1u,          0x007fffffu, 0x00800000u, 0x7f7fffffu, 0xffffffffu,
                                    0x7fffffffu, 0x33800000u, 0x4b000001u, 0xc2fe0000u};
  while (out.size() < n) out.push_back(static_cast<std::uint32_t>(random.bits(out.size())));
  return out;
}

using Three = std::function<std::uint32_t(std::uint32_t, std::uint32_t, std::uint32_t)>;

/// %r3 = the instruction of %r0, %r1, %r2 (%f.. hold the same bits): element i of a, n/3 + i, 2n/3 + i.
void expect_same(const std::string& body, const Three& want) {
  constexpr std::uint32_t kCount = 256;
  const std::vector<std::uint32_t> a = patterns(kCount, "a"), b = patterns(kCount, "b"), c = patterns(kCount, "c");
  std::vector<std::uint32_t> all;
  for (const auto* const part : {&a, &b, &c}) all.insert(all.end(), part->begin(), part->end());
  for (std::uint32_t i = 0; i < kCount; ++i) all[kCount + i] = b[(i * 7 + 3) % kCount];
  for (std::uint32_t i = 0; i < kCount; ++i) all[2 * kCount + i] = c[(i * 5 + 1) % kCount];
  const Ran ran =
      run_text(kernel_text("ld.global.b32 %r0, [%pa];\nld.global.b32 %r1, [%pa+1024];\nld.global.b32 %r2, [%pa+2048];\n"
                           "mov.b32 %f0, %r0;\nmov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\ncvt.u16.u32 %h0, %r0;\n"
                           "cvt.u16.u32 %h1, %r1;\ncvt.u16.u32 %h2, %r2;\n" +
                           body + "st.global.b32 [%pb], %r3;\n"),
               all, kCount, {.grid = 4, .block = 64});
  ASSERT_EQ(ran.findings(), 0) << ran.text();
  const auto is_nan = [](std::uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; };
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const std::uint32_t wanted = want(all[i], all[kCount + i], all[2 * kCount + i]);
    if (is_nan(wanted) && is_nan(ran.b[i])) continue;
    ASSERT_EQ(ran.b[i], wanted) << body << i << ": " << std::hex << all[i] << " " << all[kCount + i] << " "
                                << all[2 * kCount + i];
  }
}

float as_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
using U = std::uint32_t;

/// It has no registers either, so a launch would write where none are.
TEST(PtxInstructions, AKernelWithoutABodyIsNone) {
  const std::string head = ".version 7.0\n.target sm_80\n.address_size 64\n";
  const auto program = decode(parse(head + ".visible .entry k;\n", "k.ptx"));
  EXPECT_EQ(program->entry("k"), nullptr);
  try {
    run(*program, "k", {});
    ADD_FAILURE() << "it ran";
  } catch (const PtxError& error) {
    EXPECT_STREQ(error.what(), "[k.ptx] got no kernel 'k', want one of (it has none)");
  }
  EXPECT_NE(decode(parse(head + ".visible .entry k;\n.visible .entry k() { ret; }\n", "k.ptx"))->entry("k"), nullptr);
}

TEST(PtxInstructions, WholeNumbers) {
  expect_same("mul.hi.u32 %r3, %r0, %r1;\n", [](U a, U b, U) { return static_cast<U>((std::uint64_t{a} * b) >> 32); });
  expect_same("mul.hi.s32 %r3, %r0, %r1;\n", [](U a, U b, U) {
    return static_cast<U>((std::int64_t{static_cast<std::int32_t>(a)} * static_cast<std::int32_t>(b)) >> 32);
  });
  expect_same("mad.wide.s32 %d0, %r0, %r1, 5;\nshr.u64 %d0, %d0, 20;\ncvt.u32.u64 %r3, %d0;\n", [](U a, U b, U) {
    return static_cast<U>(
        static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(a)} * static_cast<std::int32_t>(b) + 5) >>
        20);
  });
  expect_same("add.cc.u32 %r3, %r0, %r1;\naddc.u32 %r3, %r2, 0;\n",
              [](U a, U b, U c) { return c + (a + b < a ? 1u : 0u); });
  expect_same("shl.b32 %r3, %r0, %r1;\n", [](U a, U b, U) { return b > 31 ? 0u : a << b; });
  expect_same("shr.s32 %r3, %r0, %r1;\n",
              [](U a, U b, U) { return static_cast<U>(static_cast<std::int32_t>(a) >> std::min(b, 31u)); });
  expect_same("lop3.b32 %r3, %r0, %r1, %r2, 0xE8;\n", [](U a, U b, U c) { return (a & b) | (a & c) | (b & c); });
  expect_same("prmt.b32 %r3, %r0, %r1, 0x0352;\n",
              [](U a, U b, U) { return (a >> 16 & 255u) | (b >> 8 & 255u) << 8 | (a >> 24) << 16 | (a & 255u) << 24; });
  expect_same("bfe.s32 %r3, %r0, 7, 9;\n",
              [](U a, U, U) { return static_cast<U>(static_cast<std::int32_t>(a << 16) >> 23); });
  expect_same("bfi.b32 %r3, %r0, %r1, 4, 10;\n", [](U a, U b, U) { return (b & ~0x3ff0u) | (a & 0x3ffu) << 4; });
  expect_same("shf.l.wrap.b32 %r3, %r0, %r1, 12;\n", [](U a, U b, U) { return b << 12 | a >> 20; });
  expect_same("clz.b32 %r3, %r0;\n", [](U a, U, U) { return static_cast<U>(std::countl_zero(a)); });
  expect_same("dp4a.s32.s32 %r3, %r0, %r1, %r2;\n", [](U a, U b, U c) {
    for (int k = 0; k < 4; ++k)
      c += static_cast<U>(static_cast<std::int8_t>(a >> (8 * k))) *
           static_cast<U>(static_cast<std::int8_t>(b >> (8 * k)));
    return c;
  });
  expect_same("cvt.s32.s8 %r3, %r0;\n", [](U a, U, U) { return static_cast<U>(static_cast<std::int8_t>(a)); });
  // The register of the operand may be wider than its type.
  expect_same(
      "mul.wide.u32 %d0, %r0, %r1;\ncvt.s64.s32 %d0, %d0;\nshr.s64 %d0, %d0, 16;\ncvt.u32.u64 %r3, %d0;\n",
      [](U a, U b, U) { return static_cast<U>(static_cast<std::int64_t>(static_cast<std::int32_t>(a * b)) >> 16); });
  expect_same("mul.wide.u32 %d0, %r0, %r1;\ncvt.s32.s8 %r3, %d0;\n",
              [](U a, U b, U) { return static_cast<U>(static_cast<std::int8_t>(a * b)); });
  expect_same("setp.lt.s32 %p0, %r0, %r1;\nselp.b32 %r3, %r1, %r2, %p0;\n",
              [](U a, U b, U c) { return static_cast<std::int32_t>(a) < static_cast<std::int32_t>(b) ? b : c; });
}

TEST(PtxInstructions, Floats) {
  expect_same("fma.rn.f32 %f3, %f0, %f1, %f2;\nmov.b32 %r3, %f3;\n",
              [](U a, U b, U c) { return bits_of(std::fma(as_float(a), as_float(b), as_float(c))); });
  expect_same("add.ftz.f32 %f3, %f0, %f1;\nmov.b32 %r3, %f3;\n", [](U a, U b, U) {
    const auto flush = [](float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; };
    return bits_of(flush(flush(as_float(a)) + flush(as_float(b))));
  });
  expect_same("cvt.rzi.s32.f32 %r3, %f0;\n", [](U a, U, U) {
    const float x = as_float(a);
    if (!(x == x)) return 0u;
    return x >= 0x1p31f ? 0x7fffffffu : x <= -0x1p31f ? 0x80000000u : static_cast<U>(static_cast<std::int32_t>(x));
  });
  expect_same("min.f32 %f3, %f0, %f1;\nmov.b32 %r3, %f3;\n", [](U a, U b, U) {
    const float x = as_float(a), y = as_float(b);
    if (x == 0 && y == 0) return a | b;
    return bits_of(std::fmin(x, y));
  });
  expect_same("cvt.rn.f16.f32 %h3, %f0;\ncvt.f32.f16 %f3, %h3;\nmov.b32 %r3, %f3;\n", [](U a, U, U) {
    return bits_of(static_cast<float>(decode_scalar(kFp16, encode_scalar(kFp16, as_float(a)))));
  });
  expect_same("cvt.rn.bf16x2.f32 %r3, %f0, %f1;\nand.b32 %r3, %r3, 0x7f7f7f7f;\n", [](U a, U b, U) {
    const auto half = [](U x) {
      return as_float(x) == as_float(x) ? static_cast<U>(encode_scalar(kBf16, as_float(x))) : 0x7fffu;
    };
    return (half(a) << 16 | half(b)) & 0x7f7f7f7fu;
  });
}

/// A product of two floats is exact in a double: the float next to it in a direction.
float next_to(double exact, bool up) {
  const auto out = static_cast<float>(exact);
  if (!(exact == exact) || std::isinf(exact)) return out;
  if (up && static_cast<double>(out) < exact) return std::nextafter(out, INFINITY);
  return !up && static_cast<double>(out) > exact ? std::nextafter(out, -INFINITY) : out;
}

TEST(PtxInstructions, DirectedRoundings) {
  for (const bool up : {false, true})
    expect_same(std::string("mul") + (up ? ".rp" : ".rm") + ".f32 %f3, %f0, %f1;\nmov.b32 %r3, %f3;\n",
                [up](U a, U b, U) { return bits_of(next_to(static_cast<double>(as_float(a)) * as_float(b), up)); });
}

TEST(PtxInstructions, HalvesAreRoundedOnce) {
  const auto fused = [](const FloatFormat& format, U a, U b, U c) {
    const auto x = [&](U bits) { return static_cast<__float128>(decode_scalar(format, bits & 0xffffu)); };
    // The sum may need more digits than a __float128 has: what it loses is kept beside it.
    const __float128 product = x(a) * x(b), sum = product + x(c), lost = x(c) - (sum - product);
    auto d = static_cast<double>(sum);
    const __float128 rest = (sum - static_cast<__float128>(d)) + lost;
    if (std::isfinite(d) && rest != 0) {  // to odd: then one more rounding is as the first
      auto bits = std::bit_cast<std::uint64_t>(d);
      if ((rest < 0) == (d > 0)) --bits;
      d = std::bit_cast<double>(bits | 1);
    }
    return d != d ? 0x7fffu : static_cast<U>(encode_scalar(format, d));
  };
  const std::string widen = "cvt.u32.u16 %r3, %h3;\n";
  const auto class_of = [](U bits, U infinity) { return (bits & 0x7fffu) > infinity ? 0x7fffu : bits; };
  expect_same("fma.rn.f16 %h3, %h0, %h1, %h2;\n" + widen,
              [&](U a, U b, U c) { return class_of(fused(kFp16, a, b, c), 0x7c00u); });
  expect_same("fma.rn.bf16 %h3, %h0, %h1, %h2;\n" + widen,
              [&](U a, U b, U c) { return class_of(fused(kBf16, a, b, c), 0x7f80u); });
}

TEST(PtxInstructions, LanesOfAWarp) {
  const std::vector<std::uint32_t> a = floats(32);
  const Shape shape = {.block = 32};
  const Ran up = run_text(
      kernel_text("shfl.sync.up.b32 %r0|%p0, %t, 3, 0, -1;\n@!%p0 mov.u32 %r0, 100;\nst.global.b32 [%pb], %r0;\n"), a,
      32, shape);
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(up.b[i], i < 3 ? 100u : i - 3);
  const Ran votes =
      run_text(kernel_text("setp.gt.u32 %p0, %t, 20;\nvote.sync.ballot.b32 %r0, %p0, -1;\nst.global.b32 [%pb], %r0;\n"),
               a, 32, shape);
  EXPECT_EQ(votes.b[5], 0xffe00000u);
  const Ran same = run_text(
      kernel_text("and.b32 %r1, %t, 3;\nmatch.any.sync.b32 %r0, %r1, -1;\nst.global.b32 [%pb], %r0;\n"), a, 32, shape);
  EXPECT_EQ(same.b[6], 0x44444444u);
  const Ran sum = run_text(kernel_text("redux.sync.add.s32 %r0, %t, -1;\nst.global.b32 [%pb], %r0;\n"), a, 32, shape);
  EXPECT_EQ(sum.b[9], 496u);
}

TEST(PtxInstructions, LanesMeetAgainBehindALoopOfTheirOwnLength) {
  const Ran ran =
      run_text(kernel_text("mov.u32 %r0, 0;\nmov.u32 %r1, 0;\nloop:\nadd.u32 %r1, %r1, %r0;\nadd.u32 %r0, %r0, 1;\n"
                           "setp.le.u32 %p0, %r0, %t;\n@%p0 bra loop;\nactivemask.b32 %r2;\npopc.b32 %r2, %r2;\n"
                           "mad.lo.u32 %r1, %r2, 1000, %r1;\nst.global.b32 [%pb], %r1;\n"),
               floats(64), 64, {});
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(ran.b[i], 32000 + i * (i + 1) / 2);
}

TEST(PtxInstructions, CallsPassAndReturnValues) {
  const std::string function =
      ".func (.param .b32 out) square(.param .b32 x)\n{\n.reg .b32 %r<3>;\nld.param.b32 %r1, [x];\n"
      "setp_free: mul.lo.s32 %r2, %r1, %r1;\nst.param.b32 [out], %r2;\nret;\n}\n";
  const Ran ran = run_text(
      kernel_text(
          "setp.gt.u32 %p0, %t, 9;\n@%p0 bra over;\n{\n.param .b32 p0;\nst.param.b32 [p0], %t;\n.param .b32 q0;\n"
          "call.uni (q0), square, (p0);\nld.param.b32 %r0, [q0];\n}\nst.global.b32 [%pb], %r0;\nbra done;\nover:\n"
          "st.global.b32 [%pb], %t;\ndone:\n",
          function),
      floats(32), 32, {.block = 32});
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(ran.b[i], i > 9 ? i : i * i) << ran.text();
}

/// The places of PTX ISA, matrix fragments of mma.m16n8k16: element i of a lane.
TEST(PtxInstructions, AMatrixProductIsThatOfTheTensorCore) {
  const Random random(3, "mma");
  std::vector<std::uint32_t> a(16 * 16 + 16 * 8), words;
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i] = static_cast<std::uint32_t>(encode_scalar(kFp16, (static_cast<double>(random.below(i, 2000)) - 1000) / 700));
  const auto at_a = [&](std::uint32_t row, std::uint32_t k) { return a[row * 16 + k]; };
  const auto at_b = [&](std::uint32_t k, std::uint32_t column) { return a[256 + k * 8 + column]; };
  std::vector<std::uint32_t> registers(32 * 6);
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    const std::uint32_t group = lane >> 2, in_group = lane % 4;
    for (std::uint32_t i = 0; i < 8; ++i) {
      const std::uint32_t row = (i < 2 || (i >= 4 && i < 6)) ? group : group + 8,
                          k = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
      registers[(i / 2) * 32 + lane] |= at_a(row, k) << (16 * (i & 1));
    }
    for (std::uint32_t i = 0; i < 4; ++i)
      registers[(4 + i / 2) * 32 + lane] |= at_b(in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0), group) << (16 * (i & 1));
  }
  std::string body;
  for (int r = 0; r < 6; ++r)
    body += "ld.global.b32 %r" + std::to_string(r) + ", [%pa+" + std::to_string(128 * r) + "];\n";
  body +=
      "mov.f32 %f0, 0f3F800000;\nmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f4,%f5,%f6,%f7}, "
      "{%r0,%r1,%r2,%r3}, {%r4,%r5}, {%f0,%f0,%f0,%f0};\n";
  for (int r = 0; r < 4; ++r)
    body += "st.global.f32 [%pb+" + std::to_string(128 * r) + "], %f" + std::to_string(4 + r) + ";\n";
  const Ran ran = run_text(kernel_text(body), registers, 128, {.block = 32});
  ASSERT_EQ(ran.findings(), 0) << ran.text();
  for (std::uint32_t lane = 0; lane < 32; ++lane)
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint32_t row = (lane >> 2) + (i < 2 ? 0 : 8), column = (lane % 4) * 2 + (i & 1);
      std::uint32_t x[16], y[16];
      for (std::uint32_t k = 0; k < 16; ++k) {
        x[k] = at_a(row, k);
        y[k] = at_b(k, column);
      }
      EXPECT_EQ(ran.b[32 * i + lane], tensor_core::dot({.generation = TensorCore::a100}, x, y, 0x3f800000u))
          << lane << " " << i;
    }
}

/// A function of a header in a function of a header: the line is that of the kernel. A function of the kernel's own
/// file: the line is its own, also where a function of a header is called in it.
TEST(PtxInstructions, StandAtTheLineOfTheKernel) {
  const Module module = parse(kernel_text(".loc 1 7 3\nadd.s32 %r0, %n, 1;\n"
                                          ".loc 2 40 3, function_name outer, inlined_at 1 9 5\nadd.s32 %r0, %r0, 1;\n"
                                          ".loc 3 50 3, function_name inner, inlined_at 2 40 3\nadd.s32 %r0, %r0, 1;\n"
                                          ".loc 1 3 5, function_name own, inlined_at 1 9 7\nadd.s32 %r0, %r0, 1;\n"
                                          ".loc 2 44 3, function_name outer, inlined_at 1 3 5\nadd.s32 %r0, %r0, 1;\n",
                                          ".file 1 \"kernel.cu\"\n.file 2 \"a.h\"\n.file 3 \"b.h\"\n"),
                              "test.ptx");
  const std::vector<Statement>& body = module.functions.at(0).body;
  std::vector<std::string> places;
  for (const Statement& statement : body)
    if (statement.text() == "add.s32") places.push_back(module.place_text(statement.place));
  EXPECT_EQ(places,
            (std::vector<std::string>{"kernel.cu:7", "kernel.cu:9", "kernel.cu:9", "kernel.cu:3", "kernel.cu:3"}));
}

/// As on a GPU: two lanes that add the same numbers in another order agree on the bits, and store them without a race.
TEST(PtxInstructions, GiveOneNaNWhateverTheirOperandsHold) {
  const Ran ran = run_text(kernel_text("ld.global.f32 %f0, [%pa];\nmov.b32 %r0, %f0;\n"
                                       "shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;\nmov.b32 %f1, %r1;\n"
                                       "add.f32 %f2, %f0, %f1;\nst.global.f32 [%pb], %f2;\nst.global.f32 [%b], %f2;\n"),
                           std::vector<std::uint32_t>{0x7fc00001u, 0xffc00002u}, 32, {.block = 2});
  EXPECT_EQ(ran.b[0], 0x7fffffffu);
  EXPECT_EQ(ran.b[1], 0x7fffffffu);
  EXPECT_EQ(ran.findings(), 0) << ran.text();
}

}  // namespace
}  // namespace ampcheck::ptx
