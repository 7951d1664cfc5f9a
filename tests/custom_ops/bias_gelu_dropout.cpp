// SPDX-License-Identifier: Apache-2.0
// Fused bias + GELU + dropout with a given mask: y = gelu(x + bias) mask / (1 - p). The bias may be absent; its
// gradient is summed over rows in fp32. Two broken versions beside it.
#include <ampcheck/op.h>

#include <cmath>

namespace {

using ampcheck::op::Call;
using ampcheck::op::Expr;
using ampcheck::op::Op;
using ampcheck::op::Type;

enum class Version {
  right,
  forgets_mask,   // backward passes gradients through what dropout has cut
  tanh_gradient,  // the gradient of the tanh approximation below the erf forward
};

float gelu(float h) { return 0.5f * h * (1.0f + std::erf(h * 0.70710678f)); }

float gelu_slope(float h, Version version) {
  if (version == Version::tanh_gradient) {
    const float t = std::tanh(0.79788456f * (h + 0.044715f * h * h * h));
    return 0.5f * (1.0f + t) + 0.5f * h * (1.0f - t * t) * 0.79788456f * (1.0f + 0.134145f * h * h);
  }
  const float cdf = 0.5f * (1.0f + std::erf(h * 0.70710678f));
  return cdf + h * (std::exp(-0.5f * h * h) * 0.39894228f);
}

template <class T>
void forward(const Call& call) {
  const auto x = call.view<const T>("x"), bias = call.find<const T>("bias");
  const auto mask = call.view<const std::uint8_t>("mask");
  const auto y = call.view<T>("y");
  const float scale = 1.0f / (1.0f - float(call.number("p")));
  for (std::int64_t i = 0; i < x.extent(0); ++i)
    for (std::int64_t j = 0; j < x.extent(1); ++j) {
      const float h = float(x(i, j)) + (bias ? float(bias(j)) : 0.0f);
      y(i, j) = T(gelu(h) * float(mask(i, j)) * scale);
    }
}

template <class T>
void backward(const Call& call, Version version) {
  const auto x = call.view<const T>("x"), bias = call.find<const T>("bias"), dy = call.view<const T>("dy");
  const auto mask = call.view<const std::uint8_t>("mask");
  const auto dx = call.view<T>("dx"), dbias = call.find<T>("dbias");
  const float scale = 1.0f / (1.0f - float(call.number("p")));
  float* total = call.scratch<float>(x.extent(1));
  for (std::int64_t i = 0; i < x.extent(0); ++i)
    for (std::int64_t j = 0; j < x.extent(1); ++j) {
      const float h = float(x(i, j)) + (bias ? float(bias(j)) : 0.0f);
      const float kept = version == Version::forgets_mask ? 1.0f : float(mask(i, j));
      const float g = float(dy(i, j)) * scale * kept * gelu_slope(h, version);
      dx(i, j) = T(g);
      total[j] += g;
    }
  for (std::int64_t j = 0; dbias && j < x.extent(1); ++j) dbias(j) = T(total[j]);
}

void describe(Op& op, Version version) {
  op.summary("y = gelu(x + bias) mask / (1 - p)");
  op.input("x", "N D");
  op.input("bias", "D").bias().optional();
  op.input("mask", "N D").mask();
  op.output("y");
  op.attribute("p", 0.1, {0, 0.5});
  op.dim("N", 5, 64, 2);
  op.dim("D", 7, 129, 1025);
  op.rows("N", {"y", "dx"});
  op.formula(
      "h = given(bias, x + bias, x)\n"
      "y = 0.5 * h * (1 + erf(h * (1/sqrt(2)))) * mask * (1 / (1 - p))");
  op.form("g (cdf + h pdf)",
          "h = given(bias, x + bias, x); cdf = 0.5 * (1 + erf(h * (1/sqrt(2))))\n"
          "a = h * cdf  with dh = da * (cdf + h * (exp(-0.5 * h^2) * (1/sqrt(2*pi))))\n"
          "y = a * mask * (1 / (1 - p))");
  op.forward([]<class T>(Type<T>, const Call& call) { forward<T>(call); });
  op.backward([version]<class T>(Type<T>, const Call& call) { backward<T>(call, version); });
}

}  // namespace

AMPCHECK_OP(bias_gelu_dropout, op) { describe(op, Version::right); }
AMPCHECK_OP(bias_gelu_dropout_forgets_mask, op) { describe(op, Version::forgets_mask); }
AMPCHECK_OP(bias_gelu_dropout_tanh_gradient, op) { describe(op, Version::tanh_gradient); }
