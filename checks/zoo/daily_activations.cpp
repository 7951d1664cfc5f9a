// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Activations as they go wrong in daily work: an identity half applied, a branch too wide, a layout taken for another.
#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

constexpr float kSqrtHalf = 0.70710678f, kDensity = 0.39894228f;  // 1/sqrt(2), 1/sqrt(2 pi)
constexpr float kScale = 0.79788456f, kCubic = 0.044715f;         // sqrt(2/pi)

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
float cdf(float x) { return 0.5f * (1 + std::erf(x * kSqrtHalf)); }
float density(float x) { return std::exp(-0.5f * (x * x)) * kDensity; }
float gelu_of(float x, float) { return x * cdf(x); }
float gelu_slope(float x, float g, float) { return g * (cdf(x) + x * density(x)); }

/// erf by Abramowitz and Stegun 7.1.25, three terms: absolute error 2.5e-5.
float short_erf(float x) {
  const float size = std::fabs(x), t = 1 / (1 + 0.47047f * size);
  const float y = 1 - t * (0.3480242f + t * (-0.0958798f + t * 0.7478556f)) * std::exp(-(size * size));
  return std::copysign(y, x);
}

float inner(float x) { return kScale * (x + kCubic * (x * x * x)); }
float gelu_tanh_of(float x, float) { return 0.5f * x * (1 + std::tanh(inner(x))); }
/// `square`: x^2 as the slope of the argument has it; `first`: the factor of 1 + t.
float gelu_tanh_slope_of(float x, float square, float first) {
  const float t = std::tanh(inner(x));
  return first * (1 + t) + 0.5f * x * (1 - t * t) * (kScale * (1 + 3 * kCubic * square));
}
float gelu_tanh_slope(float x, float g, float) { return g * gelu_tanh_slope_of(x, x * x, 0.5f); }

void add_gelus(std::vector<Specimen>& out) {
  add(out, "gelu",
      {{"cdf_in_bf16", 25, "backward rounds the distribution to bf16 before the density is added", "any",
        V::precision_contract, "keeps|rounded|stored",
        elementwise(gelu_of, [](float x, float g, float) { return g * (bf16(cdf(x)) + x * density(x)); }), kAllTypes,
        V::bug},
       {"erf_of_three_terms", 29, "erf with an absolute error of 2.5e-5", "any; more in the left tail", V::bug,
        "approximat|fast|digits|polynomial",
        elementwise([](float x, float) { return 0.5f * x * (1 + short_erf(x * kSqrtHalf)); }, gelu_slope), kAllTypes,
        V::precision_contract},
       {"line_above_three", 28, "y = x above 3", "x above 3", V::bug,
        "only where|line|x for|satur|tail|above 3|branch|clip|clamp|identity",
        elementwise([](float x, float) { return x > 3 ? x : gelu_of(x, 0); }, gelu_slope), kNotBf16},
       {"root_inverted", 48, "erf(x sqrt(2)), the constant of the other name", "any", V::bug,
        "factor|constant|sqrt|root|twice|2 x|argument",
        elementwise([](float x, float) { return 0.5f * x * (1 + std::erf(x * 1.41421356f)); }, gelu_slope)}},
      {});
  add(out, "gelu_tanh",
      {{"coefficient_cubed", 48, "x + (c x)^3 in the argument of tanh", "any", V::bug,
        "constant|factor|coefficient|cub|term |x^3|missing",
        elementwise(
            [](float x, float) {
              const float small = kCubic * x;
              return 0.5f * x * (1 + std::tanh(kScale * (x + small * small * small)));
            },
            gelu_tanh_slope)},
       {"sigmoid_of_single", 1, "x sigmoid(u), where (1 + tanh u) / 2 is sigmoid(2 u)", "any", V::bug,
        "factor|half|twice|argument|constant|0.5|2 u",
        elementwise([](float x, float) { return x * sigmoid(inner(x)); }, gelu_tanh_slope)},
       {"slope_half_missing", 1, "dx = g ((1 + t) + ..), the first term without its half", "any", V::bug,
        "factor|half|0.5|twice",
        elementwise(gelu_tanh_of, [](float x, float g, float) { return g * gelu_tanh_slope_of(x, x * x, 1); })},
       {"square_in_fp16", 28, "backward takes x^2 in fp16: infinite beyond 256, times a slope of 0", "any",
        V::precision_contract, "keeps|rounded|stored|overflow|infinite|nan|inf",
        elementwise(gelu_tanh_of, [](float x, float g, float) { return g * gelu_tanh_slope_of(x, fp16(x * x), 0.5f); }),
        kAllTypes, V::bug}},
      {});
}

