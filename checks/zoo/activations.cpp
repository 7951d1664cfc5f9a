// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// gelu, gelu_tanh, silu and swiglu.
#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

constexpr float kSqrtHalf = 0.70710678f, kDensity = 0.39894228f;  // 1/sqrt(2), 1/sqrt(2 pi)
float cdf(float x) { return 0.5f * (1 + std::erf(x * kSqrtHalf)); }
float density(float x) { return std::exp(-0.5f * (x * x)) * kDensity; }
float gelu_of(float x, Dtype) { return x * cdf(x); }
float gelu_slope(float x, float g, Dtype) { return g * (cdf(x) + x * density(x)); }

constexpr float kScale = 0.79788456f, kCubic = 0.044715f;  // sqrt(2/pi)
float argument(float x) { return kScale * (x + kCubic * (x * x * x)); }
float slope_with(float x, float t, float cubic) {
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * (kScale * (1 + cubic * kCubic * (x * x)));
}
float gelu_tanh_of(float x, Dtype) { return 0.5f * x * (1 + std::tanh(argument(x))); }
float gelu_tanh_slope(float x, float g, Dtype) { return g * slope_with(x, std::tanh(argument(x)), 3); }

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
float silu_of(float x, Dtype) { return x * sigmoid(x); }
float silu_slope(float x, float g, Dtype) {
  const float s = sigmoid(x);
  return g * (s * (1 + x * (1 - s)));
}

constexpr BinaryNames kGated = {"gate", "up", "y"};
float gated(float gate, float up, Dtype) { return gate * sigmoid(gate) * up; }
float gate_slope(float gate, float up, float g, Dtype) {
  const float s = sigmoid(gate);
  return g * up * (s * (1 + gate * (1 - s)));
}
float up_slope(float gate, float, float g, Dtype) { return g * (gate * sigmoid(gate)); }
Kernel swiglu(Slip slip) { return binary(gated, gate_slope, up_slope, std::move(slip), kGated); }

void add_swiglu(std::vector<Specimen>& out) {
  add(out, "swiglu",
      {{"dup_without_gate", 1, "dup = g s(gate)", "any", V::bug, "factor gate|missing factor",
        binary(
            gated, gate_slope, [](float gate, float, float g, Dtype) { return g * sigmoid(gate); }, {}, kGated)},
       {"gradients_swapped", 7, "dgate and dup are exchanged", "any", V::bug,
        "swap|another input|other input|another output or gradient", binary(gated, up_slope, gate_slope, {}, kGated)},
       {"clobbers_gate", 21, "backward overwrites gate", "any", V::structural, "changes its inputs",
        swiglu({Io::clobber, "gate"})},
       {"strides_of_gate", 20, "up is read with the strides of gate", "gate or up strided alone", V::structural,
        "strided", swiglu({Io::read_with_strides, "up", 1, "gate"})},
       {"silu_in_storage", 25, "silu(gate) is rounded to the storage type before the product", "any",
        V::precision_contract, "rounded|stored|keeps|takes",
        binary([](float gate, float up, Dtype t) { return rounded(t, gate * sigmoid(gate)) * up; }, gate_slope,
               up_slope, {}, kGated),
        kHalfTypes, V::bug},
       {"gelu_inside", 30, "gelu of the gate, as GEGLU", "any", V::bug, "another activation|another function",
        binary([](float gate, float up, Dtype) { return gate * cdf(gate) * up; }, gate_slope, up_slope, {}, kGated)},
       {"dense_cotangent", 18, "dy is read as if row-major", "strided dy", V::structural, "strided",
        swiglu({Io::read_dense, "dy"})},
       {"gate_slope_without_up", 3, "dgate without its factor up", "any", V::bug, "factor up|missing factor|missing",
        binary(
            gated,
            [](float gate, float, float g, Dtype) {
              const float s = sigmoid(gate);
              return g * (s * (1 + gate * (1 - s)));
            },
            up_slope, {}, kGated)},
       {"rows_of_8", 13, "rows after the last full tile of 8 are not written", "rows that are no multiple of 8",
        V::structural, "output buffer held|unwritten", swiglu({Io::drop_tail_of_8_rows, "dgate"})}},
      {{"regrouped", "gate (s up), dup = (g s) gate",
        binary([](float gate, float up, Dtype) { return gate * (sigmoid(gate) * up); }, gate_slope,
               [](float gate, float, float g, Dtype) { return g * sigmoid(gate) * gate; }, {}, kGated)},
       {"plain", "as written", swiglu({})}});
}

}  // namespace

