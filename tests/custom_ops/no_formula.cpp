// SPDX-License-Identifier: Apache-2.0
// Ops whose authors wrote no formula: softmax and a gated square, right and broken. Their backwards can be compared with
// differences of their forwards alone.
#include <ampcheck/op.h>

#include <cmath>

using namespace ampcheck::op;

namespace {

enum Fault { kNone, kSign, kTail };

void describe(Op& op) {
  op.input("x", "N D");
  op.output("y").dims("N D");
  op.dim("N", 5, 64, 2), op.dim("D", 7, 129, 1025);
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
      for (int j = 0; j < columns; ++j) dx(i, j) = T(y[j] * (fault == kSign ? float(dy(i, j)) + dot : float(dy(i, j)) - dot));
    }
  });
}

/// y = x^2 relu(w), w along the columns: curved in x, with kinks in w, and a gradient of w that is a sum.
void gated_square(Op& op, float factor) {
  op.input("x", "N D"), op.input("w", "D");
  op.output("y").dims("N D");
  op.dim("N", 5, 64, 2), op.dim("D", 7, 129, 1025);
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

}  // namespace

AMPCHECK_OP(plain_softmax, op) { describe(op), softmax_backward(op, kNone); }
AMPCHECK_OP(plain_softmax_sign, op) { describe(op), softmax_backward(op, kSign); }
AMPCHECK_OP(plain_softmax_drops_tail, op) { describe(op), softmax_backward(op, kTail); }
AMPCHECK_OP(gated_square, op) { gated_square(op, 2); }
AMPCHECK_OP(gated_square_forgets_two, op) { gated_square(op, 1); }
