// SPDX-License-Identifier: Apache-2.0
// Kernels that choose: hard sigmoid, whose kinks stand behind an addition, relu written as a maximum, and squares under
// a mask. At a kink, and at NaN or infinity behind a choice, they have other conventions than the formula's derivative,
// as most have. Broken versions beside them.
#include "unary.h"

namespace {

using namespace ampcheck::op;

void sizes(Op& op) {
  op.dim("N", 5, 64, 3);
  op.dim("D", 7, 129, 1024);
}

float clamped(float v) { return v < 0 ? 0.0f : v > 6 ? 6.0f : v; }

void describe_hard_sigmoid(Op& op, float slope) {
  op.summary("y = min(max(x + 3, 0), 6) / 6");
  op.formula([](Expr x) { return minimum(maximum(x + 3, 0), 6) / 6; });
  describe_unary(
      op, [](float x) { return clamped(x + 3) / 6; },
      [slope](float x, float g) { return x > -3 && x < 3 ? slope * g : 0.0f; });
}

void describe_relu(Op& op, bool leaks) {
  op.summary("y = max(x, 0)");
  op.formula([](Expr x) { return maximum(x, 0); });
  describe_unary(
      op, [](float x) { return x < 0 ? 0.0f : x; },
      [leaks](float x, float g) { return x > 0   ? g
                                         : leaks ? 0.01f * g
                                                 : 0.0f; });
}

/// `forgets`: the gradient passes where the mask is off.
void describe_masked_squares(Op& op, bool forgets) {
  op.summary("y = sum of x x where the mask is on, along the last axis");
  op.input("x", "N D");
  op.input("mask", "N D").mask();
  op.output("y");
  sizes(op);
  op.formula([](Expr x, Expr mask) { return sum(where(mask > 0, x * x, 0), -1); });
  op.forward([]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x");
    const auto mask = call.view<const std::uint8_t>("mask");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < x.extent(0); ++i) {
      float total = 0;
      for (std::int64_t j = 0; j < x.extent(1); ++j) total += mask(i, j) != 0 ? float(x(i, j)) * float(x(i, j)) : 0.0f;
      y(i, 0) = T(total);
    }
  });
  op.backward([forgets]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), dy = call.view<const T>("dy");
    const auto mask = call.view<const std::uint8_t>("mask");
    const auto dx = call.view<T>("dx");
    for (std::int64_t i = 0; i < x.extent(0); ++i)
      for (std::int64_t j = 0; j < x.extent(1); ++j)
        dx(i, j) = T(mask(i, j) != 0 || forgets ? 2 * float(x(i, j)) * float(dy(i, 0)) : 0.0f);
  });
}

}  // namespace

AMPCHECK_OP(hard_sigmoid, op) { describe_hard_sigmoid(op, 1.0f / 6); }
AMPCHECK_OP(hard_sigmoid_too_steep, op) { describe_hard_sigmoid(op, 0.2f); }
AMPCHECK_OP(relu_by_maximum, op) { describe_relu(op, false); }
AMPCHECK_OP(relu_leaks, op) { describe_relu(op, true); }
AMPCHECK_OP(masked_squares, op) { describe_masked_squares(op, false); }
AMPCHECK_OP(masked_squares_forgets_mask, op) { describe_masked_squares(op, true); }
