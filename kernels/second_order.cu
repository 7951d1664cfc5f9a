// SPDX-License-Identifier: Apache-2.0
#include "kernels/second_order.h"

#include "kernels/column_reduce.h"
#include "kernels/device.h"
#include "kernels/elementwise.h"
#include "kernels/row_reduce.h"

namespace ampcheck::kernels {

namespace {

struct TanhByX {
  AMPCHECK_HD float operator()(float x, float dy, float cotangent) const {
    const float t = math::tanh(x);
    return -2.0f * t * ((1.0f - t * t) * (dy * cotangent));
  }
};

struct TanhByCotangent {
  AMPCHECK_HD float operator()(float x, float cotangent) const {
    const float t = math::tanh(x);
    return cotangent * (1.0f - t * t);
  }
};

struct Product {
  AMPCHECK_HD float operator()(float a, float b) const { return a * b; }
};

struct SumOfProducts {
  AMPCHECK_HD float operator()(float a, float b, float c, float d) const { return a * b + c * d; }
};

/// Zero of a parameter that the backward does not read.
struct Nothing {
  AMPCHECK_HD float operator()(float) const { return 0.0f; }
};

/// A slope and what it is multiplied by.
template <class Slope>
struct Times {
  AMPCHECK_HD float operator()(float x, float dy, float cotangent) const {
    return (dy * cotangent) * Slope::derivative(x);
  }
  AMPCHECK_HD float operator()(float x, float cotangent) const { return cotangent * Slope::value(x); }
};

struct GeluSlope {
  static AMPCHECK_HD float density(float x) { return math::exp(-0.5f * x * x) * 0.39894228040143268f; }  // 1/sqrt(2 pi)
  static AMPCHECK_HD float value(float x) {
    return 0.5f * (1.0f + math::erf(x * 0.70710678118654752f)) + x * density(x);
  }
  static AMPCHECK_HD float derivative(float x) {
    const float pdf = density(x);
    return 2.0f * pdf - x * (x * pdf);
  }
};

struct GeluTanhSlope {
  static constexpr float kScale = 0.79788456080286536f, kCubic = 0.044715f;  // sqrt(2/pi)
  static AMPCHECK_HD float argument(float x) { return kScale * (x + kCubic * x * x * x); }
  static AMPCHECK_HD float first(float x) { return kScale * (1.0f + 3.0f * kCubic * x * x); }
  static AMPCHECK_HD float value(float x) {
    const float t = math::tanh(argument(x));
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * first(x);
  }
  static AMPCHECK_HD float derivative(float x) {
    const float t = math::tanh(argument(x)), u1 = first(x), half_u2 = 3.0f * kScale * kCubic * x;
    return (1.0f - t * t) * (u1 + x * half_u2 - x * t * (u1 * u1));
  }
};

struct SiluSlope {
  static AMPCHECK_HD float value(float x) {
    const float p = math::sigmoid(x);
    return p * (1.0f + x * (1.0f - p));
  }
  static AMPCHECK_HD float derivative(float x) {
    const float p = math::sigmoid(x);
    return p * (1.0f - p) * (2.0f + x * (1.0f - 2.0f * p));
  }
};

struct SigmoidSlope {
  static AMPCHECK_HD float value(float x) {
    const float p = math::sigmoid(x);
    return p * (1.0f - p);
  }
  static AMPCHECK_HD float derivative(float x) {
    const float p = math::sigmoid(x);
    return p * (1.0f - p) * (1.0f - 2.0f * p);
  }
};

struct ExpSlope {
  static AMPCHECK_HD float value(float x) { return math::exp(x); }
  static AMPCHECK_HD float derivative(float x) { return math::exp(x); }
};

/// A slope factor x^exponent, nothing where the factor is 0: the pole of 1/x is none then.
struct PowSlope {
  float factor, exponent;
  AMPCHECK_HD float of(float x) const { return math::select(factor == 0.0f, 0.0f, factor * math::pow(x, exponent)); }
  AMPCHECK_HD float operator()(float x, float cotangent) const { return cotangent * of(x); }
  AMPCHECK_HD float operator()(float x, float dy, float cotangent) const { return (dy * cotangent) * of(x); }
};

struct LogByX {
  AMPCHECK_HD float operator()(float x, float dy, float cotangent) const {
    return -math::divide(math::divide(dy * cotangent, x), x);
  }
};

struct Quotient {
  AMPCHECK_HD float operator()(float a, float b) const { return math::divide(a, b); }
};

struct DivByY {
  AMPCHECK_HD float operator()(float x, float y, float dz, float by_x, float by_y) const {
    return math::divide(math::divide(dz * (2.0f * by_y * math::divide(x, y) - by_x), y), y);
  }
};

struct DivByCotangent {
  AMPCHECK_HD float operator()(float x, float y, float by_x, float by_y) const {
    return math::divide(by_x - by_y * math::divide(x, y), y);
  }
};

AMPCHECK_HD float silu(float x) { return x * math::sigmoid(x); }

struct SwigluByGate {
  AMPCHECK_HD float operator()(float gate, float up, float dy, float by_gate, float by_up) const {
    return dy * (by_gate * up * SiluSlope::derivative(gate) + by_up * SiluSlope::value(gate));
  }
};

struct SwigluByUp {
  AMPCHECK_HD float operator()(float gate, float dy, float by_gate) const {
    return by_gate * dy * SiluSlope::value(gate);
  }
};

struct SwigluByCotangent {
  AMPCHECK_HD float operator()(float gate, float up, float by_gate, float by_up) const {
    return by_gate * up * SiluSlope::value(gate) + by_up * silu(gate);
  }
};

/// Inputs: x, dy, dgrad_x. Outputs: dx, ddy.
template <bool logarithm>
struct SoftmaxDoubleBackward {
  template <class Row>
  AMPCHECK_HD void operator()(const Row& row) const {
    const float shift = row.max([&](std::int64_t i) { return row.in(0, i); });
    const auto e = row.once(0, [&](std::int64_t i) { return math::exp(row.in(0, i) - shift); });
    const float total = row.sum(e);
    const auto p = row.once(1, [&](std::int64_t i) { return math::divide(e(i), total); });
    const auto dy = [&](std::int64_t i) { return row.in(1, i); };
    const auto g = [&](std::int64_t i) { return row.in(2, i); };
    const float a = row.sum([&](std::int64_t i) { return p(i) * g(i); });
    if (logarithm) {
      const float s = row.sum(dy);
      row.out(0, [&](std::int64_t i) { return -(s * p(i) * (g(i) - a)); });
      row.out(1, [&](std::int64_t i) { return g(i) - a; });
      return;
    }
    const float s = row.sum([&](std::int64_t i) { return p(i) * dy(i); });
    const auto h = [&](std::int64_t i) { return g(i) * (dy(i) - s) - dy(i) * a; };
    const float mean_h = row.sum([&](std::int64_t i) { return p(i) * h(i); });
    row.out(0, [&](std::int64_t i) { return p(i) * (h(i) - mean_h); });
    row.out(1, [&](std::int64_t i) { return p(i) * (g(i) - a); });
  }
};

template <bool logarithm>
void softmax(const KernelCall& call) {
  const TensorView& x = call.at("x");
  row_reduce(call, row_count(x.shape), x.shape.last(), SoftmaxDoubleBackward<logarithm>{},
             {x, call.at("dy"), call.at("dgrad_x")}, {call.find("dx"), call.find("ddy")});
}

template <class Slope>
void activation(const KernelCall& call) {
  elementwise(call, call.find("dx"), Times<Slope>{}, call.at("x"), call.at("dy"), call.at("dgrad_x"));
  elementwise(call, call.find("ddy"), Times<Slope>{}, call.at("x"), call.at("dgrad_x"));
}

/// Inputs: x, weight, dy, inverse, dgrad_x, dgrad_weight, dgrad_bias, mean. Outputs: dx, ddy, q.
template <bool centred>
struct NormDoubleBackward {
  template <class Row>
  AMPCHECK_HD void operator()(const Row& row) const {
    const float size = static_cast<float>(row.size()), r = row.scalar(3), middle = centred ? row.scalar(7) : 0.0f;
    const auto n = [&](std::int64_t i) { return centred ? (row.in(0, i) - middle) * r : row.in(0, i) * r; };
    const auto h = [&](std::int64_t i) { return row.in(2, i) * row.in(1, i); };
    const auto c = [&](std::int64_t i) { return row.in(4, i); };
    const auto t = [&](std::int64_t i) { return row.in(5, i) * row.in(2, i); };
    const auto mean = [&](const auto& f) { return math::divide(row.sum(f), size); };
    const auto with_n = [&](const auto& f) { return mean([&](std::int64_t i) { return f(i) * n(i); }); };
    const float a = with_n(c), b = with_n(h), d = with_n(t);
    const float mean_c = centred ? mean(c) : 0.0f, mean_h = centred ? mean(h) : 0.0f, mean_t = centred ? mean(t) : 0.0f;
    const auto project = [&](float v, float mean_v, float mean_vn, std::int64_t i) {
      return r * (v - mean_v - n(i) * mean_vn);
    };
    const auto q = [&](std::int64_t i) { return project(c(i), mean_c, a, i); };
    const auto dx0 = [&](std::int64_t i) { return project(h(i), mean_h, b, i); };
    const float s = mean([&](std::int64_t i) { return c(i) * dx0(i); });
    row.out(0, [&](std::int64_t i) { return project(t(i), mean_t, d, i) - r * (n(i) * s + b * q(i) + a * dx0(i)); });
    row.out(1, [&](std::int64_t i) { return row.in(1, i) * q(i) + row.in(5, i) * n(i) + row.in(6, i); });
    row.out(2, q);
  }
};

/// A tensor in fp32 of the call's device, until the end of the scope.
class Scratch {
 public:
  Scratch(const KernelCall& call, const Shape& shape) {
    if (call.device == Device::cpu) {
      host_ = Tensor(Dtype::fp32, shape);
      view_ = host_.view();
    } else {
      device_ = allocate_on_device(static_cast<std::size_t>(shape.count()) * sizeof(float));
      view_ = {device_.get(), Dtype::fp32, shape, row_major_strides(shape)};
    }
  }
  const TensorView& view() const { return view_; }

