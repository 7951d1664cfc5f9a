// SPDX-License-Identifier: Apache-2.0
// No false alarm: the quick set of every op, at many seeds. AMPCHECK_SOAK_SEEDS sets how many (200).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>

#include "checks/runner.h"
#include "src/parallel.h"

namespace ampcheck::checks {
namespace {

std::uint64_t seeds() {
  const char* text = std::getenv("AMPCHECK_SOAK_SEEDS");
  return text == nullptr ? 200 : std::strtoull(text, nullptr, 10);
}

struct SoakCase {
  std::string op;
  Dtype dtype;
};

std::vector<SoakCase> soak_cases() {
  std::vector<SoakCase> out;
  for (const OpDef& op : all_ops())
    for (const Dtype dtype : op.signature.precision.storage) out.push_back({op.signature.name, dtype});
  return out;
}

class Soak : public ::testing::TestWithParam<SoakCase> {};
INSTANTIATE_TEST_SUITE_P(Ops, Soak, ::testing::ValuesIn(soak_cases()),
                         [](const auto& info) { return info.param.op + "_" + name(info.param.dtype); });

TEST_P(Soak, NoFinding) {
  const OpDef& op = *find_op(GetParam().op);
  ASSERT_GT(seeds(), 0u) << "AMPCHECK_SOAK_SEEDS must be a positive number";
  std::mutex mutex;
  std::atomic<std::int64_t> cases{0}, tensors{0}, elements{0}, alarms{0};
  // Seeds beyond those of the other tests, so that nothing here was seen while the rules were made.
  parallel_for(static_cast<std::int64_t>(seeds()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t seed = begin; seed < end; ++seed)
      for (const OpCall& call : cases_of(op.signature, GetParam().dtype, CaseSet::quick, 1000 + static_cast<std::uint64_t>(seed))) {
        const CaseResult result = run_case(op, call, {});
        ++cases;
        for (const CheckResult& check : result.checks)
          if (check.name.starts_with("forward ") || check.name.starts_with("backward ")) ++tensors, elements += check.compared;
        if (!convicts(result.verdict)) continue;
        const std::lock_guard lock(mutex);
        if (++alarms <= 10) ADD_FAILURE() << name(result.verdict) << " " << result.code << " " << result.name;
      }
  });
  EXPECT_EQ(alarms, 0);
  EXPECT_GT(elements, 0);
  std::printf("%s %s: %lld cases, %lld tensors, %lld elements, %lld alarms\n", GetParam().op.c_str(), name(GetParam().dtype),
              static_cast<long long>(cases), static_cast<long long>(tensors), static_cast<long long>(elements), static_cast<long long>(alarms));
}

}  // namespace
}  // namespace ampcheck::checks
