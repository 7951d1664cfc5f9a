// SPDX-License-Identifier: Apache-2.0
// Kernels whose choices stand at a tie more often than not, with other conventions than the formula's derivative: all
// are right. Beside them what is none: the whole gradient to both of two equal inputs, to neither, and to all of a row
// that tie, in a few rows of many.
#include <algorithm>
#include <cmath>

#include "unary.h"

namespace {

using namespace ampcheck::op;

void sizes(Op& op) {
  op.dim("N", 5, 64, 3);
  op.dim("D", 7, 129, 1024).least(1);
}

float positive(float x) { return x < 0 ? 0.0f : x; }
float if_positive(float x, float g) { return x > 0 ? g : 0.0f; }

/// Shares of da and db where a = b.
void describe_larger(Op& op, float of_a, float of_b) {
  op.input("a", "N D");
  op.input("b", "N D");
  op.output("y");
  sizes(op);
  op.formula("y = maximum(a, b)");
  op.forward([]<class T>(Type<T>, const Call& call) {
    const auto a = call.view<const T>("a"), b = call.view<const T>("b");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < a.size(); ++i)
      y[i] = float(a[i]) != float(a[i]) || float(a[i]) > float(b[i]) ? a[i] : b[i];
  });
  op.backward([=]<class T>(Type<T>, const Call& call) {
    const auto a = call.view<const T>("a"), b = call.view<const T>("b"), dy = call.view<const T>("dy");
    const auto da = call.view<T>("da"), db = call.view<T>("db");
    for (std::int64_t i = 0; i < a.size(); ++i) {
      const float x = a[i], z = b[i], g = dy[i];
      da[i] = T(x == z ? of_a * g : x > z || x != x ? g : 0.0f);
      db[i] = T(x == z ? of_b * g : x > z || x != x ? 0.0f : g);
    }
  });
}

/// The middle one of three; equal numbers share its gradient.
void describe_median(Op& op) {
  for (const char* name : {"a", "b", "c"}) op.input(name, "N D");
  op.output("y");
  sizes(op);
  op.formula("y = maximum(minimum(a, b), minimum(maximum(a, b), c))");
  const auto median = [](float a, float b, float c) {
    return a != a || b != b || c != c ? NAN : std::max(std::min(a, b), std::min(std::max(a, b), c));
  };
  op.forward([median]<class T>(Type<T>, const Call& call) {
    const auto a = call.view<const T>("a"), b = call.view<const T>("b"), c = call.view<const T>("c");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < a.size(); ++i) y[i] = T(median(a[i], b[i], c[i]));
  });
  op.backward([median]<class T>(Type<T>, const Call& call) {
    const auto a = call.view<const T>("a"), b = call.view<const T>("b"), c = call.view<const T>("c"),
               dy = call.view<const T>("dy");
    const auto da = call.view<T>("da"), db = call.view<T>("db"), dc = call.view<T>("dc");
    for (std::int64_t i = 0; i < a.size(); ++i) {
      const float middle = median(a[i], b[i], c[i]), g = dy[i];
      const bool is_a = float(a[i]) == middle, is_b = float(b[i]) == middle, is_c = float(c[i]) == middle;
      const float share = g / static_cast<float>(std::max(1, is_a + is_b + is_c));
      da[i] = T(is_a ? share : 0.0f);
      db[i] = T(is_b ? share : 0.0f);
      dc[i] = T(is_c ? share : 0.0f);
    }
  });
}

