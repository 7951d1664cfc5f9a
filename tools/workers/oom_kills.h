// SPDX-License-Identifier: Apache-2.0
// Whether the system ended processes since memory was short: one of ours that was killed then is none of a kernel's
// doing.
#pragma once

#include <cstdint>
#include <string>

namespace ampcheck::tools {

/// How many processes the system has ended so, those of memory groups included: `oom_kill` of /proc/vmstat
/// (Linux 4.13). 0 where that is not said.
std::int64_t oom_kills(const std::string& vmstat = "/proc/vmstat");

}  // namespace ampcheck::tools
