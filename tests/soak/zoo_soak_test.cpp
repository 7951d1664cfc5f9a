// SPDX-License-Identifier: Apache-2.0
// Every correct kernel of the zoo, in every storage type, at a twentieth of AMPCHECK_SOAK_SEEDS (200) seeds, 23,000
// cases each: no conviction.
#include <gtest/gtest.h>

#include <algorithm>

#include "checks/audit/audit.h"
#include "checks/data/regimes.h"
#include "tests/support/soak.h"

namespace ampcheck::checks {
void PrintTo(const OpDef& op, std::ostream* out) { *out << op.signature.name; }
}  // namespace ampcheck::checks

namespace ampcheck::checks::zoo {
namespace {

class CorrectKernels : public ::testing::TestWithParam<OpDef> {};
INSTANTIATE_TEST_SUITE_P(Zoo, CorrectKernels, ::testing::ValuesIn(all_ops()),
                         [](const auto& info) { return info.param.signature.name; });

std::uint64_t zoo_seeds(std::uint64_t seeds) { return std::max<std::uint64_t>(1, seeds / 20); }

/// What a run of this label without AMPCHECK_SOAK_SEEDS adds up to.
TEST(Zoo, CorrectKernelsAreRunInSixtyThousandCasesAndMore) {
  std::int64_t one = 0;
  for (const Specimen& specimen : specimens())
    for (const Dtype dtype : specimen.dtypes)
      if (specimen.correct()) one += std::ssize(cases_of(specimen.op.signature, dtype, CaseSet::standard, 1000));
  const auto of = [&](std::uint64_t seeds) {
    return static_cast<long long>(one) * static_cast<long long>(zoo_seeds(seeds));
  };
  EXPECT_GE(of(kSoakSeeds), 60000);
  std::printf("correct kernels of the zoo: %lld cases at %llu seeds, %lld in this run\n", of(kSoakSeeds),
              static_cast<unsigned long long>(zoo_seeds(kSoakSeeds)), of(soak_seeds()));
}

TEST_P(CorrectKernels, AreNotConvicted) {
  AuditOptions options;
  options.seeds = zoo_seeds(soak_seeds());
  options.first_seed = 1000;
  options.gates = false;
  for (const Specimen& specimen : specimens())
    if (specimen.correct() && specimen.name().starts_with(GetParam().signature.name + "."))
      options.patterns.push_back(specimen.name());
  ASSERT_FALSE(options.patterns.empty());
  Clean clean;
  for (const Trial& trial : audit(options)) {
    clean.add(trial);
    EXPECT_EQ(trial.convicted, 0) << trial.code << " " << trial.case_name;
  }
  EXPECT_GT(clean.cases, 0);
  std::printf("%s: %lld cases, %lld alarms\n", GetParam().signature.name.c_str(), static_cast<long long>(clean.cases),
              static_cast<long long>(clean.alarms));
}

}  // namespace
}  // namespace ampcheck::checks::zoo
