// SPDX-License-Identifier: Apache-2.0
// What a tensor core computes, bit for bit: the oracle for the bound of src/accumulator.h. It shares nothing with that.
// One block is D = c + a_1 b_1 + ... + a_L b_L: terms are cut off toward zero below 2^(E-F), where E is the largest
// exponent among the products (not normalised) and c; their sum is exact; then one rounding.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "src/float_format.h"
#include "src/rounding.h"

namespace ampcheck::tests {

/// One instruction: products of a block, bits kept below the largest exponent, and how the sum is rounded.
struct CoreModel {
  enum class Result { truncated_fp32, truncated_13_bits, nearest_fp16 };
  int terms = 16, fraction = 25;
  Result result = Result::truncated_fp32;
};

struct Factors {
  double a = 0, b = 0;
};

/// Exponent of a number in a format; a subnormal one has that of min_normal.
inline int exponent_in(const FloatFormat& format, double v) { return std::max(std::ilogb(v), format.min_exponent()); }

inline double cut(double v, int fraction) {
  if (v == 0) return 0;
  const int last = std::max(std::ilogb(v) - fraction, -149);
  return std::ldexp(std::trunc(std::ldexp(v, -last)), last);
}
inline double nearest(const FloatFormat& format, double v) {
  round_values(format, RoundingMode{}, {&v, 1}, {&v, 1});
  return v;
}

/// One block.
inline double fused_block(const CoreModel& model, const FloatFormat& a, const FloatFormat& b,
                          const std::vector<Factors>& products, double c) {
  int largest = c != 0 ? exponent_in(kFp32, c) : -1000;
  for (const Factors& p : products)
    if (p.a != 0 && p.b != 0) largest = std::max(largest, exponent_in(a, p.a) + exponent_in(b, p.b));
  if (largest == -1000) return 0;
  const int last = largest - model.fraction;
  const auto aligned = [&](double v) { return static_cast<std::int64_t>(std::ldexp(v, -last)); };  // toward zero
  std::int64_t sum = aligned(c);
  for (const Factors& p : products) sum += aligned(p.a * p.b);
  const double exact = std::ldexp(static_cast<double>(sum), last);
  switch (model.result) {
    case CoreModel::Result::truncated_fp32: return cut(exact, 23);
    case CoreModel::Result::truncated_13_bits: return cut(exact, 13);
    case CoreModel::Result::nearest_fp16: break;
  }
  return nearest(kFp16, exact);
}

/// A chain of blocks over all products.
inline double chain(const CoreModel& model, const FloatFormat& a, const FloatFormat& b,
                    const std::vector<Factors>& products, double c = 0) {
  for (std::size_t begin = 0; begin < products.size(); begin += static_cast<std::size_t>(model.terms)) {
    const auto first = products.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto count = std::min<std::ptrdiff_t>(model.terms, products.end() - first);
    c = fused_block(model, a, b, {first, first + count}, c);
  }
  return c;
}

/// mma.sync of fp8 on Hopper and B200 for 32 products: two blocks of 16 in fp16's way, over k with bit 1 clear and then
/// the others, and c added last.
inline double two_blocks_of_fp8(const CoreModel& model, const std::vector<Factors>& products, double c) {
  std::vector<Factors> half[2];
  for (std::size_t k = 0; k < products.size(); ++k) half[k >> 1 & 1].push_back(products[k]);
  const double sum = fused_block(model, kFp16, kFp16, half[1], fused_block(model, kFp16, kFp16, half[0], 0));
  return nearest(model.result == CoreModel::Result::nearest_fp16 ? kFp16 : kFp32, sum + c);
}

}  // namespace ampcheck::tests
