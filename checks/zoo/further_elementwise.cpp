// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Further elementwise kernels of the zoo. They were its unseen part once; rules have followed from them since.
#include <algorithm>
#include <bit>
#include <utility>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

Kernel of_attribute(const char* attribute, float (*f)(float x, float a), float (*df)(float x, float g, float a)) {
  return elementwise(f, df, attribute);
}

/// One of the two neighbours in the storage type, by a hash of the number: "stochastic" rounding.
float at_random(float exact, Dtype dtype) {
  const float near = rounded(dtype, exact);
  if (near == exact || !std::isfinite(near)) return near;
  const auto hash = std::bit_cast<std::uint32_t>(exact) * 2654435761u;
  if (hash >> 31 == 0) return near;
  float other = near;
  for (float step = exact - near; other == near; step *= 2) other = rounded(dtype, exact + step);
  return other;
}

Kernel sum_at_random() {
  return binary([](float x, float y, Dtype dtype) { return at_random(x + y, dtype); },
                [](float, float, float g, Dtype) { return g; }, [](float, float, float g, Dtype) { return g; });
}

/// A vector of two is stored the wrong way round.
Kernel sum_of_exchanged_pairs() {
  return kernel_of(
      [](const Call& call) {
        const Values x = call.in("x"), y = call.in("y");
        Values z(x.size());
        for (std::size_t i = 0; i < z.size(); ++i) z[i] = x[i] + y[i];
        for (std::size_t i = 0; i + 1 < z.size(); i += 2) std::swap(z[i], z[i + 1]);
        call.out("z", z);
      },
      [](const Call& call) {
        const Values g = call.in("dz");
        call.out("dx", g);
        call.out("dy", g);
      });
}

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
float sigmoid_slope(float x, float g, float) {
  const float y = sigmoid(x);
  return g * (y * (1 - y));
}
float silu_slope(float x, float scale) {
  const float s = sigmoid(scale * x);
  return s * (1 + scale * x * (1 - s));
}

constexpr float kSqrtHalf = 0.70710678f, kDensity = 0.39894228f;  // 1/sqrt(2), 1/sqrt(2 pi)
constexpr float kScale = 0.79788456f, kCubic = 0.044715f;         // sqrt(2/pi)
float cdf_by_sides(float x) { return x < 0 ? 0.5f * std::erfc(-x * kSqrtHalf) : 0.5f * (1 + std::erf(x * kSqrtHalf)); }

constexpr BinaryNames kGated = {"gate", "up", "y"};
float gated(float gate, float up, Dtype) { return gate * sigmoid(gate) * up; }

void add_arithmetic(std::vector<Specimen>& out) {
  add(out, "add",
      {{"rounds_at_random", 29, "rounds up or down by a hash of the sum", "any", V::bug, "round|stochastic",
        sum_at_random(), kHalfTypes, V::precision_contract},
       {"pairs_exchanged", 13, "the elements of each pair are stored the wrong way round", "any", V::bug,
        "exchang|swap|another|permut|neighbour|order", sum_of_exchanged_pairs(), kAllTypes, V::structural}},
      {{"commuted", "y + x",
        binary([](float x, float y, Dtype) { return y + x; }, [](float, float, float g, Dtype) { return g; },
               [](float, float, float g, Dtype) { return g; })}});
  add(out, "mul",
      {{"dy_from_output", 28, "dy = g z / y: 0/0 where y is 0", "y of zero", V::bug, "NaN|0/0|zero|overflow|divi",
        binary([](float x, float y, Dtype) { return x * y; }, [](float, float y, float g, Dtype) { return g * y; },
               [](float x, float y, float g, Dtype) { return g * (x * y / y); }),
        kHalfTypes, V::range_declared}},
      {});
  add(out, "div",
      {{"reciprocal_in_storage", 26, "x times 1/y, which is rounded to the storage type", "any", V::precision_contract,
        "rounded|stored|keeps|takes",
        binary([](float x, float y, Dtype dtype) { return x * rounded(dtype, 1 / y); },
               [](float, float y, float g, Dtype) { return g / y; },
               [](float x, float y, float g, Dtype) { return -g * (x / y) / y; }),
        kHalfTypes, V::bug}},
      {});
  add(out, "log",
      {{"of_one_plus", 30, "log(1 + x)", "any", V::bug, "1 + x|log1p|another|added|offset|constant|+ 1",
        elementwise([](float x, float) { return std::log1p(x); }, [](float x, float g, float) { return g / x; })}},
      {});
  add(out, "sqrt",
      {{"of_absolute", 29, "sqrt(|x|): finite of negative numbers", "negative x", V::bug,
        "finite where|sign|absolute|hides|negative",
        elementwise([](float x, float) { return std::sqrt(std::fabs(x)); },
                    [](float x, float g, float) { return g / (2 * std::sqrt(x)); }),
        kAllTypes, V::bug, "x is positive, as the op declares: |x| is x"}},
      {});
}

