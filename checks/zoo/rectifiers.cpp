// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// softplus, leaky_relu, elu, clamp, sqrt and pow.
#include <algorithm>
#include <array>
#include <bit>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

/// The attributes of an op, in the order in which its kernel names them.
using Numbers = std::array<float, 2>;
using Function = float (*)(float x, Numbers);
using Slope = float (*)(float x, float g, Numbers);

/// Makes kernels y = f(x), dx = df(x, dy) of an op with these attributes.
struct Pointwise {
  std::vector<const char*> attributes;

  Numbers of(const Call& call) const {
    Numbers out = {};
    for (std::size_t i = 0; i < attributes.size(); ++i) out[i] = call.number(attributes[i]);
    return out;
  }
  Kernel operator()(Function f, Slope df, Slip slip = {}) const {
    const Pointwise self = *this;
    const auto forward = [self, f](const Call& call) {
      const Numbers numbers = self.of(call);
      Values y = call.in("x");
      for (float& v : y) v = f(v, numbers);
      call.out("y", y);
    };
    const auto backward = [self, df](const Call& call) {
      const Numbers numbers = self.of(call);
      const Values x = call.in("x");
      Values dx = call.in("dy");
      for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = df(x[i], dx[i], numbers);
      call.out("dx", dx);
    };
    return kernel_of(forward, backward, std::move(slip));
  }
};

float sigmoid(float z) { return 1 / (1 + std::exp(-z)); }
float softplus_of(float x, Numbers n) {
  const float z = n[0] * x;
  return ((z < 0 ? 0 : z) + std::log1p(std::exp(-std::fabs(z)))) / n[0];
}
float softplus_slope(float x, float g, Numbers n) { return g * sigmoid(n[0] * x); }

void add_softplus(std::vector<Specimen>& out) {
  const Pointwise kernel{{"beta"}};
  add(out, "softplus",
      {{"overflows", 28, "log1p(exp(z)) / beta", "beta x above 88", V::range_declared, "overflow|inf-inf|infinite",
        kernel([](float x, Numbers n) { return std::log1p(std::exp(n[0] * x)) / n[0]; }, softplus_slope), kAllTypes,
        V::bug},
       {"log_of_sum", 28, "log(1 + exp(z)) / beta, which loses the left tail", "negative x", V::bug,
        "cancel|fast|zero|rounded|lost|stored|keeps|takes",
        kernel([](float x, Numbers n) { return x > 0 ? softplus_of(x, n) : std::log(1 + std::exp(n[0] * x)) / n[0]; },
               softplus_slope),
        kAllTypes, V::precision_contract},
       {"beta_in_slope", 1, "dx = g beta sigmoid(beta x)", "beta other than 1", V::bug, "factor|attribute|beta",
        kernel(softplus_of, [](float x, float g, Numbers n) { return g * (n[0] * sigmoid(n[0] * x)); })},
       {"not_divided", 1, "y without its division by beta", "beta other than 1", V::bug, "factor|attribute|beta",
        kernel([](float x, Numbers n) { return softplus_of(x, n) * n[0]; }, softplus_slope)},
       {"slope_of_relu", 30, "the gradient of relu", "any", V::bug, "another activation|zero|factor",
        kernel(softplus_of, [](float x, float g, Numbers) { return x > 0 ? g : 0; })},
       {"sign", 2, "dx = g sigmoid(-z)", "any", V::bug, "sign|another function|another activation",
        kernel(softplus_of, [](float x, float g, Numbers n) { return g * sigmoid(-n[0] * x); })},
       {"slope_in_bf16", 27, "backward works from sigmoid(z) saved in bf16", "any", V::precision_contract,
        "saved|stored|rounded|keeps|takes",
        kernel(softplus_of, [](float x, float g, Numbers n) { return g * bf16(sigmoid(n[0] * x)); }), kAllTypes,
        V::bug},
       {"dense_cotangent", 18, "dy is read as if row-major", "strided dy", V::structural, "strided",
        kernel(softplus_of, softplus_slope, {Io::read_dense, "dy"})}},
      {{"plain", "as written", kernel(softplus_of, softplus_slope)},
       {"threshold",
        "x above z = 20 and log1p(exp(z)) / beta below; dx = g (e / (e + 1)): torch's way, but for the order of its "
        "product",
        kernel([](float x, Numbers n) { return n[0] * x > 20 ? x : std::log1p(std::exp(n[0] * x)) / n[0]; },
               [](float x, float g, Numbers n) {
                 const float e = std::exp(n[0] * x);
                 return n[0] * x > 20 ? g : g * (e / (e + 1));
               })},
       {"branches", "z + log1p(exp(-z)) for z above 0",
        kernel(
            [](float x, Numbers n) {
              const float z = n[0] * x;
              return (z > 0 ? z + std::log1p(std::exp(-z)) : std::log1p(std::exp(z))) / n[0];
            },
            softplus_slope),
        "branches at z = 0"}});
}

