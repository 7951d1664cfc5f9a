// SPDX-License-Identifier: Apache-2.0
// Kernels on 8-bit numbers: an activation that is stored in them, a quantization (which may saturate, or make NaN of
// what overflows), and a matrix product of two with scales that writes bf16. The broken ones: 240 for the largest
// number, as another format has it; 14 bits of accumulator, as the first tensor cores for fp8 keep; the scale of
// another column; a slope of the tanh form in the gradient.
#include <ampcheck/op.h>

#include <algorithm>
#include <cmath>

#include "unary.h"

namespace {

using namespace ampcheck::op;

float phi(float x) { return 0.5f * std::erfc(-x * 0.70710678f); }

template <class G>
void describe_gelu(Op& op, const G& gradient) {
  op.summary("gelu, stored in 8 bits");
  op.formula("y = x * 0.5 * (1 + erf(x * 0.70710678118654752440))");
  op.form("erfc", "y = x * 0.5 * erfc(-x * 0.70710678118654752440)");
  op.storage({AC_E4M3FN, AC_E5M2});
  describe_unary<Float8E4M3, Float8E5M2>(
      op, [](float x) { return x * phi(x); }, gradient);
}

float gelu_slope(float x) { return phi(x) + x * 0.39894228f * std::exp(-0.5f * x * x); }

void describe_quantize(Op& op, float largest) {
  op.summary("y = x scale, in e4m3fn; saturates");
  op.input("x", "N D").no_gradient();
  op.input("scale", "N").type(AC_TYPE_FP32).positive().no_gradient();
  op.output("y").type(AC_TYPE_E4M3FN);
  op.dim("N", 5, 64, 3);
  op.dim("D", 7, 129, 1024);
  op.formula("y = x * reshape(scale, N, 1)");
  op.forward([largest]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x");
    const auto scale = call.view<const float>("scale");
    const auto y = call.view<Float8E4M3>("y");
    for (std::int64_t i = 0; i < x.extent(0); ++i)
      for (std::int64_t j = 0; j < x.extent(1); ++j) {
        const float value = float(x(i, j)) * scale[i];
        y(i, j) = Float8E4M3(largest > 0 && value == value ? std::clamp(value, -largest, largest) : value);
      }
  });
}

/// `bits`: of the accumulator's fraction. `shift`: which column's scale is taken.
void describe_matmul(Op& op, int bits, std::int64_t shift) {
  op.summary("c = (a b^T) scale_a scale_b of 8-bit numbers, in bf16");
  op.input("a", "M K").no_gradient();
  op.input("b", "N K").no_gradient();
  op.input("scale_a", "M").type(AC_TYPE_FP32).positive().no_gradient();
  op.input("scale_b", "N").type(AC_TYPE_FP32).positive().no_gradient();
  op.output("c").type(AC_TYPE_BF16);
  op.dim("M", 5, 17, 2);
  op.dim("N", 7, 9, 33);
  op.dim("K", 64, 300, 1024);
  op.formula("c = matmul(a, b, transpose_b=1) * reshape(scale_a, M, 1) * reshape(scale_b, 1, N)");
  op.storage({AC_E4M3FN, AC_E5M2});
  op.forward<Float8E4M3, Float8E5M2>([=]<class T>(Type<T>, const Call& call) {
    const auto a = call.view<const T>("a"), b = call.view<const T>("b");
    const auto scale_a = call.view<const float>("scale_a"), scale_b = call.view<const float>("scale_b");
    const auto c = call.view<BFloat16>("c");
    for (std::int64_t i = 0; i < a.extent(0); ++i)
      for (std::int64_t j = 0; j < b.extent(0); ++j) {
        float sum = 0;
        for (std::int64_t k = 0; k < a.extent(1); ++k) {
          sum += float(a(i, k)) * float(b(j, k));
          if (bits < 23 && sum != 0 && std::isfinite(sum)) {
            const float unit = std::ldexp(1.0f, std::max(std::ilogb(sum) - bits, -149));
            sum = std::trunc(sum / unit) * unit;
          }
        }
        c(i, j) = BFloat16(sum * scale_a[i] * scale_b[(j + shift) % b.extent(0)]);
      }
  });
}

}  // namespace

AMPCHECK_OP(fp8_gelu, op) {
  describe_gelu(op, [](float x, float dy) { return dy * gelu_slope(x); });
}
AMPCHECK_OP(fp8_gelu_tanh_slope, op) {
  describe_gelu(op, [](float x, float dy) {
    const float t = std::tanh(0.7978845608f * (x + 0.044715f * x * x * x));
    return dy * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 0.134145f * x * x));
  });
}
AMPCHECK_OP(quantize_fp8, op) { describe_quantize(op, 448); }
AMPCHECK_OP(quantize_fp8_to_nan, op) { describe_quantize(op, 0); }
AMPCHECK_OP(quantize_fp8_240, op) { describe_quantize(op, 240); }
AMPCHECK_OP(fp8_matmul, op) { describe_matmul(op, 23, 0); }
AMPCHECK_OP(fp8_matmul_14_bits, op) { describe_matmul(op, 13, 0); }
AMPCHECK_OP(fp8_matmul_next_scale, op) { describe_matmul(op, 23, 1); }
