// SPDX-License-Identifier: Apache-2.0
#include "src/parallel.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace ampcheck {
namespace {

// Run under the tsan preset, these also show that the loop's hand-over is visible to the thread sanitizer.
TEST(ParallelFor, VisitsEachIndexOnceInEveryRound) {
  std::vector<std::int64_t> sums(1 << 20);
  for (int round = 0; round < 5; ++round)
    parallel_for(std::ssize(sums), 1000, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) sums[static_cast<std::size_t>(i)] += i;
    });
  for (std::int64_t i = 0; i < std::ssize(sums); ++i) ASSERT_EQ(sums[static_cast<std::size_t>(i)], 5 * i);
}

TEST(ParallelFor, Nests) {
  constexpr std::int64_t kRows = 16, kColumns = 4096;
  std::vector<std::int64_t> values(kRows * kColumns);
  parallel_for(kRows, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row)
      parallel_for(kColumns, 100, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) values[static_cast<std::size_t>(row * kColumns + i)] = row + i;
      });
  });
  for (std::int64_t row = 0; row < kRows; ++row)
    for (std::int64_t i = 0; i < kColumns; ++i)
      ASSERT_EQ(values[static_cast<std::size_t>(row * kColumns + i)], row + i);
}

TEST(ParallelFor, NothingToDoCallsNothing) {
  parallel_for(0, 1, [](std::int64_t, std::int64_t) { FAIL(); });
}

}  // namespace
}  // namespace ampcheck
