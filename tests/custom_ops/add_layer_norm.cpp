// SPDX-License-Identifier: Apache-2.0
// Fused residual + LayerNorm as in training frameworks: h = x + residual is written for the next block, y =
// LayerNorm(h). One pass over the row for mean and variance (Welford 1962), statistics saved in fp32, backward by rows,
// and the gradients of weight and bias by columns in blocks of rows. Two broken versions beside it.
#include <ampcheck/op.h>

#include <cmath>

namespace {

using ampcheck::op::Call;
using ampcheck::op::Expr;
using ampcheck::op::Op;
using ampcheck::op::Type;
using ampcheck::op::View;

enum class Version {
  right,
  drops_skip_gradient,  // the cotangent of h never reaches x and residual
  low_accumulation,     // dweight and dbias are added up in the storage type
};

struct Moments {
  float mean = 0, m2 = 0;
  int count = 0;

  void add(float value) {
    ++count;
    const float delta = value - mean;
    mean += delta / static_cast<float>(count);
    m2 += delta * (value - mean);
  }
};

template <class T>
void forward(const Call& call) {
  const auto x = call.view<const T>("x"), residual = call.view<const T>("residual");
  const auto weight = call.view<const T>("weight"), bias = call.view<const T>("bias");
  const auto y = call.view<T>("y"), h = call.view<T>("h");
  const auto mean = call.view<float>("mean"), inv_std = call.view<float>("inv_std");
  const auto eps = static_cast<float>(call.number("eps"));
  for (std::int64_t row = 0; row < x.extent(0); ++row) {
    Moments moments;
    for (std::int64_t i = 0; i < x.extent(1); ++i) {
      const float sum = float(x(row, i)) + float(residual(row, i));
      h(row, i) = T(sum);
      moments.add(sum);
    }
    const float scale = 1.0f / std::sqrt(moments.m2 / static_cast<float>(moments.count) + eps);
    mean(row, 0) = moments.mean;
    inv_std(row, 0) = scale;
    for (std::int64_t i = 0; i < x.extent(1); ++i) {
      const float normal = (float(x(row, i)) + float(residual(row, i)) - moments.mean) * scale;
      y(row, i) = T(normal * float(weight(i)) + float(bias(i)));
    }
  }
}

/// What both the row and the column pass need of one element.
template <class T>
struct Saved {
  explicit Saved(const Call& call)
      : x(call.view<const T>("x")),
        residual(call.view<const T>("residual")),
        mean(call.view<const float>("mean")),
        inv_std(call.view<const float>("inv_std")) {}
  float normal(std::int64_t row, std::int64_t i) const {
    return (float(x(row, i)) + float(residual(row, i)) - mean(row, 0)) * inv_std(row, 0);
  }
  View<const T> x, residual;
  View<const float> mean, inv_std;
};

template <class T>
void backward_rows(const Call& call, Version version) {
  const Saved<T> saved(call);
  const auto weight = call.view<const T>("weight"), dy = call.view<const T>("dy"), dh = call.view<const T>("dh");
  const auto dx = call.view<T>("dx"), dresidual = call.view<T>("dresidual");
  const std::int64_t n = dx.extent(1);
  for (std::int64_t row = 0; row < dx.extent(0); ++row) {
    float sum = 0, dot = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const float g = float(dy(row, i)) * float(weight(i));
      sum += g;
      dot += g * saved.normal(row, i);
    }
    sum /= static_cast<float>(n);
    dot /= static_cast<float>(n);
    for (std::int64_t i = 0; i < n; ++i) {
      const float g = float(dy(row, i)) * float(weight(i));
      float out = saved.inv_std(row, 0) * (g - sum - saved.normal(row, i) * dot);
      if (version != Version::drops_skip_gradient) out += float(dh(row, i));
      dx(row, i) = T(out);
      dresidual(row, i) = T(out);
    }
  }
}

template <class T, class Accumulator>
void backward_columns(const Call& call) {
  constexpr std::int64_t kBlock = 16;
  const Saved<T> saved(call);
  const auto dy = call.view<const T>("dy");
  const auto dweight = call.view<T>("dweight"), dbias = call.view<T>("dbias");
  for (std::int64_t i = 0; i < dweight.extent(0); ++i) {
    Accumulator weight_total{}, bias_total{};
    for (std::int64_t block = 0; block < dy.extent(0); block += kBlock) {
      Accumulator weight_sum{}, bias_sum{};
      for (std::int64_t row = block; row < std::min(block + kBlock, dy.extent(0)); ++row) {
        weight_sum = Accumulator(float(weight_sum) + float(dy(row, i)) * saved.normal(row, i));
        bias_sum = Accumulator(float(bias_sum) + float(dy(row, i)));
      }
      weight_total = Accumulator(float(weight_total) + float(weight_sum));
      bias_total = Accumulator(float(bias_total) + float(bias_sum));
    }
    dweight(i) = T(float(weight_total));
    dbias(i) = T(float(bias_total));
  }
}

void describe(Op& op, Version version) {
  op.summary("h = x + residual; y = LayerNorm(h)");
  op.input("x", "N D");
  op.input("residual", "N D");
  op.input("weight", "D").weight();
  op.input("bias", "D").bias();
  op.output("y");
  op.output("h");
  op.saved("mean");
  op.saved("inv_std");
  op.attribute("eps", 1e-5, {1e-12, 1e-3});
  op.dim("N", 5, 64, 2);
  op.dim("D", 7, 129, 1025).least(1);
  op.rows("N", {"y", "h", "dx", "dresidual"});
  const auto formula = [](Expr x, Expr residual, Expr weight, Expr bias, Expr eps) {
    const Expr h = x + residual, centred = h - stored("mean", mean(h, -1));
    const Expr inv_std = stored("inv_std", rsqrt(mean(square(centred), -1) + eps)), n = centred * inv_std;
    const Expr normal = with_adjoint(n, {h}, [=](Expr g) { return inv_std * (g - mean(g, -1) - n * mean(g * n, -1)); });
    return std::vector<Expr>{normal * weight + bias, h};
  };
  op.formula(formula);
  op.form("one pass", formula, true);
  op.forward([]<class T>(Type<T>, const Call& call) { forward<T>(call); });
  op.backward([version]<class T>(Type<T>, const Call& call) {
    backward_rows<T>(call, version);
    if (version == Version::low_accumulation)
      backward_columns<T, T>(call);
    else
      backward_columns<T, float>(call);
  });
}

}  // namespace

AMPCHECK_OP(add_layer_norm, op) { describe(op, Version::right); }
AMPCHECK_OP(add_layer_norm_drops_skip_gradient, op) { describe(op, Version::drops_skip_gradient); }
AMPCHECK_OP(add_layer_norm_low_accumulation, op) { describe(op, Version::low_accumulation); }