/// The last of equal maxima has the gradient; in every 97th row all of them, if `all_at_times`.
void describe_row_maximum(Op& op, bool all_at_times) {
  op.input("x", "N D");
  op.output("y");
  sizes(op);
  op.formula("y = max(x, -1)");
  op.forward([]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < x.extent(0); ++i) {
      float most = x(i, 0);
      for (std::int64_t j = 1; j < x.extent(1); ++j)
        most = most != most || most > float(x(i, j)) ? most : float(x(i, j));
      y(i, 0) = T(most);
    }
  });
  op.backward([all_at_times]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), dy = call.view<const T>("dy");
    const auto dx = call.view<T>("dx");
    for (std::int64_t i = 0; i < x.extent(0); ++i) {
      float most = x(i, 0);
      for (std::int64_t j = 1; j < x.extent(1); ++j)
        most = most != most || most > float(x(i, j)) ? most : float(x(i, j));
      bool given = false;
      for (std::int64_t j = x.extent(1); j-- > 0;) {
        const bool ties = float(x(i, j)) == most || (float(x(i, j)) != float(x(i, j)) && most != most);
        dx(i, j) = T(ties && (!given || (all_at_times && i % 97 == 96)) ? float(dy(i, 0)) : 0.0f);
        given |= ties;
      }
    }
  });
}

}  // namespace

AMPCHECK_OP(relu_with_tangent, op) {
  op.formula("y = maximum(x, 0)");
  describe_unary(op, positive, if_positive);
  op.jvp([]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), u = call.view<const T>("x.tangent");
    const auto v = call.view<T>("y.tangent");
    for (std::int64_t i = 0; i < x.size(); ++i) v[i] = T(if_positive(x[i], u[i]));
  });
}
AMPCHECK_OP(relu_with_wrong_tangent, op) {
  op.formula("y = maximum(x, 0)");
  describe_unary(op, positive, if_positive);
  op.jvp([]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), u = call.view<const T>("x.tangent");
    const auto v = call.view<T>("y.tangent");
    for (std::int64_t i = 0; i < x.size(); ++i) v[i] = T(float(x[i]) == 0 ? 2 * float(u[i]) : if_positive(x[i], u[i]));
  });
}
AMPCHECK_OP(relu_adds_gradient, op) {
  op.formula("y = maximum(x, 0)");
  describe_unary(op, positive, if_positive);
  op.accumulates({"dx"});
  op.backward([]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), dy = call.view<const T>("dy");
    const auto dx = call.view<T>("dx");
    for (std::int64_t i = 0; i < x.size(); ++i) dx[i] = T(float(dx[i]) + if_positive(x[i], dy[i]));
  });
}
// Equal infinities tie too, where 0.01 x is the limit; and a zero that is moved has to move exp(x) beside 1.
AMPCHECK_OP(leaky_by_maximum, op) {
  op.formula("y = maximum(x, 0.01 * x)");
  describe_unary(
      op, [](float x) { return x > 0 || x != x ? x : 0.01f * x; },
      [](float x, float g) { return x > 0 ? g : 0.01f * g; });
}
AMPCHECK_OP(hinge_of_exp, op) {
  op.formula("y = maximum(exp(x) - 1, 0)");
  describe_unary(
      op, [](float x) { return x < 0 ? 0.0f : std::exp(x) - 1; },
      [](float x, float g) { return x > 0 ? g * std::exp(x) : 0.0f; });
}
// Two kinks that are none together: each of them has another convention at zero.
AMPCHECK_OP(elu_in_two_parts, op) {
  op.formula("y = maximum(x, 0) + expm1(minimum(x, 0))");
  describe_unary(
      op, [](float x) { return x > 0 ? x : std::expm1(x); },
      [](float x, float g) { return x > 0 ? g : g * std::exp(x); });
}
AMPCHECK_OP(larger_by_halves, op) { describe_larger(op, 0.5f, 0.5f); }
AMPCHECK_OP(larger_twice, op) { describe_larger(op, 1, 1); }
AMPCHECK_OP(larger_never, op) { describe_larger(op, 0, 0); }
AMPCHECK_OP(median_by_shares, op) { describe_median(op); }
AMPCHECK_OP(row_maximum_last, op) { describe_row_maximum(op, false); }
AMPCHECK_OP(row_maximum_all_at_times, op) { describe_row_maximum(op, true); }