float leaky_of(float x, Numbers n) { return x <= 0 ? n[0] * x : x; }
float leaky_slope(float x, float g, Numbers n) { return x <= 0 ? n[0] * g : g; }

void add_leaky_relu(std::vector<Specimen>& out) {
  const Pointwise kernel{{"negative_slope"}};
  add(out, "leaky_relu",
      {{"one_at_zero", 37, "slope 1 at zero, where negative_slope is promised", "zeros", V::non_smooth,
        "subgradient|zero|kink|declared",
        kernel(leaky_of, [](float x, float g, Numbers n) { return x < 0 ? n[0] * g : g; }), kAllTypes, V::bug},
       {"slope_of_relu", 30, "the gradient of relu", "negative x", V::bug, "another activation|negative|zero",
        kernel(leaky_of, [](float x, float g, Numbers) { return x <= 0 ? 0 : g; })},
       {"fixed_slope", 45, "0.01 whatever negative_slope is", "another negative_slope", V::bug,
        "attribute|factor|negative_slope", kernel([](float x, Numbers) { return x <= 0 ? 0.01f * x : x; }, leaky_slope),
        kAllTypes, V::structural},
       {"mask_of_cotangent", 7, "the branch is chosen by g, not by x", "any", V::bug,
        "mask|another input|linear in the cotangent",
        kernel(leaky_of, [](float, float g, Numbers n) { return g <= 0 ? n[0] * g : g; }), kAllTypes, V::structural},
       {"slope_in_bf16", 26, "negative_slope is rounded to bf16", "a slope that bf16 does not hold",
        V::precision_contract, "rounded|stored|constant|factor|keeps|takes|attribute",
        kernel([](float x, Numbers n) { return x <= 0 ? bf16(n[0]) * x : x; },
               [](float x, float g, Numbers n) { return x <= 0 ? bf16(n[0]) * g : g; }),
        kNotBf16, V::bug},
       {"drops_nan", 29, "NaN becomes 0, as max(0, x) + slope min(0, x) has it", "NaN", V::bug, "finite where|hides",
        kernel([](float x, Numbers n) { return std::fmax(x, 0.0f) + n[0] * std::fmin(x, 0.0f); }, leaky_slope)},
       {"dense_store", 19, "y is written as if row-major", "strided y", V::structural,
        "strided|writes outside|output buffer held", kernel(leaky_of, leaky_slope, {Io::write_dense, "y"})}},
      {{"plain", "as written", kernel(leaky_of, leaky_slope)},
       {"larger", "max(x, slope x), the usual way where the slope is below 1",
        kernel([](float x, Numbers n) { return x != x || x > n[0] * x ? x : n[0] * x; }, leaky_slope)},
       {"two_parts", "max(0, x) + slope min(0, x), NaN passed on",
        kernel([](float x, Numbers n) { return x != x ? x : std::fmax(x, 0.0f) + n[0] * std::fmin(x, 0.0f); },
               leaky_slope)}});
}

float elu_of(float x, Numbers n) { return x <= 0 ? n[0] * std::expm1(x) : x; }
float elu_slope(float x, float g, Numbers n) { return x <= 0 ? g * (n[0] * std::exp(x)) : g; }

