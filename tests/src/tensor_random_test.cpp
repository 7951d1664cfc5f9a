// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "src/error.h"
#include "src/random.h"
#include "src/rounding.h"
#include "src/tensor.h"

namespace ampcheck {
namespace {

// Known answers: kat_vectors of Random123 (Salmon et al., SC 2011).
/// Those of Random123, kat_vectors.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32<7>({0, 0, 0, 0}, {0, 0}), (Philox{0x5f6fb709u, 0x0d893f64u, 0x4f121f81u, 0x4f730a48u}));
  EXPECT_EQ(philox4x32<7>({0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}, {0xffffffffu, 0xffffffffu}),
            (Philox{0x5207ddc2u, 0x45165e59u, 0x4d8ee751u, 0x8c52f662u}));
  EXPECT_EQ(philox4x32<7>({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
            (Philox{0x4dfccabau, 0x190a87f0u, 0xc47362bau, 0xb6b5242au}));
  EXPECT_EQ(philox4x32<10>({0, 0, 0, 0}, {0, 0}), (Philox{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox4x32<10>({0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}, {0xffffffffu, 0xffffffffu}),
            (Philox{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox4x32<10>({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
            (Philox{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Random, IsAFunctionOfSeedStreamAndIndex) {
  const Random a(3, "x"), same(3, "x"), other_seed(4, "x"), other_stream(3, "y");
  std::set<std::uint64_t> seen;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(a.bits(i), same.bits(i));
    seen.insert({a.bits(i), other_seed.bits(i), other_stream.bits(i)});
  }
  EXPECT_EQ(seen.size(), 3000u);
  EXPECT_EQ(Random(1, hash_name("dx")).bits(5), Random(1, "dx").bits(5));
  EXPECT_EQ(hash_name(""), 0xcbf29ce484222325ull);  // FNV-1a of the empty word and of "a"
  EXPECT_EQ(hash_name("a"), 0xaf63dc4c8601ec8cull);
}

TEST(Random, NumbersStayInRangeAndHaveTheirMoments) {
  const Random random(11, "moments");
  double uniform = 0, mean = 0, square = 0, most = 0;
  std::set<std::uint64_t> values;
  constexpr int kCount = 100000;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double u = random.uniform(i), g = random.normal(i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    const std::uint64_t b = random.below(i, 7);
    ASSERT_LT(b, 7u);
    values.insert(b);
    uniform += u / kCount;
    mean += g / kCount;
    square += g * g / kCount;
    most = std::max(most, std::fabs(g));
  }
  EXPECT_EQ(values.size(), 7u);
  // Five standard errors each: of U(0,1) sqrt(1/12), of N(0,1) 1, of its square sqrt(2).
  EXPECT_NEAR(uniform, 0.5, 5 * 0.2887 / std::sqrt(kCount));
  EXPECT_NEAR(mean, 0, 5 / std::sqrt(kCount));
  EXPECT_NEAR(square, 1, 5 * 1.4142 / std::sqrt(kCount));
  EXPECT_LE(most, 6);  // Irwin-Hall of 12
  EXPECT_GT(most, 3.5);
  EXPECT_EQ(random.below(0, 1), 0u);
}

TEST(Shape, CountsPrintsAndCompares) {
  EXPECT_EQ(Shape{}.count(), 1);
  EXPECT_EQ((Shape{5, 0, 3}).count(), 0);
  EXPECT_EQ((Shape{2, 3, 4}).str(), "[2,3,4]");
  EXPECT_EQ((Shape{2, 3, 4}).last(), 4);
  EXPECT_EQ((Shape{2, 3, 4}).last(2), 2);
  EXPECT_FALSE((Shape{2, 3}) == (Shape{2, 3, 1}));
  EXPECT_TRUE(row_major_strides({2, 3, 4}) == (Shape{12, 4, 1}));
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), Error);
}

TEST(TensorView, OffsetsFollowStrides) {
  const TensorView dense{nullptr, Dtype::fp32, {2, 3}, {3, 1}}, turned{nullptr, Dtype::fp32, {2, 3}, {1, 2}};
  EXPECT_TRUE(dense.is_dense());
  EXPECT_FALSE(turned.is_dense());
  EXPECT_TRUE((TensorView{nullptr, Dtype::fp32, {2, 1, 3}, {3, 77, 1}}).is_dense());  // an extent of one has no stride
  EXPECT_EQ(dense.offset(4), 4);
  EXPECT_EQ(turned.offset(4), 1 + 2);
  EXPECT_EQ(turned.offset(5), 1 + 4);
}

TEST(Tensor, OwnsZeroedAlignedMemory) {
  const Tensor tensor(Dtype::bf16, {3, 5});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64, 0u);
  for (const std::uint16_t bits : tensor.span<std::uint16_t>()) EXPECT_EQ(bits, 0);
  EXPECT_TRUE(tensor.defined());
  EXPECT_FALSE(Tensor().defined());
  EXPECT_EQ(Tensor(Dtype::fp32, {0, 4}).count(), 0);
  const Tensor shared = tensor;
  shared.span<std::uint16_t>()[0] = 1;
  EXPECT_EQ(tensor.span<std::uint16_t>()[0], 1);
}

TEST(Values, RoundTripInEveryDtypeAndLayout) {
  for (const Dtype dtype : {Dtype::fp64, Dtype::fp32, Dtype::fp16, Dtype::bf16, Dtype::e4m3fn, Dtype::e5m2, Dtype::i32,
                            Dtype::i64, Dtype::u8}) {
    const std::vector<double> values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14};
    for (const Shape& strides : {Shape{6, 2, 1}, Shape{12, 4, 2}, Shape{1, 4, 2}, Shape{7, 2, 1}}) {
      const Tensor memory(Dtype::u8, {64 * 8});
      const TensorView view{memory.data(), dtype, {2, 3, 2}, strides};
      from_doubles(values, view);
      EXPECT_EQ(to_doubles(view), values) << name(dtype) << " " << strides.str();
    }
  }
}

TEST(Values, RoundToNearestEvenAndKeepSpecials) {
  const Tensor tensor(Dtype::bf16, {5});
  from_doubles(std::vector<double>{1 + 0x1p-8, 1 + 3 * 0x1p-8, -INFINITY, NAN, 0x1p-140}, tensor.view());
  const std::vector<double> got = to_doubles(tensor.view());
  EXPECT_EQ(got[0], 1);
  EXPECT_EQ(got[1], 1 + 0x1p-6);
  EXPECT_EQ(got[2], -INFINITY);
  EXPECT_TRUE(std::isnan(got[3]));
  EXPECT_EQ(got[4], 0);
  EXPECT_EQ(bits_at(tensor.view(), 0), 0x3f80u);
  EXPECT_THROW(from_doubles(std::vector<double>{1, 2}, tensor.view()), Error);
}

TEST(Values, ExpandedViewsReadOneElementManyTimes) {
  const Tensor tensor(Dtype::fp32, {3});
  from_doubles(std::vector<double>{1, 2, 3}, tensor.view());
  const TensorView expanded{tensor.data(), Dtype::fp32, {3, 2}, {1, 0}};
  EXPECT_EQ(to_doubles(expanded), (std::vector<double>{1, 1, 2, 2, 3, 3}));
}

TEST(CopyElements, MovesBitsBetweenLayouts) {
  const Tensor from(Dtype::fp32, {2, 3}), memory(Dtype::fp32, {16});
  from.span<std::uint32_t>()[4] = 0x7fc0deadu;  // a NaN keeps its payload
  const TensorView to{memory.data(), Dtype::fp32, {2, 3}, {1, 2}};
  copy_elements(from.view(), to);
  EXPECT_EQ(bits_at(to, 4), 0x7fc0deadu);
  EXPECT_EQ(memory.span<std::uint32_t>()[3], 0x7fc0deadu);
  const Tensor back(Dtype::fp32, {2, 3});
  copy_elements(to, back.view());
  EXPECT_EQ(back.span<std::uint32_t>()[4], 0x7fc0deadu);
  EXPECT_THROW(copy_elements(from.view(), Tensor(Dtype::fp32, {3, 2}).view()), Error);
  EXPECT_THROW(copy_elements(from.view(), Tensor(Dtype::fp16, {2, 3}).view()), Error);
}

TEST(Random, ManyAtATimeAreTheSameNumbers) {
  const Random random(7, "many at a time");
  for (const std::string_view target : simd_targets())
    for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{3}, (std::uint64_t{1} << 32) - 70})
      for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{200}}) {
        set_simd_target(target);
        std::vector<std::uint64_t> bits(n);
        std::vector<double> normals(n), full(n);
        random.bits(first, bits);
        random.normals(first, normals);
        random.full_normals(first, full);
        for (std::size_t i = 0; i < n; ++i) {
          ASSERT_EQ(bits[i], random.bits(first + i));
          ASSERT_EQ(normals[i], random.normal(first + i)) << target;
          ASSERT_EQ(full[i], random.full_normal(first + i)) << target;
          ASSERT_EQ(std::floor(full[i] * 0x1p16), normals[i] * 0x1p16) << target;
        }
      }
  set_simd_target("");
}

}  // namespace
}  // namespace ampcheck
