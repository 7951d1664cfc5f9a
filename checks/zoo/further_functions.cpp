// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Smooth functions of one tensor with slips of algebra: a constant, a term or a sign that is not the one in the paper.
#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

constexpr float kSqrtHalf = 0.70710678f, kDensity = 0.39894228f;  // 1/sqrt(2), 1/sqrt(2 pi)
constexpr float kScale = 0.79788456f, kCubic = 0.044715f;         // sqrt(2/pi)

float exp_slope(float x, float g, float) { return g * std::exp(x); }
float log_of(float x, float) { return std::log(x); }
float log_slope(float x, float g, float) { return g / x; }
float sqrt_of(float x, float) { return std::sqrt(x); }
float tanh_of(float x, float) { return std::tanh(x); }
float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
float sigmoid_of(float x, float) { return sigmoid(x); }
float sigmoid_slope(float x, float g, float) {
  const float s = sigmoid(x);
  return g * (s * (1 - s));
}
float silu_of(float x, float) { return x * sigmoid(x); }
float silu_slope(float x, float g, float) {
  const float s = sigmoid(x);
  return g * (s * (1 + x * (1 - s)));
}
float cdf(float x) { return 0.5f * (1 + std::erf(x * kSqrtHalf)); }
float density(float x) { return std::exp(-0.5f * (x * x)) * kDensity; }
float gelu_of(float x, float) { return 0.5f * x * (1 + std::erf(x * kSqrtHalf)); }
float gelu_slope(float x, float g, float) { return g * (cdf(x) + x * density(x)); }
float argument(float x) { return kScale * (x + kCubic * (x * x * x)); }
float gelu_tanh_of(float x, float) { return 0.5f * x * (1 + std::tanh(argument(x))); }
float gelu_tanh_slope(float x, float g, float) {
  const float t = std::tanh(argument(x));
  return g * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * (kScale * (1 + 3 * kCubic * (x * x))));
}
float softplus_of(float x, float beta) {
  const float z = beta * x;
  return ((z < 0 ? 0.0f : z) + std::log1p(std::exp(-std::fabs(z)))) / beta;
}
float softplus_slope(float x, float g, float beta) { return g * sigmoid(beta * x); }

/// 2^(x log2(e)) by a whole part and the series of 2^f up to f^4.
float exp_by_short_series(float x, float) {
  if (!(std::fabs(x) < 80)) return std::exp(x);
  const float whole = std::nearbyint(x * 1.44269504f), f = std::fma(whole, -0.69314718f, x);
  return std::ldexp(1 + f * (1 + f * (0.5f + f * (0.16666667f + f * 0.041666667f))), static_cast<int>(whole));
}

void add_exponentials(std::vector<Specimen>& out) {
  add(out, "exp",
      {{"argument_held",
        28,
        "x above 80 is taken for 80, so that nothing overflows",
        "x above 80",
        V::bug,
        "clamp|clip|satur|cut|limit|constant|held|above 80|finite where",
        elementwise([](float x, float) { return std::exp(x > 80 ? 80 : x); }, exp_slope),
        {Dtype::fp32, Dtype::bf16},
        V::range_declared},
       {"short_series", 29, "2^f by its series up to the fourth power", "any", V::precision_contract,
        "fast|exp|digits|approximat|polynomial|series",
        elementwise(exp_by_short_series, [](float x, float g, float) { return g * exp_by_short_series(x, 0); }),
        kAllTypes, V::bug}},
      {});
  add(out, "log",
      {{"of_one_more", 30, "log(1 + x)", "any", V::bug, "another|1 +|+ 1|added|log1p|constant|plus 1",
        elementwise([](float x, float) { return std::log1p(x); }, log_slope)},
       {"slope_of_log2", 1, "dx = g / (x ln 2), as of log2(x)", "any", V::bug,
        "factor|constant|base|ln 2|ln(2)|log(2)|log2|another",
        elementwise(log_of, [](float x, float g, float) { return g / (x * 0.69314718f); })},
       {"argument_floored",
        28,
        "log(max(x, 1e-7))",
        "x below 1e-7",
        V::bug,
        "clamp|clip|satur|floor|eps|constant|held|limit|below|1e-7|1e-07|finite where|only where",
        elementwise([](float x, float) { return std::log(x < 1e-7f ? 1e-7f : x); }, log_slope),
        {Dtype::fp32, Dtype::bf16}}},
      {});
  add(out, "sqrt",
      {{"slope_inverted", 30, "dx = 2 g y, where g / (2 y) is due", "any", V::bug,
        "invers|invert|reciprocal|divid|factor|power|multipl|another",
        elementwise(sqrt_of, [](float x, float g, float) { return 2 * g * std::sqrt(x); })},
       {"slope_of_cube_root", 48, "dx = g / (3 y), the exponent's factor of another root", "any", V::bug,
        "factor|constant|third|1/3|2/3",
        elementwise(sqrt_of, [](float x, float g, float) { return g / (3 * std::sqrt(x)); })}},
      {});
}

