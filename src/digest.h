// SPDX-License-Identifier: Apache-2.0
// A digest of bytes that never changes: baselines and shards hold it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ampcheck {

/// MurmurHash3_x64_128 with seed 0. It tells accidents apart, not forgeries.
struct Digest {
  std::uint64_t low = 0, high = 0;
  bool operator==(const Digest&) const = default;
  /// 32 hexadecimal digits.
  std::string str() const;
};
Digest digest_of(std::string_view bytes);

}  // namespace ampcheck
