// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Activations of the unseen part of the zoo: written after public fixes of kernels, without a look at the rules.
#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// ---- gelu in both forms ----

constexpr float kSqrtHalf = 0.70710678f, kDensity = 0.39894228f;  // 1/sqrt(2), 1/sqrt(2 pi)
constexpr float kScale = 0.79788456f, kCubic = 0.044715f;         // sqrt(2/pi)

float cdf(float x) { return 0.5f * (1 + std::erf(x * kSqrtHalf)); }
float density(float x) { return kDensity * std::exp(-0.5f * (x * x)); }
float gelu(float x, Dtype) { return x * cdf(x); }

float argument(float x) { return kScale * (x + kCubic * (x * x * x)); }
float slope_of_argument(float x) { return kScale * (1 + 3 * kCubic * (x * x)); }
float gelu_tanh(float x, Dtype) { return 0.5f * x * (1 + std::tanh(argument(x))); }
float gelu_tanh_slope(float x, float g, Dtype) {
  const float t = std::tanh(argument(x));
  return g * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * slope_of_argument(x));
}

float gelu_in_double(float x, Dtype) {
  const auto v = static_cast<double>(x);
  return static_cast<float>(v / 2 * std::erfc(v * -0.7071067811865476));
}
float gelu_slope_in_double(float x, float g, Dtype) {
  const auto v = static_cast<double>(x);
  const double c = 0.5 * std::erfc(v * -0.7071067811865476), p = 0.3989422804014327 * std::exp(v * v * -0.5);
  return static_cast<float>(static_cast<double>(g) * (c + v * p));
}

void add_gelu(std::vector<Specimen>& out) {
  add(out, "gelu",
      {{"density_negated", 2, "dx = g (cdf - x pdf), where a plus is due", "any", V::bug, "sign|negat|subtract",
        unary(gelu, [](float x, float g, Dtype) { return g * (cdf(x) - x * density(x)); })},
       {"slope_of_unscaled_erf", 48, "the cdf of backward is (1 + erf(x)) / 2, without its 1/sqrt(2)", "any", V::bug,
        "constant|factor|sqrt|root|argument|another function|another activation|scale",
        unary(gelu, [](float x, float g, Dtype) { return g * (0.5f * (1 + std::erf(x)) + x * density(x)); })}},
      {{"both_in_double", "in fp64, rounded once", unary(gelu_in_double, gelu_slope_in_double)}});
  add(out, "gelu_tanh",
      {{"four_fifths", 48, "0.8 in place of sqrt(2/pi), in both directions", "any", V::bug,
        "constant|factor|coefficient|sqrt|0.8",
        unary([](float x, Dtype) { return 0.5f * x * (1 + std::tanh(0.8f * (x + kCubic * x * x * x))); },
              [](float x, float g, Dtype) {
                const float t = std::tanh(0.8f * (x + kCubic * x * x * x));
                return g * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * (0.8f * (1 + 3 * kCubic * x * x)));
              })},
       {"half_forgotten_in_slope", 1, "the second term of the gradient without its 1/2", "any", V::bug,
        "factor|twice|half|constant|0.5|doubled",
        unary(gelu_tanh,
              [](float x, float g, Dtype) {
                const float t = std::tanh(argument(x));
                return g * (0.5f * (1 + t) + x * (1 - t * t) * slope_of_argument(x));
              })},
       {"value_in_storage", 25, "tanh is rounded to the storage type before it is used in forward", "any",
        V::precision_contract, "rounded|stored|keeps|takes|tanh",
        unary([](float x, Dtype t) { return 0.5f * x * (1 + rounded(t, std::tanh(argument(x)))); }, gelu_tanh_slope),
        kHalfTypes, V::bug}},
      {});
}

// ---- silu and swiglu ----

float silu(float x, Dtype) { return x * sigmoid(x); }
float silu_slope(float x) {
  const float s = sigmoid(x);
  return s * (1 + x * (1 - s));
}

constexpr BinaryNames kGated = {"gate", "up", "y"};

float gated(float gate, float up, Dtype t) { return silu(gate, t) * up; }
float up_gradient(float gate, float, float g, Dtype t) { return g * silu(gate, t); }

void add_silu(std::vector<Specimen>& out) {
  add(out, "silu",
      {{"complement_of_sigmoid", 7, "dx = g (y + s (1 - s)), where s (1 - y) is due", "any", V::bug,
        "output|another|exchang|swap|operand|factor|term missing|missing term|without the term|for y|sigmoid",
        unary(silu,
              [](float x, float g, Dtype) {
                const float s = sigmoid(x);
                return g * (x * s + s * (1 - s));
              })},
       {"slope_of_relu_far_out", 30, "the slope of relu left of -4 and right of 4", "|x| above 4", V::bug,
        "another activation|another function|relu|clip|clamp|satur|zero|constant|only where",
        unary(silu, [](float x, float g, Dtype) { return x > 4    ? g
                                                         : x < -4 ? 0.0f
                                                                  : g * silu_slope(x); })}},
      {});
  add(out, "swiglu",
      {{"dgate_without_product_rule", 3, "dgate = g up s(gate), without gate s'", "any", V::bug,
        "term missing|missing term|without the term|missing|factor|sigmoid",
        binary(
            gated, [](float gate, float up, float g, Dtype) { return g * up * sigmoid(gate); }, up_gradient, {},
            kGated)},
       {"cotangent_product_in_storage", 25, "g up is rounded to the storage type before it meets the slope", "any",
        V::precision_contract, "rounded|stored|keeps|takes",
        binary(
            gated, [](float gate, float up, float g, Dtype t) { return rounded(t, g * up) * silu_slope(gate); },
            up_gradient, {}, kGated),
        kHalfTypes, V::bug},
       {"dgate_over_gate", 21, "dgate is written over gate before dup is computed from it", "any", V::structural,
        "linear in the cotangent|another output|another input|swap|dgate",
        binary(
            gated, [](float gate, float up, float g, Dtype) { return g * up * silu_slope(gate); },
            [](float gate, float up, float g, Dtype t) { return g * silu(rounded(t, g * up * silu_slope(gate)), t); },
            {}, kGated),
        kAllTypes, V::bug},
       {"up_plus_one", 44, "gate sigmoid(gate) (up + 1), in forward and in dgate, as some models have it", "any",
        V::bug, "constant|added|one more|term|another function|plus|+ 1|1 +|bias",
        binary([](float gate, float up, Dtype t) { return silu(gate, t) * (up + 1); },
               [](float gate, float up, float g, Dtype) { return g * (up + 1) * silu_slope(gate); }, up_gradient, {},
               kGated)}},
      {{"slope_first", "dgate = (g slope) up",
        binary(
            gated, [](float gate, float up, float g, Dtype) { return (g * silu_slope(gate)) * up; }, up_gradient, {},
            kGated)}});
}

