// SPDX-License-Identifier: Apache-2.0
// Proves the ulp bounds of kernels/math.h over all 2^32 floats: minutes per function.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/kernel_math_sweep.h"

namespace ampcheck::kernels::test {
namespace {

SweepResult sweep_all(const MathFunction& f) {
  // Slices interleave: most of the time goes to the few binades where the function bends.
  constexpr std::uint64_t kSlice = std::uint64_t{1} << 22;
  constexpr std::uint64_t kSlices = 1024;
  const unsigned workers = std::max(1u, std::thread::hardware_concurrency());
  std::vector<SweepResult> parts(workers);
  std::vector<std::thread> threads;
  for (unsigned w = 0; w < workers; ++w)
    threads.emplace_back([&, w] {
      for (std::uint64_t slice = w; slice < kSlices; slice += workers) {
        const SweepResult r = check_range(f, slice * kSlice, (slice + 1) * kSlice);
        SweepResult& sum = parts[w];
        sum.compared += r.compared;
        sum.failures += r.failures;
        if (r.max_ulp > sum.max_ulp) {
          sum.max_ulp = r.max_ulp;
          sum.worst = r.worst;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  SweepResult all;
  for (const SweepResult& part : parts) {
    all.compared += part.compared;
    all.failures += part.failures;
    if (part.max_ulp > all.max_ulp) {
      all.max_ulp = part.max_ulp;
      all.worst = part.worst;
    }
  }
  return all;
}

class ExhaustiveMath : public testing::TestWithParam<MathFunction> {};

TEST_P(ExhaustiveMath, EveryFloatIsWithinTheBound) {
  const MathFunction& f = GetParam();
  const SweepResult result = sweep_all(f);
  std::printf("%-8s bound %d, measured %.4f ulp at %a\n", f.name, f.bound, result.max_ulp,
              static_cast<double>(result.worst));
  EXPECT_EQ(result.compared, std::uint64_t{1} << 32);
  EXPECT_EQ(result.failures, 0u) << f.name << ": " << result.max_ulp << " ulp at " << result.worst;
}

INSTANTIATE_TEST_SUITE_P(, ExhaustiveMath, testing::ValuesIn(math_functions()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ampcheck::kernels::test