std::vector<Specimen> activation_specimens() {
  std::vector<Specimen> out;
  add(out, "gelu",
      {{"slope_of_tanh_form", 30, "the gradient of the tanh approximation", "any", V::bug, "another activation|tanh",
        unary(gelu_of, gelu_tanh_slope)},
       {"density_constant", 48, "0.4 in place of 1/sqrt(2 pi)", "any", V::bug, "constant|factor",
        unary(gelu_of, [](float x, float g, Dtype) { return g * (cdf(x) + x * (std::exp(-0.5f * (x * x)) * 0.4f)); })},
       {"no_tail", 28, "slope 0 below -3", "x below -3", V::bug, "zero|tail",
        unary(gelu_of, [](float x, float g, Dtype t) { return x < -3 ? 0.0f : gelu_slope(x, g, t); })},
       {"rough_exp", 29, "exp of the density from a table, 0.2 % off", "any", V::precision_contract, "fast|exp",
        unary(gelu_of,
              [](float x, float g, Dtype) { return g * (cdf(x) + x * density(x) * (1 + 2e-3f * std::sin(50 * x))); }),
        kAllTypes, V::bug},
       {"density_twice", 1, "x pdf without its 1/2", "any", V::bug, "factor|twice",
        unary(gelu_of, [](float x, float g, Dtype) { return g * (cdf(x) + 2 * x * density(x)); })},
       {"erf_saturates", 28, "erf is 1 beyond 2.5", "|x| above 3.5", V::bug, "zero|satur",
        unary(
            [](float x, Dtype) {
              const float z = x * kSqrtHalf;
              return 0.5f * x * (1 + (z > 2.5f ? 1.0f : z < -2.5f ? -1.0f : std::erf(z)));
            },
            gelu_slope)},
       {"quick", 30, "x sigmoid(1.702 x)", "any", V::bug, "another activation|another function",
        unary([](float x, Dtype) { return x * sigmoid(1.702f * x); }, gelu_slope)},
       {"density_missing", 3, "dx = g cdf", "any", V::bug, "term missing|missing term|without the term",
        unary(gelu_of, [](float x, float g, Dtype) { return g * cdf(x); })},
       {"stale_last_row", 17, "the last row of dx is that of the first", "more than one row", V::structural,
        "rows are not independent|last row|stale", unary(gelu_of, gelu_slope, {Io::last_row_from_first, "dx"})}},
      {{"erfc", "x/2 erfc(-x/sqrt(2)) and the same in backward",
        unary([](float x, Dtype) { return 0.5f * x * std::erfc(-(x * kSqrtHalf)); },
              [](float x, float g, Dtype) { return g * (0.5f * std::erfc(-(x * kSqrtHalf)) + x * density(x)); }),
        "erfc, g (cdf + x pdf)"},
       {"halved_first", "(x/2) (1 + erf)",
        unary([](float x, Dtype) { return 0.5f * x * (1 + std::erf(x * kSqrtHalf)); }, gelu_slope)}});
  add(out, "gelu_tanh",
      {{"cubic_slope", 1, "the derivative of x^3 without its 3", "any", V::bug, "factor",
        unary(gelu_tanh_of, [](float x, float g, Dtype) { return g * slope_with(x, std::tanh(argument(x)), 1); })},
       {"slope_of_erf_form", 30, "the gradient of the exact gelu", "any", V::bug, "another activation|erf",
        unary(gelu_tanh_of, gelu_slope)},
       {"tanh_overflows", 28, "tanh as (e - 1) / (e + 1), e = exp(2u)", "x above 5", V::range_declared,
        "overflow|inf-inf|infinite",
        unary(
            [](float x, Dtype) {
              const float e = std::exp(2 * argument(x));
              return 0.5f * x * (1 + (e - 1) / (e + 1));
            },
            gelu_tanh_slope),
        kAllTypes, V::bug},
       {"tanh_saturates", 28, "tanh is 1 beyond 3", "|u| above 3", V::bug, "zero|satur",
        unary(
            [](float x, Dtype) {
              const float u = argument(x);
              return 0.5f * x * (1 + (u > 3 ? 1.0f : u < -3 ? -1.0f : std::tanh(u)));
            },
            gelu_tanh_slope)},
       {"constant", 48, "0.0447 in place of 0.044715", "any", V::bug, "constant|factor",
        unary([](float x, Dtype) { return 0.5f * x * (1 + std::tanh(kScale * (x + 0.0447f * (x * x * x)))); },
              gelu_tanh_slope),
        kNotBf16},
       {"tanh_saved_in_bf16", 27, "backward works from tanh saved in bf16", "any", V::precision_contract,
        "saved|stored|rounded|keeps|takes",
        unary(gelu_tanh_of, [](float x, float g, Dtype) { return g * slope_with(x, bf16(std::tanh(argument(x))), 3); }),
        kAllTypes, V::bug},
       {"alternating", 38, "an element differs from call to call", "repeats", V::structural, "repeats differ",
        unary(gelu_tanh_of, gelu_tanh_slope, {Io::alternate, "y"}), kFp32}},
      {{"by_sigmoid", "x sigmoid(2u)",
        unary([](float x, Dtype) { return x * sigmoid(2 * argument(x)); }, gelu_tanh_slope)},
       {"plain", "as written", unary(gelu_tanh_of, gelu_tanh_slope)}});
  add(out, "silu",
      {{"slope_of_product_missing", 3, "dx = g s, without x s'", "any", V::bug,
        "term missing|missing term|without the term",
        unary(silu_of, [](float x, float g, Dtype) { return g * sigmoid(x); })},
       {"s_saved_in_bf16", 27, "backward works from s saved in bf16", "any", V::precision_contract,
        "saved|stored|rounded|keeps|takes",
        unary(silu_of,
              [](float x, float g, Dtype) {
                const float s = bf16(sigmoid(x));
                return g * (s * (1 + x * (1 - s)));
              }),
        kAllTypes, V::bug},
       {"overflows", 28, "x exp(x) / (1 + exp(x))", "x above 88", V::range_declared, "overflow|inf-inf|infinite",
        unary(
            [](float x, Dtype) {
              const float e = std::exp(x);
              return x * e / (1 + e);
            },
            silu_slope),
        kAllTypes, V::bug},
       {"squared_cotangent", 10, "g^2 in place of g", "cotangents other than 1", V::structural,
        "linear in the cotangent", unary(silu_of, silu_slope, {Io::squared, "dy"}), kAllTypes, V::bug},
       {"sign_of_slope", 2, "s (1 - x (1 - s))", "any", V::bug, "sign",
        unary(silu_of,
              [](float x, float g, Dtype) {
                const float s = sigmoid(x);
                return g * (s * (1 - x * (1 - s)));
              })},
       {"hard", 30, "x min(max(x + 3, 0), 6) / 6", "any", V::bug, "another activation|another function",
        unary([](float x, Dtype) { return x * std::fmin(std::fmax(x + 3, 0.0f), 6.0f) / 6; }, silu_slope)},
       {"unwritten_row", 15, "the last row of y is not written", "any", V::structural, "output buffer held|unwritten",
        unary(silu_of, silu_slope, {Io::drop_last_row, "y"})}},
      {{"by_exp", "x / (1 + exp(-x))", unary([](float x, Dtype) { return x / (1 + std::exp(-x)); }, silu_slope),
        "x / (1 + exp(-x))"},
       {"from_output", "dx = g (y + s (1 - y))",
        unary(silu_of,
              [](float x, float g, Dtype) {
                const float s = sigmoid(x), y = x * s;
                return g * (y + s * (1 - y));
              }),
        "g (y + s (1 - y))"}});
  add_swiglu(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