void add_sigmoids(std::vector<Specimen>& out) {
  add(out, "sigmoid",
      {{"slope_of_output_alone", 3, "dx = g y, where g y (1 - y) is due", "any", V::bug,
        "factor|1 - y|term|missing|without",
        elementwise(sigmoid_of, [](float x, float g, float) { return g * sigmoid(x); })},
       {"piecewise", 30, "hard sigmoid, clamp(x / 6 + 1/2, 0, 1)", "any", V::bug,
        "another|hard|clip|clamp|satur|linear|constant",
        elementwise(
            [](float x, float) {
              const float v = x / 6 + 0.5f;
              return v < 0 ? 0.0f : v > 1 ? 1.0f : v;
            },
            [](float x, float g, float) { return x > -3 && x < 3 ? g / 6
                                                 : x == x        ? 0.0f
                                                                 : x; })},
       {"minus_lost", 2, "1 / (1 + exp(x))", "any", V::bug, "sign|negat|mirror|another|1 - y|minus",
        elementwise([](float x, float) { return 1 / (1 + std::exp(x)); }, sigmoid_slope)}},
      {});
  add(out, "tanh",
      {{"slope_with_plus", 2, "dx = g (1 + y^2)", "any", V::bug, "sign|plus",
        elementwise(tanh_of,
                    [](float x, float g, float) {
                      const float t = std::tanh(x);
                      return g * (1 + t * t);
                    })},
       {"slope_of_output", 30, "dx = g (1 - tanh(y)^2): the derivative at y", "any", V::bug,
        "output|at y|of y|y for x|twice",
        elementwise(tanh_of,
                    [](float x, float g, float) {
                      const float t = std::tanh(std::tanh(x));
                      return g * (1 - t * t);
                    })},
       {"argument_doubled", 48, "1 - 2 / (exp(4 x) + 1), the 2 of the identity taken twice", "any", V::bug,
        "factor|twice|constant|argument|another|2 x|2x",
        elementwise([](float x, float) { return std::tanh(2 * x); },
                    [](float x, float g, float) {
                      const float t = std::tanh(x);
                      return g * ((1 - t) * (1 + t));
                    })}},
      {});
  add(out, "silu",
      {{"slope_of_factor_alone", 3, "dx = g x s (1 - s), without s", "any", V::bug, "term|missing|without",
        elementwise(silu_of,
                    [](float x, float g, float) {
                      const float s = sigmoid(x);
                      return g * (x * (s * (1 - s)));
                    })},
       {"slope_of_sigmoid", 30, "dx = g s (1 - s), the derivative of the sigmoid", "any", V::bug,
        "another|sigmoid|factor|term|missing|without", elementwise(silu_of, sigmoid_slope)}},
      {});
}

