// SPDX-License-Identifier: Apache-2.0
// Runs the kernels of checks/zoo/cheats.h and counts: which are found and named, and which honest twins are convicted.
#pragma once

#include "checks/audit/audit.h"
#include "checks/zoo/cheats.h"

namespace ampcheck::checks::zoo {

/// One kernel in one storage type, over its quick cases.
struct CheatTrial {
  const Cheat* cheat = nullptr;
  Dtype dtype = Dtype::fp32;
  std::int64_t cases = 0, convicted = 0;
  Code code = Code::none;        ///< of the first conviction
  std::string cause, case_name;  ///< of that one
  std::int64_t named = 0;        ///< convictions with the code and the words that are due

  bool honest() const { return cheat->planted.code == Code::none; }
  bool found() const { return convicted > 0; }
  /// Most of what is said of it is right.
  bool right() const { return honest() ? convicted == 0 : found() && 2 * named > convicted; }
};

/// In the order of cheats() and of the storage types; patterns, dtypes, seeds, jobs and cancel of the options hold.
std::vector<CheatTrial> audit_cheats(const AuditOptions& options);

}  // namespace ampcheck::checks::zoo
