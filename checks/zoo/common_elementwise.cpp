// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Elementwise kernels of the zoo that were its unseen part once; rules have followed from them since.
#include <cfloat>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

const std::vector<Dtype> kFp8 = {Dtype::e4m3fn, Dtype::e5m2};
const std::vector<Dtype> kWideExponents = {Dtype::fp32, Dtype::bf16};  ///< whose subnormals are those of fp32

// ---- Arithmetic and functions of one tensor. ----

/// Rounded to the storage type, ties away from zero.
float half_away(Dtype dtype, float x) {
  const float near = rounded(dtype, x);
  if (!std::isfinite(near)) return near;
  const float other = near + 2 * (x - near);  // the neighbour across, where x is a tie
  return rounded(dtype, other) == other && std::fabs(other) > std::fabs(near) ? other : near;
}

float product(float x, float y, Dtype) { return x * y; }
float times_y(float, float y, float g, Dtype) { return g * y; }
float times_x(float x, float, float g, Dtype) { return g * x; }
float passed_on(float, float, float g, Dtype) { return g; }

void add_binary(std::vector<Specimen>& out) {
  add(out, "add",
      {{"half_away", 29, "ties are rounded away from zero when the sum is stored", "ties", V::bug,
        "ties|half away|away from zero|nearest even",
        binary([](float x, float y, Dtype t) { return half_away(t, x + y); }, passed_on, passed_on), kHalfTypes,
        V::precision_contract}},
      {});
  add(out, "mul",
      {{"gradient_in_place", 21, "dx is written over x before dy = g x is computed from it", "any", V::structural,
        "linear in the cotangent|another output|another input|swap|dx",
        binary(product, times_y, [](float, float y, float g, Dtype t) { return g * rounded(t, g * y); }), kAllTypes,
        V::bug},
       {"truncated_codes", 29, "the product is cut to 8 bits, not rounded", "inexact products", V::precision_contract,
        "truncat|toward zero", binary(product, times_y, times_x, {Io::truncate, "z"}), kFp8, V::bug}},
      {{"product_in_fp16",
        "by way of fp16, which holds each product of e4m3 numbers that e4m3 can hold",
        binary([](float x, float y, Dtype) { return fp16(x * y); },
               [](float, float y, float g, Dtype) { return fp16(g * y); },
               [](float x, float, float g, Dtype) { return fp16(g * x); }),
        "",
        {Dtype::e4m3fn}}});
  add(out, "div",
      {{"from_stored_quotient", 27, "dy = -g z / y from z as stored", "any", V::precision_contract,
        "rounded|stored|saved|keeps|takes",
        binary([](float x, float y, Dtype) { return x / y; }, [](float, float y, float g, Dtype) { return g / y; },
               [](float x, float y, float g, Dtype t) { return -g * rounded(t, x / y) / y; }),
        kHalfTypes, V::bug}},
      {});
}

/// 2^f by its Taylor polynomial of degree 4, good for |f| below 1/2; f is what is left of x log2(e) without its whole
/// part, up to 1.
float exp_by_whole_part(float x, Dtype) {
  if (!(std::fabs(x) < 80)) return std::exp(x);
  const float scaled = x * 1.44269504f, whole = std::trunc(scaled), f = (scaled - whole) * 0.69314718f;
  return std::ldexp(1 + f * (1 + f * (0.5f + f * (1 / 6.0f + f * (1 / 24.0f)))), static_cast<int>(whole));
}

float without_subnormal(float x) { return std::fabs(x) < FLT_MIN ? 0.0f : x; }

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
float silu_slope(float x, float s) { return s * (1 + x * (1 - s)); }

void add_functions(std::vector<Specimen>& out) {
  add(out, "exp",
      {{"polynomial_beyond_range", 29, "2^f by a polynomial for |f| < 1/2 is asked for |f| < 1", "any",
        V::precision_contract, "fast|exp|digits|approximat|polynomial",
        unary(exp_by_whole_part, [](float x, float g, Dtype) { return g * std::exp(x); }), kAllTypes, V::bug}},
      {});
  add(out, "log",
      {{"subnormals_as_zero", 29, "subnormal inputs are taken for zero", "subnormal x", V::precision_contract,
        "flush|subnormal|smallest normal|zero",
        unary([](float x, Dtype) { return std::log(without_subnormal(x)); },
              [](float x, float g, Dtype) { return g / without_subnormal(x); }),
        kWideExponents, V::bug}},
      {});
  add(out, "sqrt",
      {{"floored_root", 6, "dx = g / (2 max(y, 1e-4))", "x below 1e-8", V::bug,
        "eps|constant|clamp|clip|satur|floor|0.0001|1e-04|finite where|not the NaN",
        unary([](float x, Dtype) { return std::sqrt(x); },
              [](float x, float g, Dtype) {
                const float y = std::sqrt(x);
                return g / (2 * (y < 1e-4f ? 1e-4f : y));
              }),
        kWideExponents}},
      {});
  add(out, "sigmoid",
      {{"exponential_in_fp16", 24, "exp(-x) is computed in fp16", "any; infinite below -11", V::precision_contract,
        "fp16|rounded|stored|keeps|takes|overflow|infinite",
        unary([](float x, Dtype) { return 1 / (1 + fp16(std::exp(-x))); },
              [](float x, float g, Dtype) {
                const float y = sigmoid(x);
                return g * (y * (1 - y));
              }),
        kAllTypes, V::bug}},
      {});
  add(out, "tanh",
      {{"slope_of_half_argument", 1, "dx = g (1 - tanh(x/2)^2), as after 2 sigmoid(x) - 1", "any", V::bug,
        "factor|another function|another activation|sigmoid|argument|x/2",
        unary([](float x, Dtype) { return std::tanh(x); },
              [](float x, float g, Dtype) {
                const float t = std::tanh(0.5f * x);
                return g * (1 - t * t);
              })}},
      {});
}

