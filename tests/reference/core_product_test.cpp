// SPDX-License-Identifier: Apache-2.0
// The bound of products on tensor cores against the model of their arithmetic and against what real ones computed: what
// a right product gives, in any order and split, lies inside; what keeps fewer bits does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "src/random.h"
#include "tests/support/captures_in_bounds.h"

namespace ampcheck::tests {
namespace {

TEST(TensorCoreCaptures, SampledLinesLieInTheirIntervals) {
  if (capture_files().empty()) GTEST_SKIP() << "tensor_core_captures is not on this machine (AMPCHECK_SHARED)";
  expect_captures_in_bounds(25);
}

TEST(Accumulators, PrintAndReadBack) {
  using enum TensorCore;
  for (const Accumulator known : {Accumulator(Dtype::fp32), Accumulator(Dtype::fp16), Accumulator(Dtype::bf16),
                                  Accumulator(v100), Accumulator(turing), Accumulator(a100), Accumulator(ada),
                                  Accumulator(h100), Accumulator(b200), Accumulator(any)}) {
    Accumulator read;
    EXPECT_TRUE(find_accumulator(name(known), read)) << name(known);
    EXPECT_EQ(read, known);
  }
  Accumulator read;
  EXPECT_TRUE(find_accumulator("tensor_core", read) && read == Accumulator(any));
  EXPECT_TRUE(find_accumulator("tensor_core(h200)", read) && read == Accumulator(h100));
  for (const char* wrong : {"", "fp64", "tensor_core(", "tensor_core(h1000)", "tensor_core()", "tensor core"})
    EXPECT_FALSE(find_accumulator(wrong, read)) << wrong;
  EXPECT_EQ(unknown_accumulator("tensor_core(h10)"),
            "got 'tensor_core(h10)' (did you mean 'tensor_core(h100)'?), want fp32, fp16, bf16, tensor_core(v100), "
            "tensor_core(turing), tensor_core(a100), tensor_core(ada), tensor_core(h100), tensor_core(b200), "
            "tensor_core(any)");
  EXPECT_EQ(tensor_core_of(6, 1), none);
  EXPECT_EQ(tensor_core_of(7, 0), v100);
  EXPECT_EQ(tensor_core_of(7, 5), turing);
  EXPECT_EQ(tensor_core_of(8, 6), a100);
  EXPECT_EQ(tensor_core_of(8, 9), ada);
  EXPECT_EQ(tensor_core_of(9, 0), h100);
  EXPECT_EQ(tensor_core_of(10, 0), b200);
  EXPECT_EQ(tensor_core_of(12, 0), any);
}

/// Worked out by hand from the formula in src/accumulator.h, in units of 2^-24 S.
TEST(TensorCoreBlock, BoundFollowsFromItsParameters) {
  const TensorCoreBlock h100 = block_of(TensorCore::h100, ProductType::fp16);
  EXPECT_EQ(h100.roundings(0, 64), 0);
  EXPECT_EQ(h100.roundings(1, 64), 0) << "one product is exact";
  EXPECT_EQ(h100.roundings(2, 2), 3 * 0.5 + 2) << "one block: three terms cut off, one result";
  EXPECT_EQ(h100.roundings(1024, 1024), (1024 + 192) * 0.5 + 192 * 2 + 64);
  const TensorCoreBlock v100 = block_of(TensorCore::v100, ProductType::fp16);
  EXPECT_EQ(v100.roundings(1024, 1024), (1024 + 512) * 2 + 512 * 2 + 256);
  const TensorCoreBlock fp8 = block_of(TensorCore::h100, ProductType::fp8);
  EXPECT_EQ(fp8.roundings(64, 64), (64 + 4) * 2048 + 4 * 2048 + 2);
  EXPECT_FALSE(block_of(TensorCore::v100, ProductType::bf16).exists());
  EXPECT_FALSE(block_of(TensorCore::a100, ProductType::fp8).exists());
  for (const ProductType type : {ProductType::fp16, ProductType::bf16, ProductType::tf32, ProductType::fp8})
    for (const TensorCore core :
         {TensorCore::v100, TensorCore::turing, TensorCore::a100, TensorCore::ada, TensorCore::h100, TensorCore::b200})
      for (const double k : {2.0, 17.0, 4096.0})
        if (const TensorCoreBlock block = block_of(core, type); block.exists()) {
          EXPECT_GE(block_of(TensorCore::any, type).roundings(k, k), block.roundings(k, k));
        }
}

/// Data on which products differ: all of one sign and of several sizes, of both, mirrored so that the sum cancels, one
/// large product that takes the small ones' bits, and sizes down to subnormal numbers.
enum class Data { one_sided, both_signs, cancelling, absorbing, subnormal };
constexpr Data kData[] = {Data::one_sided, Data::both_signs, Data::cancelling, Data::absorbing, Data::subnormal};

std::vector<Factors> products_of(Data data, const FloatFormat& format, std::size_t k, std::uint64_t seed) {
  const Random random(seed, "core products");
  std::vector<Factors> out(k);
  for (std::size_t i = 0; i < k; ++i) {
    double a = 1 + random.uniform(3 * i);
    double b = 1 + random.uniform(3 * i + 1);
    const bool minus = (random.bits(3 * i + 2) & 1) != 0;
    if (data == Data::one_sided) a = std::ldexp(a, -static_cast<int>(random.bits(3 * i + 2) >> 8 & 7));
    if (data == Data::both_signs && minus) a = -a;
    if (data == Data::cancelling && i >= k / 2) {
      a = -out[i - k / 2].a;
      b = out[i - k / 2].b;
    }
    // Each small product is just below half a last place of fp32 beside the large one.
    if (data == Data::absorbing) {
      a = i == 0 ? 1024 : 0x1.fp-7;
      b = i == 0 ? 1024 : 0x1.fp-7;
    }
    if (data == Data::subnormal) {
      a = std::ldexp(a, format.min_exponent() - static_cast<int>(random.bits(3 * i + 2) >> 8 & 7));
      b = std::ldexp(b, std::min(1, -format.min_exponent() - 60));
      if (minus) a = -a;
    }
    out[i] = {nearest(format, a), nearest(format, b)};
  }
  return out;
}

/// The sum of the products in an order and a split: partial sums of equal parts, added in fp32.
double split_chain(const CoreModel& model, const FloatFormat& format, std::vector<Factors> products, int order,
                   std::size_t parts) {
  if (order == 1) std::reverse(products.begin(), products.end());
  if (order == 2) {  // as lanes: every eighth one after the other
    std::vector<Factors> lanes;
    for (std::size_t lane = 0; lane < 8; ++lane)
      for (std::size_t i = lane; i < products.size(); i += 8) lanes.push_back(products[i]);
    products = lanes;
  }
  const std::size_t step = (products.size() + parts - 1) / parts;
  double sum = 0;
  for (std::size_t begin = 0; begin < products.size(); begin += step) {
    const auto first = products.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = products.begin() + static_cast<std::ptrdiff_t>(std::min(begin + step, products.size()));
    sum = nearest(kFp32, sum + chain(model, format, format, {first, last}));
  }
  return sum;
}

/// The interval in fp32 of one product of vectors.
std::pair<double, double> interval(const std::vector<Factors>& products, Dtype operand,
                                   const Accumulator& accumulator) {
  CaptureFile file;
  file.in = operand == Dtype::bf16 ? "bf16" : operand == Dtype::fp16 ? "fp16" : "e4m3";
  file.out = "fp32";
  file.lines.push_back({products, 0, 0});
  return intervals_of(file, accumulator).front();
}

struct Generation {
  TensorCore core;
  CoreModel model;
  Dtype operand;
};
constexpr auto kThirteen = CoreModel::Result::truncated_13_bits;
const Generation kModels[] = {
    {TensorCore::v100, {4, 23}, Dtype::fp16},    {TensorCore::turing, {8, 24}, Dtype::fp16},
    {TensorCore::turing, {4, 24}, Dtype::fp16},  {TensorCore::a100, {8, 24}, Dtype::fp16},
    {TensorCore::a100, {8, 24}, Dtype::bf16},    {TensorCore::h100, {16, 25}, Dtype::fp16},
    {TensorCore::h100, {8, 25}, Dtype::fp16},    {TensorCore::h100, {16, 25}, Dtype::bf16},
    {TensorCore::b200, {16, 25}, Dtype::bf16},   {TensorCore::h100, {32, 13, kThirteen}, Dtype::e4m3fn},
    {TensorCore::b200, {32, 25}, Dtype::e4m3fn}, {TensorCore::ada, {16, 13, kThirteen}, Dtype::e4m3fn}};

TEST(TensorCores, RightProductsLieInsideInAnyOrderAndSplit) {
  int needed = 0;
  for (const Generation& g : kModels)
    for (const Data data : kData)
      for (const std::size_t k : {1u, 2u, 3u, 5u, 16u, 31u, 64u, 1024u, 4096u}) {
        if (data == Data::absorbing && g.operand == Dtype::e4m3fn) continue;  // out of its range
        const FloatFormat& f = format(g.operand);
        for (std::uint64_t seed = 1; seed <= (k > 100 ? 1u : 8u); ++seed) {
          const std::vector<Factors> products = products_of(data, f, k, seed);
          const auto [low, high] = interval(products, g.operand, g.core);
          const auto [low_any, high_any] = interval(products, g.operand, TensorCore::any);
          const auto [low_fp32, high_fp32] = interval(products, g.operand, Dtype::fp32);
          for (const int order : {0, 1, 2})
            for (const std::size_t parts : {1u, 2u, 7u}) {
              const double got = split_chain(g.model, f, products, order, parts);
              EXPECT_TRUE(got >= low && got <= high)
                  << name(Accumulator(g.core)) << " " << name(g.operand) << " data " << static_cast<int>(data) << " k "
                  << k << " order " << order << " parts " << parts << ": " << got << " not in [" << low << ", " << high;
              EXPECT_TRUE(got >= low_any && got <= high_any) << name(Accumulator(g.core)) << " as any";
              needed += !(got >= low_fp32 && got <= high_fp32);
            }
        }
      }
  EXPECT_GT(needed, 100) << "the word is needed: under fp32 right products leave their intervals";
}

/// The largest share of the allowed error that right products use: a bound of a hundred times what there is would catch
/// nothing.
TEST(TensorCores, TheBoundIsNoWiderThanItHasToBe) {
  for (const Generation& g : kModels) {
    if (g.core == TensorCore::b200 && g.operand == Dtype::e4m3fn) continue;  // such sums are exact
    double most = 0;
    for (const std::size_t k : {4u, 16u, 64u, 256u})
      for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        const FloatFormat& f = format(g.operand);
        const std::vector<Factors> products = products_of(Data::one_sided, f, k, seed);
        const auto [low, high] = interval(products, g.operand, g.core);
        const double exact = (low + high) / 2;
        most = std::max(most, std::fabs(split_chain(g.model, f, products, 0, 1) - exact) / ((high - low) / 2));
      }
    EXPECT_GT(most, 0.02) << name(Accumulator(g.core)) << " " << name(g.operand);
    EXPECT_LE(most, 1) << name(Accumulator(g.core)) << " " << name(g.operand);
  }
}

/// On data of one sign every fault shows; where signs cancel, errors do too.
TEST(TensorCores, WhatKeepsFewerBitsLiesOutside) {
  for (const Generation& g : kModels) {
    if (g.operand == Dtype::e4m3fn) continue;
    const FloatFormat& f = format(g.operand);
    CoreModel in_13_bits = g.model;
    in_13_bits.fraction = 13;
    in_13_bits.result = kThirteen;
    CoreModel in_fp16 = g.model;
    in_fp16.result = CoreModel::Result::nearest_fp16;
    for (const Data data : {Data::one_sided, Data::both_signs}) {
      int thirteen = 0, fp16 = 0, dropped = 0, cases = 0;
      for (const std::size_t k : {64u, 1024u, 4096u})
        for (std::uint64_t seed = 1; seed <= 2; ++seed) {
          std::vector<Factors> products = products_of(data, f, k, seed);
          const auto [low, high] = interval(products, g.operand, g.core);
          const auto outside = [low = low, high = high](double got) { return !(got >= low && got <= high); };
          thirteen += outside(split_chain(in_13_bits, f, products, 0, 1));
          fp16 += outside(split_chain(in_fp16, f, products, 0, 1));
          products.resize(k - 16);
          dropped += outside(split_chain(g.model, f, products, 0, 1));
          ++cases;
        }
      const int want = data == Data::one_sided ? cases : 1;
      EXPECT_GE(thirteen, want) << name(Accumulator(g.core)) << ": 13 bits";
      EXPECT_GE(fp16, want) << name(Accumulator(g.core)) << ": partial sums in fp16";
      EXPECT_GE(dropped, want) << name(Accumulator(g.core)) << ": the last block of k is dropped";
    }
  }
}

}  // namespace
}  // namespace ampcheck::tests
