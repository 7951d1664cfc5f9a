// SPDX-License-Identifier: Apache-2.0
// y = x mask / (1 - p), dropout with the mask that the caller drew, forward and backward; and versions whose backward
// is another dropout's (class 35 of the table of defects: pytorch#190717).
#include <ampcheck/op.h>

namespace {

using namespace ampcheck::op;

enum class Twist {
  none,
  by_reciprocal,  ///< right: times 1 / (1 - p), and the mask as a factor
  other_draw,     ///< backward draws a mask of its own, with another seed
  next_row,       ///< its counter starts a row late
  unscaled,       ///< 1 / (1 - p) in the forward alone
  no_mask,        ///< and the mask in the forward alone
};

/// A draw from a counter, as kernels make them anew in the backward instead of keeping a mask.
bool drawn(std::uint32_t i, float p) {
  std::uint32_t h = (i + 0x9e3779b9u) * 0x85ebca6bu;
  h ^= h >> 13;
  h *= 0xc2b2ae35u;
  h ^= h >> 16;
  return float(h >> 8) * 0x1p-24f >= p;
}

void describe(Op& op, Twist twist) {
  op.summary("y = x mask / (1 - p)");
  op.input("x", "N D");
  op.input("mask", "N D").mask();
  op.attribute("p", 0.25, {0, 0.5, 0.9});
  op.output("y");
  op.dim("N", 5, 64, 3);
  op.dim("D", 7, 129, 1024);
  op.rows("N", {"y", "dx"});
  op.formula([](Expr x, Expr mask, Expr p) { return x * mask / (1 - p); });
  op.forward([twist]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x");
    const auto mask = call.view<const std::uint8_t>("mask");
    const auto y = call.view<T>("y");
    const float keep = 1 - float(call.number("p"));
    for (std::int64_t i = 0; i < x.extent(0); ++i)
      for (std::int64_t j = 0; j < x.extent(1); ++j)
        y(i, j) = T(twist == Twist::by_reciprocal ? float(x(i, j)) * (float(mask(i, j)) * (1 / keep))
                                                  : float(x(i, j)) * float(mask(i, j)) / keep);
  });
  op.backward([twist]<class T>(Type<T>, const Call& call) {
    const auto dy = call.view<const T>("dy");
    const auto mask = call.view<const std::uint8_t>("mask");
    const auto dx = call.view<T>("dx");
    const float p = float(call.number("p")), keep = 1 - p;
    for (std::int64_t i = 0; i < dx.extent(0); ++i)
      for (std::int64_t j = 0; j < dx.extent(1); ++j) {
        float m = float(mask(i, j));
        if (twist == Twist::other_draw) m = drawn(static_cast<std::uint32_t>(i * dx.extent(1) + j), p) ? 1.0f : 0.0f;
        if (twist == Twist::next_row) m = float(mask((i + 1) % dx.extent(0), j));
        if (twist == Twist::no_mask) m = 1;
        const float g = float(dy(i, j)) * m;
        dx(i, j) = T(twist == Twist::unscaled        ? g
                     : twist == Twist::by_reciprocal ? float(dy(i, j)) * (m * (1 / keep))
                                                     : g / keep);
      }
  });
}

}  // namespace

AMPCHECK_OP(dropout, op) { describe(op, Twist::none); }
AMPCHECK_OP(dropout_by_reciprocal, op) { describe(op, Twist::by_reciprocal); }
AMPCHECK_OP(dropout_of_another_draw, op) { describe(op, Twist::other_draw); }
AMPCHECK_OP(dropout_a_row_late, op) { describe(op, Twist::next_row); }
AMPCHECK_OP(dropout_unscaled_backward, op) { describe(op, Twist::unscaled); }
AMPCHECK_OP(dropout_forgets_mask, op) { describe(op, Twist::no_mask); }