void add_gelus(std::vector<Specimen>& out) {
  add(out, "gelu",
      {{"half_missing", 1, "x (1 + erf(x / sqrt(2)))", "any", V::bug, "factor|twice|half|0.5",
        elementwise([](float x, float) { return x * (1 + std::erf(x * kSqrtHalf)); }, gelu_slope)},
       {"density_sign", 2, "dx = g (cdf - x pdf)", "any", V::bug, "sign|minus|subtract",
        elementwise(gelu_of, [](float x, float g, float) { return g * (cdf(x) - x * density(x)); })},
       {"density_without_x", 3, "dx = g (cdf + pdf)", "any", V::bug, "factor|missing|without",
        elementwise(gelu_of, [](float x, float g, float) { return g * (cdf(x) + density(x)); })},
       {"density_of_x_squared", 48, "the density is exp(-x^2), where exp(-x^2/2) is due", "any", V::bug,
        "factor|constant|half|0.5|density|exponent|/ 2",
        elementwise(gelu_of,
                    [](float x, float g, float) { return g * (cdf(x) + x * (std::exp(-(x * x)) * kDensity)); })}},
      {});
  add(out, "gelu_tanh",
      {{"slope_unsquared", 1, "1 - t for 1 - t^2 in the slope of tanh", "any", V::bug, "square|power|factor",
        elementwise(gelu_tanh_of,
                    [](float x, float g, float) {
                      const float t = std::tanh(argument(x));
                      return g * (0.5f * (1 + t) + 0.5f * x * (1 - t) * (kScale * (1 + 3 * kCubic * (x * x))));
                    })},
       {"slope_of_line", 3, "the slope of x + c x^3 is taken for that of x", "any", V::bug,
        "factor|term|missing|without|derivative|cubic|1 + 3|x^3",
        elementwise(gelu_tanh_of,
                    [](float x, float g, float) {
                      const float t = std::tanh(argument(x));
                      return g * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * kScale);
                    })},
       {"root_missing", 48, "2/pi, where its root is due", "any", V::bug, "constant|root|sqrt|factor|2/pi|0.63",
        elementwise([](float x, float) { return 0.5f * x * (1 + std::tanh(0.63661977f * (x + kCubic * (x * x * x)))); },
                    gelu_tanh_slope)},
       {"scale_missing_in_slope", 1, "the slope of tanh's argument without sqrt(2/pi)", "any", V::bug,
        "factor|constant|sqrt|scale|missing|without",
        elementwise(gelu_tanh_of,
                    [](float x, float g, float) {
                      const float t = std::tanh(argument(x));
                      return g * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * (1 + 3 * kCubic * (x * x)));
                    })}},
      {});
}

void add_softplus(std::vector<Specimen>& out) {
  add(out, "softplus",
      {{"base_two", 1, "max(z, 0) + log2(1 + exp(-|z|)), with no ln 2", "any", V::bug,
        "factor|constant|base|log2|ln 2|ln(2)|log(2)|another",
        elementwise(
            [](float x, float beta) {
              const float z = beta * x;
              return ((z < 0 ? 0.0f : z) + std::log1p(std::exp(-std::fabs(z))) * 1.44269504f) / beta;
            },
            softplus_slope, "beta")},
       {"beta_forgotten_in_slope", 45, "dx = g sigmoid(x), whatever beta is", "beta other than 1", V::bug,
        "beta|attribute|factor",
        elementwise(
            softplus_of, [](float x, float g, float) { return g * sigmoid(x); }, "beta")},
       {"slope_complement", 2, "dx = g (1 - sigmoid(z)) where z is above 0", "positive x", V::bug,
        "sign|1 -|complement|another|only where|branch",
        elementwise(
            softplus_of, [](float x, float g, float beta) { return g * sigmoid(x > 0 ? -beta * x : beta * x); },
            "beta")}},
      {});
  add(out, "silu",
      {{"sigmoid_in_bf16", 24, "the sigmoid is computed in bf16", "any", V::precision_contract,
        "bf16|rounded|stored|keeps|approximate sigmoid",
        unary([](float x, Dtype) { return x * bf16(1 / bf16(1 + bf16(std::exp(-x)))); },
              [](float x, float g, Dtype) { return silu_slope(x, g, 0); }),
        kAllTypes, V::bug}},
      {});
}

}  // namespace

std::vector<Specimen> further_function_specimens() {
  std::vector<Specimen> out;
  add_exponentials(out);
  add_sigmoids(out);
  add_gelus(out);
  add_softplus(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
