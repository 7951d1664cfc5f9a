// SPDX-License-Identifier: Apache-2.0
// `ampcheck diagnose` of what is no net of ours: two stacks, dumps and logs of other tools, a training log.
#pragma once

#include <string>
#include <vector>

#include "tools/choose/other_data_options.h"

namespace ampcheck::tools {

/// Whether these words name such data: two of them (libraries, ops, dumps or recordings of two stacks), or one file or
/// folder that is no TOML file and no trace of ours.
bool is_other_data(const std::vector<std::string>& words);

/// Says what is wrong there, as text or JSON; returns the exit code. Throws UsageError for words that it cannot read.
int diagnose_other_data(const std::vector<std::string>& words, bool json, const OtherDataOptions& options);

}  // namespace ampcheck::tools
