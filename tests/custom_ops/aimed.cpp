// SPDX-License-Identifier: Apache-2.0
// Formulas with a part that ordinary data does not reach: a branch in a window of x, a branch far out, a branch on a
// whole row, and terms that drown beside the others. Broken versions are wrong there and nowhere else.
#include <cmath>

#include "unary.h"

namespace {

using namespace ampcheck::op;

/// `inside`: the factor of the window's values, 0.5 where the kernel is right.
void describe_window(Op& op, float inside) {
  op.summary("y = x / 2 where |x - 1237.5| < 2, else x");
  op.formula([](Expr x) { return where(abs(x - 1237.5) < 2, 0.5 * x, x); });
  describe_unary(
      op, [inside](float x) { return std::fabs(x - 1237.5f) < 2 ? inside * x : x; },
      [](float x, float g) { return std::fabs(x - 1237.5f) < 2 ? 0.5f * g : g; });
}

/// `beyond`: the slope of the gradient past the bend, 0.125 where the kernel is right.
void describe_bend(Op& op, float beyond) {
  op.summary("y = 300 + (x - 300) / 8 where x > 300, else x");
  op.formula([](Expr x) { return where(x > 300, 300 + (x - 300) * 0.125, x); });
  describe_unary(
      op, [](float x) { return x > 300 ? 300 + (x - 300) * 0.125f : x; },
      [beyond](float x, float g) { return x > 300 ? beyond * g : g; });
}

/// A condition on whole rows. `factor`: 0.5 where the kernel is right.
void describe_loud_rows(Op& op, float factor) {
  op.summary("y = x / 2 in rows whose mean is about 3000, else x");
  op.input("x", "N D");
  op.output("y");
  op.dim("N", 5, 64, 3);
  op.dim("D", 7, 129, 1024);
  op.storage({AC_FP32, AC_BF16});
  op.formula([](Expr x) { return where(abs(mean(x, -1) - 3000) < 500, x * 0.5, x); });
  const auto rows = [factor]<class T>(Type<T>, const Call& call, const char* from, const char* to) {
    const auto x = call.view<const T>("x"), in = call.view<const T>(from);
    const auto out = call.view<T>(to);
    for (std::int64_t i = 0; i < x.extent(0); ++i) {
      float total = 0;
      for (std::int64_t j = 0; j < x.extent(1); ++j) total += float(x(i, j));
      const bool loud = std::fabs(total / float(x.extent(1)) - 3000) < 500;
      for (std::int64_t j = 0; j < x.extent(1); ++j) out(i, j) = T(loud ? factor * float(in(i, j)) : float(in(i, j)));
    }
  };
  op.forward<float, BFloat16>([rows]<class T>(Type<T> type, const Call& call) { rows(type, call, "x", "y"); });
  op.backward<float, BFloat16>([rows]<class T>(Type<T> type, const Call& call) { rows(type, call, "dy", "dx"); });
}

/// A cubic, which does not invert by a chain: x occurs more than once. `factor`: 1 where the kernel is right.
void describe_pocket(Op& op, float factor) {
  op.summary("y = -x where (x - 700)^2 + x < 700.25, else x");
  op.formula([](Expr x) { return where((x - 700) * (x - 700) + x < 700.25, -x, x); });
  op.storage({AC_FP32});
  const auto in = [](float x) { return (x - 700) * (x - 700) + x < 700.25f; };
  describe_unary<float>(
      op, [in, factor](float x) { return in(x) ? -factor * x : x; }, [in](float x, float g) { return in(x) ? -g : g; });
}

void two_inputs(Op& op) {
  op.input("a", "N D");
  op.input("b", "N D");
  op.output("y");
  op.dim("N", 5, 64, 3);
  op.dim("D", 7, 129, 1024);
}

/// `scale`: of the small term, 1e-14f where the kernel is right.
void describe_drowned(Op& op, float scale) {
  op.summary("y = 1 + a + 1e-14 b^2");
  op.storage({AC_FP32, AC_BF16});
  two_inputs(op);
  op.formula([](Expr a, Expr b) { return 1 + a + 1e-14 * (b * b); });
  op.forward<float, BFloat16>([scale]<class T>(Type<T>, const Call& call) {
    const auto a = call.view<const T>("a"), b = call.view<const T>("b");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < y.size(); ++i) y[i] = T(1 + float(a[i]) + scale * (float(b[i]) * float(b[i])));
  });
  op.backward<float, BFloat16>([]<class T>(Type<T>, const Call& call) {
    const auto b = call.view<const T>("b"), dy = call.view<const T>("dy");
    const auto da = call.view<T>("da"), db = call.view<T>("db");
    for (std::int64_t i = 0; i < dy.size(); ++i) {
      da[i] = T(float(dy[i]));
      db[i] = T(2e-14f * float(b[i]) * float(dy[i]));
    }
  });
}

}  // namespace

AMPCHECK_OP(window, op) { describe_window(op, 0.5f); }
AMPCHECK_OP(window_wrong_inside, op) { describe_window(op, 0.625f); }
AMPCHECK_OP(bend, op) { describe_bend(op, 0.125f); }
AMPCHECK_OP(bend_wrong_beyond, op) { describe_bend(op, 0.25f); }
AMPCHECK_OP(loud_rows, op) { describe_loud_rows(op, 0.5f); }
AMPCHECK_OP(loud_rows_wrong, op) { describe_loud_rows(op, 0.25f); }
AMPCHECK_OP(pocket, op) { describe_pocket(op, 1); }
AMPCHECK_OP(pocket_wrong_inside, op) { describe_pocket(op, 0.75f); }
AMPCHECK_OP(drowned, op) { describe_drowned(op, 1e-14f); }
AMPCHECK_OP(drowned_half, op) { describe_drowned(op, 0.5e-14f); }
