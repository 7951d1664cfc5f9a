// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// softplus.
#include <algorithm>
#include <array>

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
      {{"overflows", 28, "log1p(exp(z)) / beta", "beta x above 88", V::bug, "overflow|inf-inf|infinite",
        kernel([](float x, Numbers n) { return std::log1p(std::exp(n[0] * x)) / n[0]; }, softplus_slope), kAllTypes,
        V::range},
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
            softplus_slope)}});
}

}  // namespace

std::vector<Specimen> rectifier_specimens() {
  std::vector<Specimen> out;
  add_softplus(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