 private:
  Tensor host_;
  std::shared_ptr<void> device_;
  TensorView view_;
};

template <bool centred>
void norm(const KernelCall& call, const char* inverse) {
  const TensorView &x = call.at("x"), &dy = call.at("dy");
  const Scratch q(call, x.shape);
  const auto given = [&](const char* name, float fill) { return parameter(call.find(name), x.shape, fill); };
  row_reduce(call, row_count(x.shape), x.shape.last(), NormDoubleBackward<centred>{},
             {x, given("weight", 1.0f), dy, per_row(call.at(inverse)), given("dgrad_x", 0.0f),
              given("dgrad_weight", 0.0f), given("dgrad_bias", 0.0f), per_row(call.at(centred ? "mean" : inverse))},
             {call.find("dx"), call.find("ddy"), q.view()});
  column_reduce(call, call.find("dweight"), x.shape, Product{}, Same{}, dy, q.view());
  if (const TensorView* const dbias = call.find("dbias")) elementwise(call, dbias, Nothing{}, *dbias);
}

}  // namespace

void gelu_double_backward(const KernelCall& call) { activation<GeluSlope>(call); }
void gelu_tanh_double_backward(const KernelCall& call) { activation<GeluTanhSlope>(call); }
void silu_double_backward(const KernelCall& call) { activation<SiluSlope>(call); }
void sigmoid_double_backward(const KernelCall& call) { activation<SigmoidSlope>(call); }
void exp_double_backward(const KernelCall& call) { activation<ExpSlope>(call); }
void softmax_double_backward(const KernelCall& call) { softmax<false>(call); }
void log_softmax_double_backward(const KernelCall& call) { softmax<true>(call); }

void pow_double_backward(const KernelCall& call) {
  const auto p = static_cast<float>(call.number("exponent"));
  elementwise(call, call.find("dx"), PowSlope{p * (p - 1.0f), p - 2.0f}, call.at("x"), call.at("dy"),
              call.at("dgrad_x"));
  elementwise(call, call.find("ddy"), PowSlope{p, p - 1.0f}, call.at("x"), call.at("dgrad_x"));
}

void log_double_backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), LogByX{}, call.at("x"), call.at("dy"), call.at("dgrad_x"));
  elementwise(call, call.find("ddy"), Quotient{}, call.at("dgrad_x"), call.at("x"));
}

