// SPDX-License-Identifier: Apache-2.0
// log(sigmoid(x)) as it has to be computed: the formula as it stands takes the logarithm of an underflowed zero below x = -745. One that forgets the
// minimum, and an op whose second form is other mathematics, which is judged by nothing.
#include <ampcheck/op.h>

#include <cmath>

namespace {

using namespace ampcheck::op;

template <class F, class G>
void describe(Op& op, const F& f, const G& slope) {
  op.input("x", "N");
  op.output("y");
  op.dim("N", 5, 64, 1025);
  op.forward([f]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x");
    const auto y = call.view<T>("y");
    for (std::int64_t i = 0; i < x.size(); ++i) y[i] = T(f(float(x[i])));
  });
  op.backward([slope]<class T>(Type<T>, const Call& call) {
    const auto x = call.view<const T>("x"), dy = call.view<const T>("dy");
    const auto dx = call.view<T>("dx");
    for (std::int64_t i = 0; i < x.size(); ++i) dx[i] = T(float(dy[i]) * slope(float(x[i])));
  });
}

void describe_log_sigmoid(Op& op, bool forgets) {
  op.formula([](Expr x) { return log(sigmoid(x)); });
  describe(op, [forgets](float x) { return (x > 0 || forgets ? 0.0f : x) - std::log1p(std::exp(-std::fabs(x))); },
           [](float x) { return x > 0 ? std::exp(-x) / (1 + std::exp(-x)) : 1 / (1 + std::exp(x)); });
}

}  // namespace

AMPCHECK_OP(log_sigmoid, op) { describe_log_sigmoid(op, false); }
AMPCHECK_OP(log_sigmoid_forgets_minimum, op) { describe_log_sigmoid(op, true); }
AMPCHECK_OP(square_of_another_form, op) {
  op.formula([](Expr x) { return x * x; });
  op.form("other mathematics", [](Expr x) { return with_adjoint(x * x, {x}, [=](Expr g) { return 3 * g * x; }); });
  describe(op, [](float x) { return x * x; }, [](float x) { return 2 * x; });
}