void add_elu(std::vector<Specimen>& out) {
  const Pointwise kernel{{"alpha"}};
  add(out, "elu",
      {{"exp_minus_one", 28, "alpha (exp(x) - 1), which loses digits near 0", "small negative x", V::bug,
        "cancel|fast|zero|rounded|lost|stored|keeps|takes",
        kernel([](float x, Numbers n) { return x <= 0 ? n[0] * (std::exp(x) - 1) : x; }, elu_slope), kAllTypes,
        V::precision_contract},
       {"slope_without_alpha", 1, "dx = g exp(x) on the left", "alpha other than 1", V::bug, "factor|attribute|alpha",
        kernel(elu_of, [](float x, float g, Numbers) { return x <= 0 ? g * std::exp(x) : g; })},
       {"slope_from_output", 3, "dx = g y in place of g (y + alpha)", "negative x", V::bug,
        "term missing|missing term|without the term|sign|another",
        kernel(elu_of, [](float x, float g, Numbers n) { return x <= 0 ? g * (n[0] * std::expm1(x)) : g; })},
       {"slope_of_relu", 30, "the gradient of relu", "negative x", V::bug, "another activation|negative|zero",
        kernel(elu_of, [](float x, float g, Numbers) { return x <= 0 ? 0 : g; })},
       {"no_tail", 28, "-alpha below -5 and slope 0 there", "x below -5", V::bug, "zero|tail|satur",
        kernel(elu_of, [](float x, float g, Numbers n) { return x < -5 ? 0 : elu_slope(x, g, n); })},
       {"alpha_ignored", 45, "alpha is taken for 1", "alpha other than 1", V::bug, "attribute|factor|alpha",
        kernel([](float x, Numbers) { return x <= 0 ? std::expm1(x) : x; }, elu_slope), kAllTypes, V::structural},
       {"exp_in_bf16", 27, "backward works from exp(x) saved in bf16", "any", V::precision_contract,
        "saved|stored|rounded|keeps|takes",
        kernel(elu_of, [](float x, float g, Numbers n) { return x <= 0 ? g * (n[0] * bf16(std::exp(x))) : g; }),
        kAllTypes, V::bug},
       {"strided_x", 19, "x is read as if row-major", "strided x", V::structural, "strided",
        kernel(elu_of, elu_slope, {Io::read_dense, "x"})}},
      {{"plain", "as written", kernel(elu_of, elu_slope)},
       {"from_output", "dx = g (y + alpha)",
        kernel(elu_of, [](float x, float g, Numbers n) { return x <= 0 ? g * (n[0] * std::expm1(x) + n[0]) : g; }),
        "g (y + alpha)"},
       {"regrouped", "(g alpha) exp(x)",
        kernel(elu_of, [](float x, float g, Numbers n) { return x <= 0 ? g * n[0] * std::exp(x) : g; })}});
}

float clamp_of(float x, Numbers n) { return x < n[0] ? n[0] : x > n[1] ? n[1] : x; }
float clamp_slope(float x, float g, Numbers n) { return x < n[0] || x > n[1] ? 0 : g; }

void add_clamp(std::vector<Specimen>& out) {
  const Pointwise kernel{{"min", "max"}};
  add(out, "clamp",
      {{"straight_through", 46, "dx = g everywhere, the straight-through estimate", "x outside the bounds", V::bug,
        "zero|does not depend|mask", kernel(clamp_of, [](float, float g, Numbers) { return g; })},
       {"zero_at_bounds", 37, "gradient 0 at the bounds, where g is promised", "x at a bound", V::non_smooth,
        "subgradient|zero|kink|declared",
        kernel(clamp_of, [](float x, float g, Numbers n) { return x <= n[0] || x >= n[1] ? 0 : g; }), kAllTypes,
        V::bug},
       {"one_sided_mask", 32, "the mask of backward knows max alone", "x below min", V::bug, "mask|zero",
        kernel(clamp_of, [](float x, float g, Numbers n) { return x > n[1] ? 0 : g; })},
       {"drops_nan", 29, "NaN becomes a bound, as with fmin and fmax", "NaN", V::bug, "finite where|hides",
        kernel([](float x, Numbers n) { return std::fmin(std::fmax(x, n[0]), n[1]); }, clamp_slope)},
       {"bounds_exchanged", 45, "x above max gives min", "x above max", V::bug, "another|sign|swap|attribute",
        kernel([](float x, Numbers n) { return x < n[0] || x > n[1] ? n[0] : x; }, clamp_slope)},
       {"fixed_max", 45, "1 whatever max is", "another max", V::bug, "attribute|factor|max",
        kernel(
            [](float x, Numbers n) {
              return clamp_of(x, {n[0], 1.0f});
            },
            clamp_slope),
        kAllTypes, V::structural},
       {"tail_of_4", 13, "what follows the last full vector of 4 is not written", "counts that are no multiple of 4",
        V::structural, "output buffer held|unwritten", kernel(clamp_of, clamp_slope, {Io::drop_tail_of_4, "dx"})}},
      {{"plain", "as written", kernel(clamp_of, clamp_slope)},
       {"max_then_min", "fmin(fmax(x, min), max), NaN passed on",
        kernel([](float x, Numbers n) { return x != x ? x : std::fmin(std::fmax(x, n[0]), n[1]); }, clamp_slope)},
       {"mask_product", "g times a mask of 0 and 1",
        kernel(clamp_of, [](float x, float g, Numbers n) { return x < n[0] || x > n[1] ? 0 : 1 * g; })}});
}

