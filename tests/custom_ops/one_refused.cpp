// SPDX-License-Identifier: Apache-2.0
// Three ops, of which the formula of one does not parse: the others are checked all the same.
#include "unary.h"

AMPCHECK_OP(thrice, op) {
  op.formula("y = 3 * x");
  describe_unary(
      op, [](float x) { return 3 * x; }, [](float, float g) { return 3 * g; });
}
AMPCHECK_OP(does_not_parse, op) {
  op.formula("y = 3 * z");
  describe_unary(
      op, [](float x) { return 3 * x; }, [](float, float g) { return 3 * g; });
}
AMPCHECK_OP(thrice_wrong, op) {
  op.formula("y = 3 * x");
  describe_unary(
      op, [](float x) { return 3 * x; }, [](float, float g) { return 2 * g; });
}
