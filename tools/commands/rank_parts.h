// SPDX-License-Identifier: Apache-2.0
// Ranks of one job share the parts of a run through a folder. Each takes a part that nobody has, again and again; rank
// 0 reports. No call of MPI is made, so that a rank that dies takes nobody along.
#pragma once

#include <functional>
#include <string>

#include "tools/report/exit_code.h"

namespace ampcheck::tools {

struct RankWork {
  std::string folder;      ///< that all ranks see: --run-file
  std::string what_there;  ///< a command that reports what there is; empty: none
  /// Does part 1, 2, ... of `parts`; `jobs`: cores for this rank. Another code than passed, findings and nothing_ran
  /// ends the rank.
  std::function<ExitCode(int part, int parts, int jobs)> part;
  /// Of rank 0, behind the last part; `jobs`: cores of all ranks of this machine, which have nothing left to do.
  std::function<ExitCode(int parts, int jobs)> report;
};

/// This rank's share. The first rank says in the folder how many parts there are: 16, or 4 for each rank of a larger
/// job; any number of ranks may go on later. UsageError without a folder. `jobs`: cores as asked for; 0: those of the
/// machine, shared.
ExitCode share_parts(const RankWork& work, int jobs);

/// "FOLDER/part03.run"
std::string part_file(const std::string& folder, int part, const char* kind = "run");

}  // namespace ampcheck::tools
