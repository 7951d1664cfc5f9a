// SPDX-License-Identifier: Apache-2.0
// Rank 0 of a job reports, and the others see that it does: where it is killed, and what started the ranks goes on
// without it (mpirun --enable-recovery), a job without a report would end with their exit code 0.
#pragma once

#include <chrono>
#include <string>

namespace ampcheck::tools {

/// Of rank 0: a file of the folder that is locked while this lives, and says in the end that rank 0 came there.
class ReportClaim {
 public:
  explicit ReportClaim(const std::string& folder);
  ~ReportClaim();
  ReportClaim(const ReportClaim&) = delete;
  ReportClaim& operator=(const ReportClaim&) = delete;

 private:
  int file_ = -1;
};

/// How long a file that nobody has locked may say that rank 0 has begun, until it counts as killed: of an earlier job,
/// this job's rank 0 writes it anew as it starts.
inline constexpr std::chrono::seconds kRankZeroStarts(10);

/// Of another rank that has nothing left to do: waits for rank 0. False: it was killed before its report was written.
bool rank_zero_came_to_its_end(const std::string& folder);

}  // namespace ampcheck::tools
