// SPDX-License-Identifier: Apache-2.0
#include "tools/workers/oom_kills.h"

#include <charconv>
#include <fstream>

namespace ampcheck::tools {

std::int64_t oom_kills(const std::string& vmstat) {
  const std::string key = "oom_kill ";
  std::ifstream file(vmstat);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    std::int64_t out = 0;
    std::from_chars(line.data() + key.size(), line.data() + line.size(), out);
    return out;
  }
  return 0;
}

}  // namespace ampcheck::tools
