// SPDX-License-Identifier: Apache-2.0
// The mean of x * weight over the places of each row's maximum, as a fused kernel does it: the products are in
// registers both times, or their maximum went through memory on the way and was rounded to the storage type there.
#include <ampcheck/op.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace {

using namespace ampcheck::op;

/// A row: its products, which of them are its maximum, and how many.
template <class T>
struct Row {
  std::vector<float> p;
  float most = -INFINITY, count = 0;
  template <class X, class W>
  Row(const X& x, const W& w, std::int64_t row, bool through_memory) {
    for (std::int64_t j = 0; j < x.extent(1); ++j) p.push_back(float(x(row, j)) * float(w(j)));
    for (const float v : p) most = std::max(most, v);
    if (through_memory) most = float(T(most));
    for (const float v : p) count += v == most ? 1.0f : 0.0f;
  }
  float share(std::int64_t j, float v) const { return (p[static_cast<std::size_t>(j)] == most ? v : 0.0f) / count; }
};

void describe(Op& op, bool through_memory) {
  op.input("x", "N D");
  op.input("weight", "D").weight();
  op.output("y");
  op.dim("N", 5, 64, 3);
  op.dim("D", 7, 129, 1024).least(1);
  op.formula("p = x * weight; y = where(p == max(p, -1), p, 0) / sum(where(p == max(p, -1), 1, 0), -1)");
  op.forward([=]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), w = call.view<const T>("weight");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < x.extent(0); ++i) {
      const Row<T> row(x, w, i, through_memory);
      for (std::int64_t j = 0; j < x.extent(1); ++j) y(i, j) = T(row.share(j, row.p[static_cast<std::size_t>(j)]));
    }
  });
  op.backward([=]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), w = call.view<const T>("weight"), dy = call.view<const T>("dy");
    const auto dx = call.view<T>("dx"), dw = call.view<T>("dweight");
    std::vector<float> sums(static_cast<std::size_t>(x.extent(1)), 0.0f);
    for (std::int64_t i = 0; i < x.extent(0); ++i) {
      const Row<T> row(x, w, i, through_memory);
      for (std::int64_t j = 0; j < x.extent(1); ++j) {
        const float g = row.share(j, dy(i, j));
        dx(i, j) = T(g * float(w(j)));
        sums[static_cast<std::size_t>(j)] += g * float(x(i, j));
      }
    }
    for (std::int64_t j = 0; j < x.extent(1); ++j) dw(j) = T(sums[static_cast<std::size_t>(j)]);
  });
}

}  // namespace

AMPCHECK_OP(share_in_registers, op) { describe(op, false); }
AMPCHECK_OP(share_through_memory, op) { describe(op, true); }