float root_of(float x, Dtype) { return std::sqrt(x); }
float root_slope(float x, float g, Dtype) { return g / (2 * std::sqrt(x)); }
/// 1/sqrt(x) to about 12 bits and no Newton step, as rsqrt instructions give it.
float rough_rsqrt(float x) {
  const float r = 1 / std::sqrt(x);
  return std::isfinite(r) ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(r) & ~0x7ffu) : r;
}

void add_sqrt(std::vector<Specimen>& out) {
  add(out, "sqrt",
      {{"factor_missing", 1, "dx = g / y", "any", V::bug, "factor",
        unary(root_of, [](float x, float g, Dtype) { return g / std::sqrt(x); })},
       {"slope_of_rsqrt", 30, "dx = -g/2 x^-3/2", "any", V::bug, "another|sign|factor",
        unary(root_of, [](float x, float g, Dtype) { return -0.5f * g / (x * std::sqrt(x)); })},
       {"rough", 29, "x times a reciprocal root of 12 bits", "any", V::precision_contract, "fast|approx|reciprocal",
        unary([](float x, Dtype) { return x > 0 && std::isfinite(x) ? x * rough_rsqrt(x) : std::sqrt(x); }, root_slope),
        kAllTypes, V::bug},
       {"eps_in_root", 6, "sqrt(x + 1e-6)", "small x", V::bug, "eps|constant|term",
        unary([](float x, Dtype) { return std::sqrt(x + 1e-6f); }, root_slope)},
       {"root_from_bf16", 27, "backward works from y saved in bf16", "any", V::precision_contract,
        "saved|stored|rounded|keeps|takes",
        unary(root_of, [](float x, float g, Dtype) { return g / (2 * bf16(std::sqrt(x))); }), kAllTypes, V::bug},
       {"odd_column", 13, "the last column of odd rows is not written", "odd D", V::structural,
        "output buffer held|unwritten", unary(root_of, root_slope, {Io::drop_odd_column, "y"})},
       {"clobbers_x", 21, "works in place on x", "any", V::structural, "changes its inputs",
        unary(root_of, root_slope, {Io::clobber, "x"})}},
      {{"plain", "as written", unary(root_of, root_slope)},
       {"by_rsqrt", "dx = (g/2) rsqrt(x)",
        unary(root_of, [](float x, float g, Dtype) { return 0.5f * g * (1 / std::sqrt(x)); })},
       {"double", "in fp64, rounded once",
        unary([](float x, Dtype) { return static_cast<float>(std::sqrt(static_cast<double>(x))); }, root_slope)}});
}

float power_of(float x, Numbers n) { return std::pow(x, n[0]); }
float power_slope(float x, float g, Numbers n) { return g * (n[0] * std::pow(x, n[0] - 1)); }
/// The powers that have names, as kernels write them.
float named_power(float x, float p) {
  if (p == 2) return x * x;
  if (p == 3) return x * x * x;
  if (p == -1) return 1 / x;
  if (p == 0.5f) return std::sqrt(x);
  return std::pow(x, p);
}
/// By the hardware's exp2 and log2, without their last bits; the sign of an odd power is put back.
float fast_power(float x, float p) {
  const float size = std::exp2(p * std::log2(std::fabs(x)));
  return x < 0 && std::fmod(p, 2.0f) != 0 ? (p == std::trunc(p) ? -size : std::nanf("")) : size;
}