// ---- Activations. ----

constexpr float kSqrtHalf = 0.70710678f, kDensity = 0.39894228f;  // 1/sqrt(2), 1/sqrt(2 pi)
constexpr float kScale = 0.79788456f, kCubic = 0.044715f;         // sqrt(2/pi)

float cdf(float x) { return 0.5f * (1 + std::erf(x * kSqrtHalf)); }
float gelu_slope(float x) { return cdf(x) + x * (std::exp(-0.5f * (x * x)) * kDensity); }

float argument(float x) { return kScale * (x + kCubic * (x * x * x)); }
float gelu_tanh_slope(float x, float t) {
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * (kScale * (1 + 3 * kCubic * (x * x)));
}
/// A continued fraction of tanh, good for |u| below 4; no clamp beyond.
float tanh_by_fraction(float u) {
  const float s = u * u;
  return u * (135135 + s * (17325 + s * (378 + s))) / (135135 + s * (62370 + s * (3150 + 28 * s)));
}
float tanh_by_expm1(float u) {
  const float e = std::expm1(-2 * std::fabs(u));
  return std::copysign(-e / (2 + e), u);
}

/// In fp64, rounded once.
float silu_in_double(float x, Dtype) {
  const auto v = static_cast<double>(x);
  return static_cast<float>(v / (1 + std::exp(-v)));
}
float silu_slope_in_double(float x, float g, Dtype) {
  const auto v = static_cast<double>(x);
  const double s = 1 / (1 + std::exp(-v));
  return static_cast<float>(static_cast<double>(g) * (s * (1 + v * (1 - s))));
}

void add_activations(std::vector<Specimen>& out) {
  add(out, "gelu",
      {{"derivative_at_output", 30, "the derivative is taken at y, not at x", "any", V::bug, "output|at y",
        unary([](float x, Dtype) { return x * cdf(x); },
              [](float x, float g, Dtype) { return g * gelu_slope(x * cdf(x)); })}},
      {});
  add(out, "gelu_tanh",
      {{"rational_tanh", 29, "tanh by a fraction that is not held at 1", "|x| above 3", V::precision_contract,
        "fast|tanh|approximat|digits|another function|another activation|overflow|inf-inf|infinite|leaves the range",
        unary([](float x, Dtype) { return 0.5f * x * (1 + tanh_by_fraction(argument(x))); },
              [](float x, float g, Dtype) { return g * gelu_tanh_slope(x, std::tanh(argument(x))); }),
        kAllTypes, V::bug}},
      {{"by_expm1", "tanh by expm1 in both directions",
        unary([](float x, Dtype) { return 0.5f * x * (1 + tanh_by_expm1(argument(x))); },
              [](float x, float g, Dtype) { return g * gelu_tanh_slope(x, tanh_by_expm1(argument(x))); }),
        "tanh by expm1"}});
  add(out, "silu",
      {{"complement_forgotten", 1, "dx = g s (1 + x) for g s (1 + x (1 - s))", "any", V::bug,
        "factor|term missing|missing term|without the term|missing",
        unary([](float x, Dtype) { return x * sigmoid(x); },
              [](float x, float g, Dtype) { return g * (sigmoid(x) * (1 + x)); })}},
      {{"both_in_double", "in fp64, rounded once", unary(silu_in_double, silu_slope_in_double)}});
}

constexpr BinaryNames kGated = {"gate", "up", "y"};

float gate_gradient(float gate, float up, float g, Dtype) { return g * up * silu_slope(gate, sigmoid(gate)); }
float up_gradient(float gate, float, float g, Dtype) { return g * (gate * sigmoid(gate)); }

void add_gated(std::vector<Specimen>& out) {
  add(out, "swiglu",
      {{"sigmoid_of_up", 7, "dgate takes sigmoid(up) for sigmoid(gate)", "any", V::bug,
        "another input|other input|swap|exchang|s(up)|sigmoid(up)|sigmoid of up|up in place",
        binary([](float gate, float up, Dtype) { return gate * sigmoid(gate) * up; },
               [](float gate, float up, float g, Dtype) { return g * up * silu_slope(gate, sigmoid(up)); }, up_gradient,
               {}, kGated)},
       {"gate_limited", 30, "the gate is held below 7 in forward", "gate above 7", V::bug,
        "clamp|clip|satur|limit|cut|constant|another activation|another function",
        binary(
            [](float gate, float up, Dtype) {
              const float held = gate > 7 ? 7.0f : gate;
              return held * sigmoid(held) * up;
            },
            gate_gradient, up_gradient, {}, kGated)}},
      {{"by_exp", "gate / (1 + exp(-gate)), and s + gate s (1 - s)",
        binary([](float gate, float up, Dtype) { return gate / (1 + std::exp(-gate)) * up; },
               [](float gate, float up, float g, Dtype) {
                 const float s = sigmoid(gate);
                 return (g * up) * (s + gate * s * (1 - s));
               },
               [](float gate, float, float g, Dtype) { return g * (gate / (1 + std::exp(-gate))); }, {}, kGated),
        "x / (1 + exp(-x))"}});
}

}  // namespace

std::vector<Specimen> common_elementwise_specimens() {
  std::vector<Specimen> out;
  add_binary(out);
  add_functions(out);
  add_activations(out);
  add_gated(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