float silu_of(float x, float) { return x * sigmoid(x); }
float sigmoid_of(float x, float) { return sigmoid(x); }
float tanh_of(float x, float) { return std::tanh(x); }
float tanh_slope(float x, float g, float) {
  const float y = std::tanh(x);
  return g * ((1 - y) * (1 + y));
}

void add_sigmoids(std::vector<Specimen>& out) {
  add(out, "silu",
      {{"slope_of_bare_complement", 3, "dx = g (s + x (1 - s)), where s + x s (1 - s) is due", "any", V::bug,
        "factor|missing|without|term |sigmoid(x) is taken for 1",
        elementwise(silu_of,
                    [](float x, float g, float) {
                      const float s = sigmoid(x);
                      return g * (s + x * (1 - s));
                    })},
       {"complement_of_output", 7, "dx = g (s + y (1 - y)), the complement of the output", "any", V::bug,
        "y for|output|1 - y|x sigmoid|silu|taken for",
        elementwise(silu_of,
                    [](float x, float g, float) {
                      const float s = sigmoid(x), y = x * s;
                      return g * (s + y * (1 - y));
                    })}},
      {});
  add(out, "sigmoid",
      {{"square_in_storage", 25, "dx = g (y - y^2), the square rounded to the storage type", "large x",
        V::precision_contract, "rounded|stored|keeps|cancel|digits",
        unary([](float x, Dtype) { return sigmoid(x); },
              [](float x, float g, Dtype dtype) {
                const float y = sigmoid(x);
                return g * (y - rounded(dtype, y * y));
              }),
        kHalfTypes, V::bug},
       {"tanh_of_whole", 1, "(1 + tanh(x)) / 2, where tanh(x / 2) is due", "any", V::bug,
        "factor|half|twice|argument|constant|2 x|0.5|/ 2",
        elementwise([](float x, float) { return 0.5f * (1 + std::tanh(x)); },
                    [](float x, float g, float) {
                      const float y = sigmoid_of(x, 0);
                      return g * (y * (1 - y));
                    })}},
      {});
  add(out, "tanh",
      {{"both_factors_minus", 2, "dx = g (1 - y) (1 - y)", "any", V::bug, "sign|minus|1 - y|1 + y|plus|square",
        elementwise(tanh_of,
                    [](float x, float g, float) {
                      const float y = std::tanh(x);
                      return g * ((1 - y) * (1 - y));
                    })},
       {"line_near_zero", 29, "y = x where |x| is below 1/4", "small x", V::bug,
        "only where|line|x for|near zero|approximat|small|branch|identity",
        elementwise([](float x, float) { return std::fabs(x) < 0.25f ? x : std::tanh(x); }, tanh_slope)}},
      {});
}

float set_slope(float a) { return a == 0 ? 0.01f : a; }
float left_of(float z) { return std::log1p(std::exp(-std::fabs(z))); }

void add_rectifiers(std::vector<Specimen>& out) {
  const auto softplus_slope = [](float x, float g, float beta) { return g * sigmoid(beta * x); };
  add(out, "softplus",
      {{"line_is_argument", 45, "y = beta x, where x is due, above beta x = 20", "beta other than 1, large x", V::bug,
        "beta|attribute|divid|factor|only where|above|branch",
        elementwise(
            [](float x, float beta) {
              const float z = beta * x;
              return z > 20 ? z : ((z < 0 ? 0.0f : z) + left_of(z)) / beta;
            },
            softplus_slope, "beta")},
       {"positive_part_lost", 3, "log1p(exp(-|z|)) / beta, without max(z, 0)", "positive x", V::bug,
        "max(|term |missing|without|relu|positive part|sign|absolute|mirror|negat",
        elementwise([](float x, float beta) { return left_of(beta * x) / beta; }, softplus_slope, "beta")}},
      {});
  add(out, "elu",
      {{"alpha_on_both_sides", 40, "alpha scales the right side too", "positive x, alpha other than 1", V::bug,
        "alpha|attribute|factor",
        elementwise([](float x, float a) { return a * (x <= 0 ? std::expm1(x) : x); },
                    [](float x, float g, float a) { return g * a * (x <= 0 ? std::exp(x) : 1.0f); }, "alpha")}},
      {});
  add(out, "leaky_relu",
      {{"leak_on_both_sides", 40, "max(x, 0) + negative_slope x, where min(x, 0) has the slope", "positive x", V::bug,
        "slope|factor|term |added|attribute|1 +",
        elementwise([](float x, float a) { return (x <= 0 ? 0.0f : x) + a * x; },
                    [](float x, float g, float a) { return g * ((x <= 0 ? 0.0f : 1.0f) + a); }, "negative_slope")},
       {"zero_slope_as_unset", 41, "a slope of 0 is taken for none, and is 0.01", "negative_slope 0", V::bug,
        "slope|attribute|0.01|constant|default|leak|term ",
        elementwise([](float x, float a) { return x <= 0 ? set_slope(a) * x : x; },
                    [](float x, float g, float a) { return x <= 0 ? set_slope(a) * g : g; }, "negative_slope")}},
      {});
}

