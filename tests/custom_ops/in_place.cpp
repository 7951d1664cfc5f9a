// SPDX-License-Identifier: Apache-2.0
// Softmax along the last axis whose output overwrites its input. One that sums a row anew for every tile of it reads
// what it has written; it is right with two buffers. Two others are wrong for reasons of their own, with a shared
// buffer or without.
#include <ampcheck/op.h>

#include <algorithm>
#include <cmath>

namespace {

using namespace ampcheck::op;

enum class Twist { none, rereads, unscaled, dense_rows };
constexpr std::int64_t kTile = 4;

template <class View>
float most_of(const View& x, std::int64_t i) {
  float most = x(i, 0);
  for (std::int64_t j = 1; j < x.extent(1); ++j) most = most != most || most > float(x(i, j)) ? most : float(x(i, j));
  return most;
}

template <class View>
float total_of(const View& x, std::int64_t i, float most) {
  float sum = 0;
  for (std::int64_t j = 0; j < x.extent(1); ++j) sum += std::exp(float(x(i, j)) - most);
  return sum;
}

void describe(Op& op, Twist twist) {
  op.summary("y = softmax(x) along the last axis, in place");
  op.input("x", "N D");
  op.output("y").in_place("x");
  op.dim("N", 5, 64, 3);
  op.dim("D", 7, 129, 1024).least(1);
  op.rows("N", {"y", "dx"});
  op.strided();
  op.formula("e = exp(x - max(x, -1)); y = e / sum(e, -1)");
  op.forward([twist]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < x.extent(0); ++i) {
      const float most = most_of(x, i);
      float sum = total_of(x, i, most);
      for (std::int64_t j = 0; j < x.extent(1); ++j) {
        if (twist == Twist::rereads && j > 0 && j % kTile == 0) sum = total_of(x, i, most);
        const T value = T(std::exp(float(x(i, j)) - most) / (twist == Twist::unscaled ? 1.0f : sum));
        if (twist == Twist::dense_rows)
          y.data()[i * x.extent(1) + j] = value;
        else
          y(i, j) = value;
      }
    }
  });
  op.backward([]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), dy = call.view<const T>("dy");
    const auto dx = call.view<T>("dx");
    for (std::int64_t i = 0; i < x.extent(0); ++i) {
      const float most = most_of(x, i), sum = total_of(x, i, most);
      float along = 0;
      for (std::int64_t j = 0; j < x.extent(1); ++j) along += float(dy(i, j)) * (std::exp(float(x(i, j)) - most) / sum);
      for (std::int64_t j = 0; j < x.extent(1); ++j)
        dx(i, j) = T((std::exp(float(x(i, j)) - most) / sum) * (float(dy(i, j)) - along));
    }
  });
}

}  // namespace

AMPCHECK_OP(softmax_in_place, op) { describe(op, Twist::none); }
AMPCHECK_OP(softmax_in_place_rereads, op) { describe(op, Twist::rereads); }
AMPCHECK_OP(softmax_in_place_unscaled, op) { describe(op, Twist::unscaled); }
AMPCHECK_OP(softmax_in_place_dense_rows, op) { describe(op, Twist::dense_rows); }