void add_activations(std::vector<Specimen>& out) {
  add(out, "sigmoid",
      {{"one_branch", 2, "1 / (1 + exp(-|x|)) without the branch for negative x", "negative x", V::bug,
        "sign|absolute|branch|negative",
        elementwise([](float x, float) { return sigmoid(std::fabs(x)); }, sigmoid_slope)}},
      {});
  add(out, "tanh",
      {{"rational", 29, "x (27 + x^2) / (27 + 9 x^2)", "|x| above 1/2", V::bug,
        "another activation|approximat|fast|tanh|another function",
        elementwise([](float x, float) { return x * (27 + x * x) / (27 + 9 * x * x); },
                    [](float x, float g, float) {
                      const float y = std::tanh(x);
                      return g * (1 - y * y);
                    }),
        kAllTypes, V::precision_contract}},
      {});
  add(out, "silu",
      {{"steeper", 30, "x sigmoid(1.702 x), gelu by sigmoid", "any", V::bug,
        "another activation|gelu|1.702|factor|constant|another function",
        elementwise([](float x, float) { return x * sigmoid(1.702f * x); },
                    [](float x, float g, float) { return g * silu_slope(x, 1); })}},
      {});
  add(out, "swiglu",
      {{"halves_exchanged", 7, "gate and up are exchanged, forward and backward", "any", V::bug, "swap|exchang|another",
        binary([](float gate, float up, Dtype dtype) { return gated(up, gate, dtype); },
               [](float, float up, float g, Dtype) { return g * (up * sigmoid(up)); },
               [](float gate, float up, float g, Dtype) { return g * gate * silu_slope(up, 1); }, {}, kGated)}},
      {});
  add(out, "gelu_tanh",
      {{"slope_without_cubic", 3, "the slope of the argument without its 3 c x^2", "any", V::bug,
        "term missing|missing term|without the term|constant|without the factor 1 +",
        elementwise([](float x, float) { return 0.5f * x * (1 + std::tanh(kScale * (x + kCubic * (x * x * x)))); },
                    [](float x, float g, float) {
                      const float t = std::tanh(kScale * (x + kCubic * (x * x * x)));
                      return g * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * kScale);
                    })}},
      {});
  add(out, "gelu", {},
      {{"by_sides", "erfc below zero, erf above",
        elementwise([](float x, float) { return x * cdf_by_sides(x); },
                    [](float x, float g, float) {
                      return g * (cdf_by_sides(x) + x * (std::exp(-0.5f * (x * x)) * kDensity));
                    })}});
}

void add_rectifiers(std::vector<Specimen>& out) {
  add(out, "relu",
      {{"clipped_at_six", 30, "relu6", "x above 6", V::bug, "another activation|clip|clamp|satur|relu6",
        elementwise([](float x, float) { return x <= 0  ? 0
                                                : x > 6 ? 6.0f
                                                        : x; },
                    [](float x, float g, float) { return x <= 0 ? 0.0f : g; })}},
      {});
  add(out, "leaky_relu",
      {{"slope_twice", 1, "negative_slope is applied twice in backward", "negative x", V::bug, "factor",
        of_attribute(
            "negative_slope", [](float x, float a) { return x <= 0 ? a * x : x; },
            [](float x, float g, float a) { return x <= 0 ? a * (a * g) : g; })}},
      {});
  add(out, "elu",
      {{"alpha_in_exponent", 7, "exp(alpha x) - 1", "alpha other than 1", V::bug, "alpha|attribute|factor",
        of_attribute(
            "alpha", [](float x, float a) { return x <= 0 ? std::expm1(a * x) : x; },
            [](float x, float g, float a) { return x <= 0 ? g * (a * std::exp(x)) : g; })}},
      {});
  add(out, "softplus",
      {{"beta_ignored", 45, "log(1 + exp(x)) at any beta", "beta other than 1", V::bug, "attribute|beta",
        of_attribute(
            "beta", [](float x, float) { return (x < 0 ? 0.0f : x) + std::log1p(std::exp(-std::fabs(x))); },
            [](float x, float g, float a) { return g * sigmoid(a * x); })}},
      {});
  add(out, "clamp", {},
      {{"by_selection", "NaN, then the bounds, then x",
        kernel_of(
            [](const Call& call) {
              Values y = call.in("x");
              const float least = call.number("min"), most = call.number("max");
              for (float& v : y) v = v != v ? v : v >= most ? most : v <= least ? least : v;
              call.out("y", y);
            },
            [](const Call& call) {
              const Values x = call.in("x");
              Values dx = call.in("dy");
              const float least = call.number("min"), most = call.number("max");
              for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = x[i] > most || x[i] < least ? 0.0f : dx[i];
              call.out("dx", dx);
            })}});
}

}  // namespace

std::vector<Specimen> further_elementwise_specimens() {
  std::vector<Specimen> out;
  add_arithmetic(out);
  add_activations(out);
  add_rectifiers(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
