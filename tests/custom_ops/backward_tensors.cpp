// SPDX-License-Identifier: Apache-2.0
// What a backward may read and write besides: outputs as forward wrote them, the cotangent that its gradient
// overwrites, and outputs that take no cotangent.
#include <ampcheck/op.h>

#include <cmath>

namespace {

using namespace ampcheck::op;

enum class Twist { none, wrong };

/// The derivative of tanh from y, in y's own precision.
void describe_by_output(Op& op, Twist twist) {
  op.summary("y = tanh(x), with dx = dy (1 - y^2) from y as it is stored");
  op.input("x", "N");
  op.output("y").to_backward();
  op.dim("N", 35, 1025, 3000);
  op.formula("y = tanh(x)");
  op.forward([]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < x.size(); ++i) y[i] = T(std::tanh(float(x[i])));
  });
  op.backward([twist]<class T>(Type<T>, const Call& call) {
    const auto y = call.view<const T>("y"), dy = call.view<const T>("dy");
    const auto dx = call.view<T>("dx");
    for (std::int64_t i = 0; i < y.size(); ++i) {
      const float v = float(y[i]);
      dx[i] = T(float(dy[i]) * (twist == Twist::wrong ? 1 - v : 1 - v * v));
    }
  });
}

/// silu whose backward multiplies the cotangent where it lies.
void describe_over_cotangent(Op& op, Twist twist) {
  op.summary("y = x sigmoid(x), whose gradient overwrites dy");
  op.input("x", "N").gradient_over(1);
  op.output("y");
  op.dim("N", 35, 1025, 3000);
  op.strided();
  op.formula("y = x * sigmoid(x)");
  op.form("usual backward", "s = sigmoid(x); y = x * s with dx = dy * (s * (1 + x * (1 - s)))");
  op.forward([]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < x.size(); ++i) y[i] = T(float(x[i]) / (1 + std::exp(-float(x[i]))));
  });
  op.backward([twist]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x");
    const auto delta = call.view<T>("dx");  // the memory of dy
    for (std::int64_t i = 0; i < x.size(); ++i) {
      const float v = float(x[i]), s = 1 / (1 + std::exp(-v));
      const float cotangent = float(delta[twist == Twist::wrong && i > 0 ? i - 1 : i]);
      delta[i] = T(cotangent * (s * (1 + v * (1 - s))));
    }
  });
}

/// Centred columns, and their running mean, of which no gradient is asked.
void describe_running(Op& op, Twist twist) {
  op.summary("y = x - mean over the rows, and a running mean in place");
  op.input("x", "N C");
  op.input("run", "C").no_gradient();
  op.output("y");
  op.output("run_new").in_place("run").no_gradient();
  op.dim("N", 4, 9, 33).least(1);
  op.dim("C", 3, 8, 16);
  op.formula("m = mean(x, 0); y = x - m; run_new = 0.9 * run + 0.1 * squeeze(m, 0)");
  const auto mean = []<class X>(const X& x, std::int64_t j) {
    float sum = 0;
    for (std::int64_t i = 0; i < x.extent(0); ++i) sum += float(x(i, j));
    return sum / static_cast<float>(x.extent(0));
  };
  op.forward([=]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x");
    const auto y = call.view<T>("y"), run = call.view<T>("run_new");
    for (std::int64_t j = 0; j < x.extent(1); ++j) {
      const float m = mean(x, j);
      for (std::int64_t i = 0; i < x.extent(0); ++i) y(i, j) = T(float(x(i, j)) - m);
      run(j) = T((twist == Twist::wrong ? 0.95f : 0.9f) * float(run(j)) + 0.1f * m);
    }
  });
  op.backward([=]<class T>(Type<T>, const Call& call) {
    const auto dy = call.view<const T>("dy");
    const auto dx = call.view<T>("dx");
    for (std::int64_t j = 0; j < dy.extent(1); ++j) {
      const float m = mean(dy, j);
      for (std::int64_t i = 0; i < dy.extent(0); ++i) dx(i, j) = T(float(dy(i, j)) - m);
    }
  });
}

}  // namespace

AMPCHECK_OP(tanh_by_output, op) { describe_by_output(op, Twist::none); }
AMPCHECK_OP(tanh_by_output_wrong, op) { describe_by_output(op, Twist::wrong); }
AMPCHECK_OP(silu_over_cotangent, op) { describe_over_cotangent(op, Twist::none); }
AMPCHECK_OP(silu_over_cotangent_shifted, op) { describe_over_cotangent(op, Twist::wrong); }
AMPCHECK_OP(running_mean_output, op) { describe_running(op, Twist::none); }
AMPCHECK_OP(running_mean_output_wrong, op) { describe_running(op, Twist::wrong); }
