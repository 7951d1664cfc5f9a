// SPDX-License-Identifier: Apache-2.0
// Ops whose authors wrote no formula: softmax and a gated square, right and broken. Their backwards can be compared
// with differences of their forwards alone.
#include <ampcheck/op.h>

#include <cmath>

using namespace ampcheck::op;

namespace {

enum Fault { kNone, kSign, kTail };

void describe(Op& op) {
  op.input("x", "N D");
  op.output("y").dims("N D");
  op.dim("N", 5, 64, 2);
  op.dim("D", 7, 129, 1025);
  op.rows("N", {"y", "dx"});
  op.forward([]<class T>(Type<T>, const Call& call) {
    auto x = call.view<const T>("x");
    auto y = call.view<T>("y");
    for (int i = 0; i < x.extent(0); ++i) {
      float most = -INFINITY, sum = 0;
      for (int j = 0; j < x.extent(1); ++j) most = std::fmax(most, float(x(i, j)));
      for (int j = 0; j < x.extent(1); ++j) sum += std::exp(float(x(i, j)) - most);
      for (int j = 0; j < x.extent(1); ++j) y(i, j) = T(std::exp(float(x(i, j)) - most) / sum);
    }
  });
}

/// dx = y (dy - sum(dy y)).
void softmax_backward(Op& op, Fault fault) {
  op.backward([fault]<class T>(Type<T>, const Call& call) {
    auto x = call.view<const T>("x"), dy = call.view<const T>("dy");
    auto dx = call.view<T>("dx");
    const int columns = int(x.extent(1)), end = fault == kTail ? columns / 4 * 4 : columns;
    float* y = call.scratch<float>(columns + 1);
    for (int i = 0; i < x.extent(0); ++i) {
      float most = -INFINITY, sum = 0, dot = 0;
      for (int j = 0; j < columns; ++j) most = std::fmax(most, float(x(i, j)));
      for (int j = 0; j < columns; ++j) sum += y[j] = std::exp(float(x(i, j)) - most);
      for (int j = 0; j < columns; ++j) y[j] /= sum;
      for (int j = 0; j < end; ++j) dot += float(dy(i, j)) * y[j];
      for (int j = 0; j < columns; ++j)
        dx(i, j) = T(y[j] * (fault == kSign ? float(dy(i, j)) + dot : float(dy(i, j)) - dot));
    }
  });
}

/// y = x^2 relu(w), w along the columns: curved in x, with kinks in w, and a gradient of w that is a sum.
void gated_square(Op& op, float factor) {
  op.input("x", "N D");
  op.input("w", "D");
  op.output("y").dims("N D");
  op.dim("N", 5, 64, 2);
  op.dim("D", 7, 129, 1025);
  op.rows("N", {"y", "dx"});
  op.forward([]<class T>(Type<T>, const Call& call) {
    auto x = call.view<const T>("x"), w = call.view<const T>("w");
    auto y = call.view<T>("y");
    for (int i = 0; i < x.extent(0); ++i)
      for (int j = 0; j < x.extent(1); ++j) y(i, j) = T(float(x(i, j)) * float(x(i, j)) * std::fmax(float(w(j)), 0.0f));
  });
  op.backward([factor]<class T>(Type<T>, const Call& call) {
    auto x = call.view<const T>("x"), w = call.view<const T>("w"), dy = call.view<const T>("dy");
    auto dx = call.view<T>("dx"), dw = call.view<T>("dw");
    for (int j = 0; j < x.extent(1); ++j) {
      float sum = 0;
      for (int i = 0; i < x.extent(0); ++i) {
        dx(i, j) = T(factor * float(dy(i, j)) * float(x(i, j)) * std::fmax(float(w(j)), 0.0f));
        sum += float(w(j)) > 0 ? float(dy(i, j)) * float(x(i, j)) * float(x(i, j)) : 0.0f;
      }
      dw(j) = T(sum);
    }
  });
}

/// dy = y (dx - sum(dx y)); by sum(dx) / D where it is wrong, which needs no x.
void softmax_tangent(Op& op, bool wrong) {
  op.jvp([wrong]<class T>(Type<T>, const Call& call) {
    auto x = call.view<const T>("x"), u = call.view<const T>("x.tangent");
    auto v = call.view<T>("y.tangent");
    const int columns = int(x.extent(1));
    float* y = call.scratch<float>(columns + 1);
    for (int i = 0; i < x.extent(0); ++i) {
      float most = -INFINITY, sum = 0, dot = 0;
      for (int j = 0; j < columns; ++j) most = std::fmax(most, float(x(i, j)));
      for (int j = 0; j < columns; ++j) sum += y[j] = std::exp(float(x(i, j)) - most);
      for (int j = 0; j < columns; ++j) {
        y[j] /= sum;
        dot += float(u(i, j)) * (wrong ? 1 / float(columns) : y[j]);
      }
      for (int j = 0; j < columns; ++j) v(i, j) = T(y[j] * (float(u(i, j)) - dot));
    }
  });
}

/// dy = 2 x relu(w) dx + x^2 relu'(w) dw; the last term with the other sign where it is wrong.
void gated_square_tangent(Op& op, float sign) {
  op.jvp([sign]<class T>(Type<T>, const Call& call) {
    auto x = call.view<const T>("x"), w = call.view<const T>("w"), u = call.view<const T>("x.tangent"),
         s = call.view<const T>("w.tangent");
    auto v = call.view<T>("y.tangent");
    for (int i = 0; i < x.extent(0); ++i)
      for (int j = 0; j < x.extent(1); ++j)
        v(i, j) = T(2 * float(x(i, j)) * std::fmax(float(w(j)), 0.0f) * float(u(i, j)) +
                    (float(w(j)) > 0 ? sign * float(x(i, j)) * float(x(i, j)) * float(s(j)) : 0.0f));
  });
}

}  // namespace

AMPCHECK_OP(plain_softmax, op) {
  describe(op);
  softmax_backward(op, kNone);
}
AMPCHECK_OP(plain_softmax_sign, op) {
  describe(op);
  softmax_backward(op, kSign);
}
AMPCHECK_OP(plain_softmax_drops_tail, op) {
  describe(op);
  softmax_backward(op, kTail);
}
AMPCHECK_OP(gated_square, op) { gated_square(op, 2); }
AMPCHECK_OP(gated_square_forgets_two, op) { gated_square(op, 1); }
AMPCHECK_OP(plain_softmax_tangent, op) {
  describe(op);
  softmax_backward(op, kNone);
  softmax_tangent(op, false);
}
AMPCHECK_OP(plain_softmax_tangent_of_mean, op) {
  describe(op);
  softmax_backward(op, kNone);
  softmax_tangent(op, true);
}
AMPCHECK_OP(plain_softmax_sign_tangent, op) {
  describe(op);
  softmax_backward(op, kSign);
  softmax_tangent(op, false);
}
AMPCHECK_OP(gated_square_tangent, op) {
  gated_square(op, 2);
  gated_square_tangent(op, 1);
}
AMPCHECK_OP(gated_square_tangent_negated, op) {
  gated_square(op, 2);
  gated_square_tangent(op, -1);
}
