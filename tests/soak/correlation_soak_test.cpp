// SPDX-License-Identifier: Apache-2.0
// No false alarm of the test for shared errors of rows, at many seeds that no rule was made on. AMPCHECK_SOAK_SEEDS
// sets how many (200).
#include <atomic>

#include "src/parallel.h"
#include "tests/support/correlation_cases.h"
#include "tests/support/soak.h"

namespace ampcheck::checks {
namespace {

TEST(CorrelationSoak, NoneOfRightKernels) {
  const std::vector<const OpDef*> ops = right_ops();
  std::atomic<int> tested{0};
  const auto runs = static_cast<std::int64_t>(ops.size() * soak_seeds());
  parallel_for(runs, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      tested += expect_no_correlation(*ops[static_cast<std::size_t>(i) % ops.size()],
                                      5000 + static_cast<std::uint64_t>(i) / ops.size());
  });
  std::printf("%lld runs, %d tensors tested\n", static_cast<long long>(runs), tested.load());
  EXPECT_GT(tested, runs / 2);
}

}  // namespace
}  // namespace ampcheck::checks
