// SPDX-License-Identifier: Apache-2.0
// Contracts of the zoo's attention: one takes as long as all that the quick tests read.
#include <gtest/gtest.h>

#include <cstdlib>

#include "checks/run/contract.h"
#include "checks/zoo/zoo.h"

namespace ampcheck::checks {
namespace {

/// A bug gets no other contract than the declared one, and a right kernel gets that.
TEST(ContractSoak, OfAttention) {
  const int every = std::getenv("AMPCHECK_SOAK_SEEDS") != nullptr ? 20 : 5;
  int bugs = 0, right = 0;
  for (const zoo::Specimen& s : zoo::specimens()) {
    if (!s.name().starts_with("attention.")) continue;
    if (!s.correct() && (s.due == Verdict::precision_contract || s.also == Verdict::precision_contract)) continue;
    if ((s.correct() ? right : bugs)++ % every != 0) continue;
    const ContractReading r = read_contract(s.op, s.dtypes.front(), 1);
    const bool as_declared = r.best.accumulate == Dtype::fp32 && !r.best.flushes_subnormals && r.best.math.exp < 10;
    EXPECT_TRUE(s.correct() ? r.can_be_declared() && as_declared : !r.can_be_declared() || as_declared) << s.name();
  }
  EXPECT_GT(bugs, 0);
  EXPECT_GT(right, 0);
}

}  // namespace
}  // namespace ampcheck::checks
