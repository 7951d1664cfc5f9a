// SPDX-License-Identifier: Apache-2.0
// A product of matrices as Hopper's tensor cores add it up, which the contract declares. The broken ones: the same
// kernel declared as fp32; 13 bits of fraction, as fp8 has them; partial sums in fp16; the last block of k left out.
#include <ampcheck/op.h>

#include <algorithm>
#include <cmath>

namespace {

using namespace ampcheck::op;

constexpr std::int64_t kBlock = 16;  ///< products that one instruction adds

/// `bits` of v below 2^exponent, cut off toward zero.
double cut(double v, int exponent, int bits) {
  const double unit = std::ldexp(1.0, exponent - bits);
  return std::trunc(v / unit) * unit;
}

/// c + the products of n factors, exact but for what is cut off below the largest exponent, and at the end. Products
/// are not normalised: their exponent is the sum of the factors', of which a subnormal one has min_normal's.
template <class T>
float block(float c, const T* a, const T* b, std::int64_t n, int bits) {
  float plain = c;
  for (std::int64_t k = 0; k < n; ++k) plain += float(a[k]) * float(b[k]);
  if (!std::isfinite(plain)) return plain;
  const int least = sizeof(T) == 2 && float(T(65504.0f)) == 65504.0f ? -14 : -126;
  int largest = c != 0 ? std::max(std::ilogb(c), -126) : -1000;
  for (std::int64_t k = 0; k < n; ++k)
    if (float(a[k]) != 0 && float(b[k]) != 0)
      largest = std::max(largest, std::max(std::ilogb(float(a[k])), least) + std::max(std::ilogb(float(b[k])), least));
  if (largest == -1000) return c;
  double sum = cut(c, largest, bits);
  for (std::int64_t k = 0; k < n; ++k) sum += cut(double(float(a[k])) * double(float(b[k])), largest, bits);
  if (sum == 0) return 0;
  return static_cast<float>(cut(sum, std::max(std::ilogb(sum), -126), std::min(bits, 23)));
}

struct How {
  int bits = 25;
  bool in_fp16 = false, drops_last = false;
};

void describe(Op& op, int accumulator, How how) {
  op.summary("y = a b^T on tensor cores, in fp32");
  op.input("a", "M K").no_gradient();
  op.input("b", "N K").no_gradient();
  op.output("y").type(AC_TYPE_FP32);
  op.dim("M", 5, 17, 2);
  op.dim("N", 7, 9, 33);
  op.dim("K", 5, 300, 1024);
  op.formula("y = matmul(a, b, transpose_b=1)");
  op.storage({AC_FP16, AC_BF16}).accumulate(accumulator);
  op.forward<Half, BFloat16>([how]<class T>(Type<T>, const Call& call) {
    const auto a = call.view<const T>("a"), b = call.view<const T>("b");
    const auto y = call.view<float>("y");
    const std::int64_t columns = a.extent(1);
    const std::int64_t end = how.drops_last ? (columns - 1) / kBlock * kBlock : columns;
    for (std::int64_t i = 0; i < a.extent(0); ++i)
      for (std::int64_t j = 0; j < b.extent(0); ++j) {
        float sum = 0;
        for (std::int64_t k = 0; k < end; k += kBlock) {
          T left[kBlock] = {}, right[kBlock] = {};
          const std::int64_t n = std::min(kBlock, end - k);
          for (std::int64_t l = 0; l < n; ++l) {
            left[l] = a(i, k + l);
            right[l] = b(j, k + l);
          }
          sum = block(sum, left, right, n, how.bits);
          if (how.in_fp16) sum = float(Half(sum));
        }
        y(i, j) = sum;
      }
  });
}

}  // namespace

AMPCHECK_OP(core_matmul, op) { describe(op, AC_TENSOR_CORE_H100, {}); }
AMPCHECK_OP(core_matmul_of_any, op) { describe(op, AC_TENSOR_CORE_ANY, {}); }
AMPCHECK_OP(core_matmul_13_bits, op) { describe(op, AC_TENSOR_CORE_H100, {.bits = 13}); }
AMPCHECK_OP(core_matmul_in_fp16, op) { describe(op, AC_TENSOR_CORE_H100, {.in_fp16 = true}); }
AMPCHECK_OP(core_matmul_drops_last, op) { describe(op, AC_TENSOR_CORE_H100, {.drops_last = true}); }
