// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/commands/diagnose_other.h"

#include "tools/commands/diagnose_log.h"
#include "tools/commands/diagnose_stacks.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

bool is_other_data(const std::vector<std::string>& words) {
  if (words.size() == 2) return true;
  return words.size() == 1 && !words.front().ends_with(".toml") && !words.front().ends_with(".trace");
}

int diagnose_other_data(const std::vector<std::string>& words, bool json, const OtherDataOptions& options) {
  if (words.size() == 1) return static_cast<int>(diagnose_one(words.front(), json, options));
  if (words.size() != 2) throw UsageError("[diagnose] got nothing to look at, want one file or two stacks");
  if (is_stack(words[0]) && is_stack(words[1]))
    return static_cast<int>(diagnose_stacks(words[0], words[1], json, options));
  return static_cast<int>(diagnose_recordings(words[0], words[1], json));
}

}  // namespace ampcheck::tools
