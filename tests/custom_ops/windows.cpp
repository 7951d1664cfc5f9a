// SPDX-License-Identifier: Apache-2.0
// Kernels that are wrong at one place of an index: a sum over a window whose end is one further, in an op that also
// declares a form with one-pass sums (which must not loosen whole numbers); and a scaled row whose vectorised column
// sums forget all blocks of rows but the last, at widths that take vectors alone.
#include <ampcheck/op.h>

#include <algorithm>

namespace {

using namespace ampcheck::op;

void describe_window(Op& op, std::int64_t too_many) {
  op.summary("y[i] = sum of x[i, j] over j > i - window");
  op.input("x", "T S");
  op.output("y");
  op.attribute("window", 4, {1, 64});
  op.dim("T", 5, 16, 1);
  op.dim("S", 7, 24, 33);
  const char* formula =
      "i = reshape(arange(T), T, 1); j = reshape(arange(S), 1, S); y = sum(where(j > i - window, x, 0), -1)";
  op.formula(formula);
  op.form("one pass", formula, true);
  op.forward([too_many]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x");
    const auto y = call.view<T>("y");
    const auto from = static_cast<std::int64_t>(call.number("window")) + too_many;
    for (std::int64_t i = 0; i < x.extent(0); ++i) {
      float sum = 0;
      for (std::int64_t j = 0; j < x.extent(1); ++j)
        if (j > i - from) sum += float(x(i, j));
      y(i, 0) = T(sum);
    }
  });
  op.backward([]<class T>(Type<T>, const Call& call) {
    const auto dy = call.view<const T>("dy");
    const auto dx = call.view<T>("dx");
    const auto from = static_cast<std::int64_t>(call.number("window"));
    for (std::int64_t i = 0; i < dx.extent(0); ++i)
      for (std::int64_t j = 0; j < dx.extent(1); ++j) dx(i, j) = j > i - from ? dy(i, 0) : T(0.0f);
  });
}

void describe_scale(Op& op, bool last_block_alone) {
  op.summary("y = x weight, dweight by blocks of 16 rows where a row is whole vectors");
  op.input("x", "N D");
  op.input("weight", "D").weight();
  op.output("y");
  op.dim("N", 5, 64, 2);
  op.dim("D", 7, 129, 1025);
  op.formula([](Expr x, Expr weight) { return x * weight; });
  op.forward([]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), weight = call.view<const T>("weight");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < x.extent(0); ++i)
      for (std::int64_t j = 0; j < x.extent(1); ++j) y(i, j) = T(float(x(i, j)) * float(weight(j)));
  });
  op.backward([last_block_alone]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), weight = call.view<const T>("weight"), dy = call.view<const T>("dy");
    const auto dx = call.view<T>("dx"), dweight = call.view<T>("dweight");
    const std::int64_t rows = x.extent(0), columns = x.extent(1),
                       block = columns % 4 == 0 ? 16 : std::max<std::int64_t>(rows, 1);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) dx(i, j) = T(float(dy(i, j)) * float(weight(j)));
    for (std::int64_t j = 0; j < columns; ++j) {
      float sum = 0;
      for (std::int64_t first = 0; first < rows; first += block) {
        float part = 0;
        for (std::int64_t i = first; i < std::min(first + block, rows); ++i) part += float(dy(i, j)) * float(x(i, j));
        sum = last_block_alone ? part : sum + part;
      }
      dweight(j) = T(sum);
    }
  });
}

}  // namespace

AMPCHECK_OP(window_sum, op) { describe_window(op, 0); }
AMPCHECK_OP(window_sum_one_further, op) { describe_window(op, 1); }
AMPCHECK_OP(scale_by_blocks, op) { describe_scale(op, false); }
AMPCHECK_OP(scale_by_last_block, op) { describe_scale(op, true); }
