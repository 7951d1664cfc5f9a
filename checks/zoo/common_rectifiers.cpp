// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Elementwise kernels with attributes, of the zoo that were its unseen part once; rules have followed from them since.
#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

/// What a kernel is told besides its tensors.
struct Told {
  float first = 0, second = 0;  ///< attributes
};
using Value = float (*)(float x, Told);
using Slope = float (*)(float x, float g, Told);

Kernel told(std::vector<std::string> attributes, Value value, Slope slope) {
  const auto read = [attributes](const Call& call) {
    Told out{call.number(attributes[0]), 0};
    if (attributes.size() > 1) out.second = call.number(attributes[1]);
    return out;
  };
  return kernel_of(
      [read, value](const Call& call) {
        Values y = call.in("x");
        const Told as = read(call);
        for (float& v : y) v = value(v, as);
        call.out("y", y);
      },
      [read, slope](const Call& call) {
        const Values x = call.in("x");
        Values dx = call.in("dy");
        const Told as = read(call);
        for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = slope(x[i], dx[i], as);
        call.out("dx", dx);
      });
}

float softplus_of(float x, Told beta) {
  const float z = beta.first * x;
  return ((z < 0 ? 0.0f : z) + std::log1p(std::exp(-std::fabs(z)))) / beta.first;
}
float softplus_slope(float x, float g, Told beta) { return g * (1 / (1 + std::exp(-beta.first * x))); }

float softplus_in_double(float x, Told beta) {
  const double b = static_cast<double>(beta.first), z = b * static_cast<double>(x);
  return static_cast<float>(((z < 0 ? 0.0 : z) + std::log1p(std::exp(-std::fabs(z)))) / b);
}
float softplus_slope_in_double(float x, float g, Told beta) {
  const double z = static_cast<double>(beta.first) * static_cast<double>(x);
  return static_cast<float>(static_cast<double>(g) / (1 + std::exp(-z)));
}

float elu_of(float x, Told alpha) { return x <= 0 ? alpha.first * std::expm1(x) : x; }
float leaky_of(float x, Told slope) { return x * (x <= 0 ? slope.first : 1.0f); }
float power_of(float x, Told exponent) { return std::pow(x, exponent.first); }

constexpr float kSelu = 1.0507f;

Told in_bf16(Told bounds) { return {bf16(bounds.first), bf16(bounds.second)}; }

void add_smooth(std::vector<Specimen>& out) {
  add(out, "softplus",
      {{"early_threshold", 28, "y = x and slope 1 where x, not beta x, is above 8", "x above 8", V::bug,
        "term missing|missing term|without the term|another activation|another function|relu|clip|satur|branch|"
        "threshold",
        told(
            {"beta"}, [](float x, Told beta) { return x > 8 ? x : softplus_of(x, beta); },
            [](float x, float g, Told beta) { return x > 8 ? g : softplus_slope(x, g, beta); })}},
      {{"both_in_double", "in fp64, rounded once", told({"beta"}, softplus_in_double, softplus_slope_in_double)}});
  add(out, "pow",
      {{"slope_by_quotient", 37, "dx = g p y / x: 0/0 where x is 0", "zeros", V::bug,
        "0/0|zero|divi|overflow|underflow|infinite|leaves the range",
        told({"exponent"}, power_of,
             [](float x, float g, Told exponent) { return g * (exponent.first * power_of(x, exponent) / x); }),
        kHalfTypes, V::range_declared}},
      {});
  add(out, "elu",
      {{"selu_scale_in_slope", 48, "the slope has selu's factor 1.0507, the value has it not", "any", V::bug,
        "factor|constant|another activation|1.05",
        told({"alpha"}, elu_of,
             [](float x, float g, Told alpha) { return kSelu * (x <= 0 ? g * (alpha.first * std::exp(x)) : g); })}},
      {});
}

void add_kinked(std::vector<Specimen>& out) {
  add(out, "leaky_relu",
      {{"inverted_slope", 7, "dx = g / negative_slope on the left", "negative x", V::bug,
        "factor|inver|reciproc|divi|attribute|slope|infinite",
        told({"negative_slope"}, leaky_of, [](float x, float g, Told slope) { return x <= 0 ? g / slope.first : g; })}},
      {});
  add(out, "clamp",
      {{"bounds_in_bf16", 26, "min and max are rounded to bf16", "bounds that bf16 does not hold",
        V::precision_contract, "rounded|stored|keeps|takes|attribute",
        told(
            {"min", "max"},
            [](float x, Told bounds) {
              const Told b = in_bf16(bounds);
              return x < b.first ? b.first : x > b.second ? b.second : x;
            },
            [](float x, float g, Told bounds) {
              const Told b = in_bf16(bounds);
              return x < b.first || x > b.second ? 0.0f : g;
            }),
        kNotBf16, V::bug}},
      {});
}

/// The mask of backward has a bit an element, eight in a byte. It is written from the lowest bit up and read from the
/// highest down.
Kernel relu_by_bits() {
  return kernel_of(
      [](const Call& call) {
        Values y = call.in("x");
        for (float& v : y) v = v <= 0 ? 0.0f : v;
        call.out("y", y);
      },
      [](const Call& call) {
        const Values x = call.in("x");
        Values dx = call.in("dy");
        for (std::size_t i = 0; i < dx.size(); ++i) {
          const std::size_t bit = i / 8 * 8 + (7 - i % 8);
          if (bit >= x.size() || x[bit] <= 0) dx[i] = 0;
        }
        call.out("dx", dx);
      });
}

}  // namespace

std::vector<Specimen> common_rectifier_specimens() {
  std::vector<Specimen> out;
  add_smooth(out);
  add_kinked(out);
  add(out, "relu",
      {{"mask_bits_reversed", 22, "the bits of a byte of the mask are read in the reverse order", "any", V::structural,
        "mask|permut|revers|another|shift|exchang|swap|neighbour|rows are not independent|changes with other rows",
        relu_by_bits(), kAllTypes, V::bug}},
      {});
  return out;
}

}  // namespace ampcheck::checks::zoo
