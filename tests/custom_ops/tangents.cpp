// SPDX-License-Identifier: Apache-2.0
// y = x a, a product of matrices, with a forward mode: y.tangent = x.tangent a + x a.tangent; and versions that the
// backward contradicts: with the transpose of a where that is square, and with the other sign. The formula convicts
// them element by element.
#include <ampcheck/op.h>

namespace {

using namespace ampcheck::op;

enum class Twist { none, transposed, negated };

void describe(Op& op, Twist twist) {
  op.summary("y = x a");
  op.input("x", "N D");
  op.input("a", "D E");
  op.output("y");
  op.dim("N", 5, 17, 3);
  op.dim("D", 7, 16, 33);
  op.dim("E", 7, 16, 33);
  op.formula([](Expr x, Expr a) { return matmul(x, a); });
  op.forward([]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), a = call.view<const T>("a");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < x.extent(0); ++i)
      for (std::int64_t j = 0; j < a.extent(1); ++j) {
        float s = 0;
        for (std::int64_t k = 0; k < x.extent(1); ++k) s += float(x(i, k)) * float(a(k, j));
        y(i, j) = T(s);
      }
  });
  op.backward([]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), a = call.view<const T>("a"), dy = call.view<const T>("dy");
    const auto dx = call.view<T>("dx"), da = call.view<T>("da");
    for (std::int64_t k = 0; k < x.extent(1); ++k) {
      for (std::int64_t i = 0; i < x.extent(0); ++i) {
        float s = 0;
        for (std::int64_t j = 0; j < a.extent(1); ++j) s += float(dy(i, j)) * float(a(k, j));
        dx(i, k) = T(s);
      }
      for (std::int64_t j = 0; j < a.extent(1); ++j) {
        float s = 0;
        for (std::int64_t i = 0; i < x.extent(0); ++i) s += float(dy(i, j)) * float(x(i, k));
        da(k, j) = T(s);
      }
    }
  });
  op.jvp([twist]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), a = call.view<const T>("a"), u = call.view<const T>("x.tangent"),
               b = call.view<const T>("a.tangent");
    const auto v = call.view<T>("y.tangent");
    const bool turned = twist == Twist::transposed && a.extent(0) == a.extent(1);
    for (std::int64_t i = 0; i < x.extent(0); ++i)
      for (std::int64_t j = 0; j < a.extent(1); ++j) {
        float s = 0;
        for (std::int64_t k = 0; k < x.extent(1); ++k)
          s += float(u(i, k)) * float(turned ? a(j, k) : a(k, j)) + float(x(i, k)) * float(b(k, j));
        v(i, j) = T(twist == Twist::negated ? -s : s);
      }
  });
}

}  // namespace

AMPCHECK_OP(product, op) { describe(op, Twist::none); }
AMPCHECK_OP(product_tangent_transposed, op) { describe(op, Twist::transposed); }
AMPCHECK_OP(product_tangent_negated, op) { describe(op, Twist::negated); }
