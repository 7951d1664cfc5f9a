// SPDX-License-Identifier: Apache-2.0
// No false alarm: the quick set of an op, at many seeds. AMPCHECK_SOAK_SEEDS sets how many (200).
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "checks/data/regimes.h"
#include "checks/run/runner.h"
#include "src/parallel.h"

namespace ampcheck::checks {

inline constexpr std::uint64_t kSoakSeeds = 200;  ///< unless AMPCHECK_SOAK_SEEDS says otherwise

inline std::uint64_t soak_seeds() {
  const char* text = std::getenv("AMPCHECK_SOAK_SEEDS");
  return text == nullptr ? kSoakSeeds : std::strtoull(text, nullptr, 10);
}

inline void expect_no_finding(const OpDef& op, Dtype storage) {
  ASSERT_GT(soak_seeds(), 0u) << "AMPCHECK_SOAK_SEEDS must be a positive number";
  std::mutex mutex;
  std::atomic<std::int64_t> cases{0}, tensors{0}, elements{0}, alarms{0};
  // Seeds beyond those of the other tests, so that nothing here was seen while the rules were made.
  parallel_for(static_cast<std::int64_t>(soak_seeds()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t seed = begin; seed < end; ++seed)
      for (const OpCall& call :
           cases_of(op.signature, storage, CaseSet::quick, 1000 + static_cast<std::uint64_t>(seed))) {
        const CaseResult result = run_case(op, call, {});
        ++cases;
        for (const CheckResult& check : result.checks)
          if (check.name().starts_with("forward ") || check.name().starts_with("backward ")) {
            ++tensors;
            elements += check.compared;
          }
        if (!convicts(result.verdict)) continue;
        const std::lock_guard lock(mutex);
        if (++alarms <= 10) ADD_FAILURE() << name(result.verdict) << " " << result.code << " " << result.name;
      }
  });
  EXPECT_EQ(alarms, 0);
  EXPECT_GT(elements, 0);
  std::printf("%s %s: %lld cases, %lld tensors, %lld elements, %lld alarms\n", op.signature.name.c_str(), name(storage),
              static_cast<long long>(cases), static_cast<long long>(tensors), static_cast<long long>(elements),
              static_cast<long long>(alarms));
}

}  // namespace ampcheck::checks
