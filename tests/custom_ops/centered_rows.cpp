// SPDX-License-Identifier: Apache-2.0
// y = x - mean(x), declared batch invariant: a row's sum has one order. Two versions that sum in another one from 4
// rows on, or in every second row, as kernels do that pick tiles by the size of a batch; and the first of them without
// the promise, which is right.
#include <ampcheck/op.h>

namespace {

using namespace ampcheck::op;

enum class Order { one, by_batch, by_place };

/// A row less its mean: both the forward and, of the cotangent, the backward.
template <class T>
void centre(const View<const T>& from, const View<T>& to, Order order) {
  const auto rows = from.extent(0), columns = from.extent(1);
  for (std::int64_t i = 0; i < rows; ++i) {
    const bool backwards = (order == Order::by_batch && rows >= 4) || (order == Order::by_place && i % 2 == 1);
    float sum = 0;
    for (std::int64_t j = 0; j < columns; ++j) sum += static_cast<float>(from(i, backwards ? columns - 1 - j : j));
    const float mean = sum / static_cast<float>(columns);
    for (std::int64_t j = 0; j < columns; ++j) to(i, j) = T(static_cast<float>(from(i, j)) - mean);
  }
}

void describe(Op& op, Order order, bool promised = true) {
  op.summary("a row less its mean");
  op.input("x", "N D");
  op.output("y");
  op.dim("N", 5, 64, 33);
  op.dim("D", 7, 129, 32).least(1);
  op.formula([](Expr x) { return x - mean(x, -1); });
  op.rows("N", {"y", "dx"}).strided();
  if (promised) op.batch_invariant();
  op.forward([order]<class T>(Type<T>, const Call& c) { centre<T>(c.view<const T>("x"), c.view<T>("y"), order); });
  op.backward([]<class T>(Type<T>, const Call& c) { centre<T>(c.view<const T>("dy"), c.view<T>("dx"), Order::one); });
}

}  // namespace

AMPCHECK_OP(centered_rows, op) { describe(op, Order::one); }
AMPCHECK_OP(centered_rows_by_batch, op) { describe(op, Order::by_batch); }
AMPCHECK_OP(centered_rows_by_place, op) { describe(op, Order::by_place); }
AMPCHECK_OP(centered_rows_in_any_order, op) { describe(op, Order::by_batch, false); }
