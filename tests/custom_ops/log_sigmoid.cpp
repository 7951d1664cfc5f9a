// SPDX-License-Identifier: Apache-2.0
// log(sigmoid(x)) as it has to be computed: the formula as it stands takes the logarithm of an underflowed zero below x
// = -745. One that forgets the minimum, and an op whose second form is other mathematics, which is judged by nothing.
#include <cmath>

#include "unary.h"

namespace {

using namespace ampcheck::op;

void describe_log_sigmoid(Op& op, bool forgets) {
  op.formula([](Expr x) { return log(sigmoid(x)); });
  describe_unary(
      op, [forgets](float x) { return (x > 0 || forgets ? 0.0f : x) - std::log1p(std::exp(-std::fabs(x))); },
      [](float x, float g) { return g * (x > 0 ? std::exp(-x) / (1 + std::exp(-x)) : 1 / (1 + std::exp(x))); });
}

}  // namespace

AMPCHECK_OP(log_sigmoid, op) { describe_log_sigmoid(op, false); }
AMPCHECK_OP(log_sigmoid_forgets_minimum, op) { describe_log_sigmoid(op, true); }
AMPCHECK_OP(square_of_another_form, op) {
  op.formula([](Expr x) { return x * x; });
  op.form("other mathematics", [](Expr x) { return with_adjoint(x * x, {x}, [=](Expr g) { return 3 * g * x; }); });
  describe_unary(
      op, [](float x) { return x * x; }, [](float x, float g) { return 2 * x * g; });
}