// ---- Rectifiers ----

void add_rectifiers(std::vector<Specimen>& out) {
  add(out, "relu",
      {{"small_is_zero", 6, "0 and slope 0 below 1e-3, not below 0", "x between 0 and 1e-3", V::bug,
        "eps|constant|threshold|zero|flush|floor|small|clip|clamp",
        elementwise([](float x, float) { return x <= 1e-3f ? 0.0f : x; },
                    [](float x, float g, float) { return x <= 1e-3f ? 0.0f : g; })}},
      {{"in_fp8",
        "as written, in 8 bits",
        elementwise([](float x, float) { return x <= 0 ? 0.0f : x; },
                    [](float x, float g, float) { return x <= 0 ? 0.0f : g; }),
        "",
        {Dtype::e4m3fn, Dtype::e5m2}}});
  add(out, "leaky_relu",
      {{"branches_exchanged", 2, "the slope is applied on the right, forward and backward", "any", V::bug,
        "branch|sign|swap|exchang|revers|side|attribute|slope|factor|mask",
        elementwise([](float x, float a) { return x > 0 ? a * x : x; },
                    [](float x, float g, float a) { return x > 0 ? a * g : g; }, "negative_slope")}},
      {});
  add(out, "elu",
      {{"slope_at_output", 30, "dx = g alpha exp(y) on the left: the derivative at y, not at x", "negative x", V::bug,
        "output|at y|y for x",
        elementwise([](float x, float a) { return x <= 0 ? a * std::expm1(x) : x; },
                    [](float x, float g, float a) { return x <= 0 ? g * (a * std::exp(a * std::expm1(x))) : g; },
                    "alpha")},
       {"alpha_divides_argument", 7, "alpha (exp(x / alpha) - 1), which is celu", "negative x and another alpha",
        V::bug, "alpha|attribute|another activation|another function|divi|factor|celu",
        elementwise([](float x, float a) { return x <= 0 ? a * std::expm1(x / a) : x; },
                    [](float x, float g, float a) { return x <= 0 ? g * std::exp(x / a) : g; }, "alpha")}},
      {});
}

float softplus(float x, float beta) {
  const float z = beta * x;
  return (std::fmax(z, 0.0f) + std::log1p(std::exp(-std::fabs(z))) + (z != z ? z : 0.0f)) / beta;
}

/// -1 below -bound, 1 above it.
int side(float x, float bound) { return x < -bound ? -1 : x > bound ? 1 : 0; }

void add_told(std::vector<Specimen>& out) {
  add(out, "softplus",
      {{"slope_of_beta_one", 45, "dx = g sigmoid(x), where sigmoid(beta x) is due", "another beta", V::bug,
        "beta|attribute|factor|argument",
        elementwise(
            softplus, [](float x, float g, float) { return g * sigmoid(x); }, "beta")}},
      {});
  add(out, "pow",
      {{"slope_of_one_less", 1, "dx = g (p - 1) x^(p-1), where the factor p is due", "any", V::bug,
        "factor|exponent|attribute|constant|off by one|coefficient",
        elementwise([](float x, float p) { return std::pow(x, p); },
                    [](float x, float g, float p) { return g * ((p - 1) * std::pow(x, p - 1)); }, "exponent")}},
      {{"both_in_double", "value and slope in fp64, rounded once",
        elementwise([](float x, float p) { return static_cast<float>(std::pow(static_cast<double>(x), p)); },
                    [](float x, float g, float p) {
                      const auto e = static_cast<double>(p);
                      return static_cast<float>(static_cast<double>(g) * e * std::pow(static_cast<double>(x), e - 1));
                    },
                    "exponent")}});
  add(out, "clamp",
      {{"symmetric", 45, "the lower bound is -max, whatever min is", "bounds that are no opposites", V::bug,
        "min|attribute|constant|bound|sign|negat",
        kernel_of(
            [](const Call& call) {
              Values y = call.in("x");
              for (float& v : y) {
                const int at = side(v, call.number("max"));
                if (at != 0) v = static_cast<float>(at) * call.number("max");
              }
              call.out("y", y);
            },
            [](const Call& call) {
              const Values x = call.in("x");
              Values dx = call.in("dy");
              for (std::size_t i = 0; i < dx.size(); ++i)
                if (side(x[i], call.number("max")) != 0) dx[i] = 0;
              call.out("dx", dx);
            })}},
      {});
}

}  // namespace

std::vector<Specimen> unseen_activation_specimens() {
  std::vector<Specimen> out;
  add_gelu(out);
  add_silu(out);
  add_rectifiers(out);
  add_told(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
