// SPDX-License-Identifier: Apache-2.0
#include "src/digest.h"

#include <gtest/gtest.h>

#include <set>

namespace ampcheck {
namespace {

/// As published with MurmurHash3 (x64, 128 bits, seed 0). Baselines and shards rely on it for ever.
TEST(Digest, IsThePublishedOne) {
  EXPECT_EQ(digest_of("").str(), "00000000000000000000000000000000");
  EXPECT_EQ(digest_of("hello").str(), "cbd8a7b341bd9b025b1e906a48ae1d19");
  EXPECT_EQ(digest_of("The quick brown fox jumps over the lazy dog").str(), "e34bbc7bbc071b6c7a433ca9c49a9347");
}

TEST(Digest, OneBitAndOneByteMoreChangeIt) {
  std::set<std::string> seen;
  for (std::size_t length = 0; length < 40; ++length) {
    std::string text(length, '\0');
    EXPECT_TRUE(seen.insert(digest_of(text).str()).second) << length;
    for (std::size_t bit = 0; bit < 8 * length; ++bit) {
      std::string other = text;
      other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
      EXPECT_TRUE(seen.insert(digest_of(other).str()).second) << length << " " << bit;
    }
  }
}

}  // namespace
}  // namespace ampcheck