void div_double_backward(const KernelCall& call) {
  const TensorView &x = call.at("x"), &y = call.at("y"), &dz = call.at("dz"), &by_x = call.at("dgrad_x"),
                   &by_y = call.at("dgrad_y");
  elementwise(call, call.find("dx"), LogByX{}, y, dz, by_y);
  elementwise(call, call.find("dy"), DivByY{}, x, y, dz, by_x, by_y);
  elementwise(call, call.find("ddz"), DivByCotangent{}, x, y, by_x, by_y);
}

void swiglu_double_backward(const KernelCall& call) {
  const TensorView &gate = call.at("gate"), &up = call.at("up"), &dy = call.at("dy"), &by_gate = call.at("dgrad_gate"),
                   &by_up = call.at("dgrad_up");
  elementwise(call, call.find("dgate"), SwigluByGate{}, gate, up, dy, by_gate, by_up);
  elementwise(call, call.find("dup"), SwigluByUp{}, gate, dy, by_gate);
  elementwise(call, call.find("ddy"), SwigluByCotangent{}, gate, up, by_gate, by_up);
}

void layer_norm_double_backward(const KernelCall& call) { norm<true>(call, "inv_std"); }
void rms_norm_double_backward(const KernelCall& call) { norm<false>(call, "inv_rms"); }

void tanh_double_backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), TanhByX{}, call.at("x"), call.at("dy"), call.at("dgrad_x"));
  elementwise(call, call.find("ddy"), TanhByCotangent{}, call.at("x"), call.at("dgrad_x"));
}

void mul_double_backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), Product{}, call.at("dz"), call.at("dgrad_y"));
  elementwise(call, call.find("dy"), Product{}, call.at("dz"), call.at("dgrad_x"));
  elementwise(call, call.find("ddz"), SumOfProducts{}, call.at("y"), call.at("dgrad_x"), call.at("x"),
              call.at("dgrad_y"));
}

}  // namespace ampcheck::kernels