void add_pow(std::vector<Specimen>& out) {
  const Pointwise kernel{{"exponent"}};
  add(out, "pow",
      {{"factor_missing", 1, "dx = g x^(p-1)", "any", V::bug, "factor",
        kernel(power_of, [](float x, float g, Numbers n) { return g * std::pow(x, n[0] - 1); })},
       {"exponent_kept", 30, "dx = g p x^p", "any", V::bug, "exponent|another|factor",
        kernel(power_of, [](float x, float g, Numbers n) { return g * (n[0] * std::pow(x, n[0])); })},
       {"sign_lost", 2, "|x|^p", "negative x and an odd exponent", V::bug, "sign",
        kernel([](float x, Numbers n) { return std::pow(std::fabs(x), n[0]); }, power_slope)},
       {"by_logarithm", 29, "exp(p log(x)), no number for negative x", "negative x and a whole exponent", V::bug,
        "negative|no number|NaN|not finite",
        kernel([](float x, Numbers n) { return std::exp(n[0] * std::log(x)); }, power_slope)},
       {"fast", 29, "exp2(p log2(x)), whose logarithm is rounded before it is multiplied", "large and small x",
        V::precision_contract, "fast|approx",
        kernel([](float x, Numbers n) { return fast_power(x, n[0]); }, power_slope), kFp32, V::bug},
       {"always_square", 45, "x^2 whatever the exponent is", "another exponent", V::bug, "exponent|attribute",
        kernel([](float x, Numbers) { return x * x; }, power_slope), kAllTypes, V::structural},
       {"whole_exponent", 45, "the exponent is cut to a whole number", "exponent 0.5", V::bug, "exponent|attribute",
        kernel([](float x, Numbers n) { return std::pow(x, std::trunc(n[0])); }, power_slope), kAllTypes,
        V::structural},
       {"base_in_bf16", 25, "x is rounded to bf16 on the way in", "any", V::precision_contract,
        "rounded|stored|takes|keeps", kernel(power_of, power_slope, {Io::read_in_bf16, "x"}), kNotBf16, V::bug},
       {"through_fp16", 28, "y passes through fp16", "powers beyond 65504", V::precision_contract,
        "rounded|stored|overflow|infinite|takes|keeps", kernel(power_of, power_slope, {Io::through_fp16, "y"}), kFp32,
        V::bug},
       {"dense_cotangent", 18, "dy is read as if row-major", "strided dy", V::structural, "strided",
        kernel(power_of, power_slope, {Io::read_dense, "dy"})},
       {"odd_column", 13, "the last column of odd rows is not written", "odd D", V::structural,
        "output buffer held|unwritten", kernel(power_of, power_slope, {Io::drop_odd_column, "dx"})}},
      {{"plain", "as written", kernel(power_of, power_slope)},
       {"named", "products, quotients and roots where the exponent has a name",
        kernel([](float x, Numbers n) { return named_power(x, n[0]); },
               [](float x, float g, Numbers n) {
                 if (n[0] == 3) return g * (3 * (x * x));
                 if (n[0] == -1) return g * -(1 / (x * x));
                 return n[0] == 0.5f ? g * (0.5f * (1 / std::sqrt(x))) : g * (n[0] * named_power(x, n[0] - 1));
               })},
       {"slope_first", "(g p) x^(p-1)",
        kernel(power_of, [](float x, float g, Numbers n) { return g * n[0] * std::pow(x, n[0] - 1); })},
       {"double", "in fp64, rounded once",
        kernel([](float x, Numbers n) { return static_cast<float>(std::pow(static_cast<double>(x), n[0])); },
               power_slope)}});
}

}  // namespace

std::vector<Specimen> rectifier_specimens() {
  std::vector<Specimen> out;
  add_softplus(out);
  add_leaky_relu(out);
  add_elu(out);
  add_clamp(out);
  add_sqrt(out);
  add_pow(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
