// SPDX-License-Identifier: Apache-2.0
#include "reference/ball/large_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace ampcheck::reference {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(LargePool, AFreedBufferServesWhatFillsMostOfIt) {
  LargePool pool;
  const LargePool::Buffer first = pool.get(8 * kMiB);
  pool.put(first);
  const LargePool::Buffer same = pool.get(6 * kMiB);
  EXPECT_EQ(same.data, first.data);
  EXPECT_EQ(same.bytes, 8 * kMiB);
  pool.put(same);
  const LargePool::Buffer half = pool.get(4 * kMiB);
  EXPECT_EQ(half.bytes, 4 * kMiB) << "a buffer twice as large would lie half empty";
  pool.put(half);
}

TEST(LargePool, HoldsNoMoreThanWasOnceInUse) {
  LargePool pool;
  std::vector<LargePool::Buffer> used;
  std::size_t in_use = 0, most = 0, kept = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const std::uint64_t random = i * 0x9e3779b97f4a7c15u >> 40;
    if (used.size() < 6 && random % 2 == 0) {
      used.push_back(pool.get((random % 97 + 1) * 64 * 64));
      std::memset(used.back().data, 1, used.back().bytes);
      in_use += used.back().bytes;
    } else if (!used.empty()) {
      const auto out = used.begin() + static_cast<std::ptrdiff_t>(random % used.size());
      in_use -= out->bytes;
      pool.put(*out);
      used.erase(out);
    }
    most = std::max(most, in_use);
    ASSERT_EQ(pool.most_used(), most);
    ASSERT_GE(pool.held(), in_use);
    ASSERT_LE(pool.held(), most);
    kept += pool.held() > in_use;
  }
  EXPECT_GT(kept, 0u) << "nothing waited for its next use";
  for (const LargePool::Buffer& buffer : used) pool.put(buffer);
}

}  // namespace
}  // namespace ampcheck::reference