/// Forward begins each row's bits of the mask at a whole byte, backward reads them as one run.
Kernel relu_of_padded_mask() {
  return kernel_of(
      [](const Call& call) {
        Values y = call.in("x");
        for (float& v : y) v = v <= 0 ? 0.0f : v;
        call.out("y", y);
      },
      [](const Call& call) {
        const Values x = call.in("x");
        const auto columns = index_of(call.columns("x")), padded = (columns + 7) / 8 * 8;
        std::vector<char> bits(columns == 0 ? 0 : x.size() / columns * padded);
        for (std::size_t i = 0; i < x.size(); ++i) bits[i / columns * padded + i % columns] = !(x[i] <= 0);
        Values dx = call.in("dy");
        for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = bits[i] != 0 ? dx[i] : 0.0f;
        call.out("dx", dx);
      });
}

/// Where gate and up stand in a buffer whose rows are [gate, up].
enum class Buffer { plain, interleaved, half_stride };

struct Gated {
  Values gate, up;

  Gated(const Call& call, Buffer read) : gate(call.in("gate")), up(call.in("up")) {
    const auto n = index_of(call.columns("gate"));
    if (read == Buffer::plain) return;
    Values joined(2 * gate.size());
    for (std::size_t i = 0; i < gate.size(); ++i) {
      joined[i / n * 2 * n + i % n] = gate[i];
      joined[i / n * 2 * n + n + i % n] = up[i];
    }
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const std::size_t row = i / n, column = i % n;
      gate[i] = read == Buffer::interleaved ? joined[row * 2 * n + 2 * column] : joined[row * n + column];
      up[i] = read == Buffer::interleaved ? joined[row * 2 * n + 2 * column + 1] : joined[row * n + n + column];
    }
  }
};

Kernel swiglu(Buffer read) {
  return kernel_of(
      [read](const Call& call) {
        const Gated in(call, read);
        Values y(in.gate.size());
        for (std::size_t i = 0; i < y.size(); ++i) y[i] = silu_of(in.gate[i], 0) * in.up[i];
        call.out("y", y);
      },
      [](const Call& call) {
        const Gated in(call, Buffer::plain);
        const Values g = call.in("dy");
        Values dgate(g.size()), dup(g.size());
        for (std::size_t i = 0; i < g.size(); ++i) {
          const float s = sigmoid(in.gate[i]);
          dgate[i] = g[i] * in.up[i] * (s * (1 + in.gate[i] * (1 - s)));
          dup[i] = g[i] * (in.gate[i] * s);
        }
        call.out("dgate", dgate);
        call.out("dup", dup);
      });
}

void add_layouts(std::vector<Specimen>& out) {
  add(out, "relu",
      {{"mask_rows_padded", 22, "rows of the bit mask are padded to bytes in forward, not in backward",
        "D no multiple of 8", V::structural,
        "mask|bit|index|shift|another row|other rows|another element|offset|independent", relu_of_padded_mask(),
        kAllTypes, V::bug}},
      {});
  add(out, "swiglu",
      {{"read_interleaved", 45, "gate and up are read as if their columns alternated", "more than one column", V::bug,
        "exchang|interleav|index|layout|order|another element|neighbour|column|stride|other elements",
        swiglu(Buffer::interleaved), kAllTypes, V::structural},
       {"rows_of_half_stride", 45, "rows of the joint buffer are taken for D numbers apart, not 2 D",
        "more than one row", V::structural,
        "another row|other rows|independent|stride|offset|index|layout|rows are not", swiglu(Buffer::half_stride),
        kAllTypes, V::bug}},
      {});
}

}  // namespace

std::vector<Specimen> daily_activation_specimens() {
  std::vector<Specimen> out;
  add_gelus(out);
  add_sigmoids(out);
  add_rectifiers(out);
  add_layouts(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
