// SPDX-License-Identifier: Apache-2.0
// The sum of a row, in eight lanes: one library for each change that a gate is to tell apart (GATED, by
// tests/CMakeLists.txt).
#include <ampcheck/op.h>

#include <vector>

namespace {

using namespace ampcheck::op;

enum Change {
  none,          ///< as it was accepted
  reassociated,  ///< the same lanes from the other end
  dropped_tail,  ///< what follows the last full vector of 8 is left out
  bf16_sum,      ///< partial sums in bf16
  one_chain,     ///< one chain in place of eight lanes: right, with larger errors
  slow,          ///< the same sums, computed forty times
  bad_variant,   ///< as it was accepted, and a variant that drops the tail
};

constexpr int kLanes = 8;

/// A partial sum as the change keeps it.
template <Change change>
float kept(float sum) {
  return change == bf16_sum ? static_cast<float>(BFloat16(sum)) : sum;
}

template <Change change, class T>
float row_sum(const View<const T>& x, std::int64_t row) {
  const std::int64_t columns = x.extent(1), used = change == dropped_tail ? columns / kLanes * kLanes : columns;
  if constexpr (change == slow) {
    volatile float again = 0;
    for (int i = 0; i < 40; ++i) again = row_sum<none, T>(x, row);
    return again;
  }
  float lanes[kLanes] = {};
  for (std::int64_t j = 0; j < used; ++j) {
    const std::int64_t at = change == reassociated ? used - 1 - j : j;
    float& lane = lanes[change == one_chain ? 0 : j % kLanes];
    lane = kept<change>(lane + static_cast<float>(x(row, at)));
  }
  float sum = 0;
  for (const float lane : lanes) sum = kept<change>(sum + lane);
  return sum;
}

template <Change change>
constexpr auto kSums = []<class T>(Type<T>, const Call& c) {
  const auto x = c.view<const T>("x");
  const auto y = c.view<T>("y");
  for (std::int64_t i = 0; i < x.extent(0); ++i) y[i] = T(row_sum<change, T>(x, i));
};

}  // namespace

AMPCHECK_OP(gated_sum, op) {
  op.summary("sum of each row");
  op.input("x", "N D");
  op.output("y");
  op.dim("N", 5, 64, 33);
  op.dim("D", 7, 129, 1024).least(1);
  op.formula([](Expr x) { return sum(x, -1); });
  op.forward(kSums<GATED>);
  op.variant("lanes").forward(kSums<none>);
  op.variant("reversed").forward(kSums<reassociated>);
  op.variant("other").forward(kSums < GATED == bad_variant ? dropped_tail : one_chain >);
  op.backward([]<class T>(Type<T>, const Call& c) {
    const auto dy = c.view<const T>("dy");
    const auto dx = c.view<T>("dx");
    for (std::int64_t i = 0; i < dx.extent(0); ++i)
      for (std::int64_t j = 0; j < dx.extent(1); ++j) dx(i, j) = dy[i];
  });
}
