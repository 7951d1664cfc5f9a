// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/commands/rank_report.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>

#include "src/error.h"

namespace ampcheck::tools {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kBegun = "begun\n", kEnded = "begun\nended\n";
/// Between two looks of a rank at rank 0: a twentieth of what it has waited, within these, so that many ranks do not
/// keep a file server busy.
constexpr std::chrono::milliseconds kShortestPause(5), kLongestPause(1000);

std::string path_in(const std::string& folder) { return folder + "/report"; }

bool write_text(int file, std::string_view text) {
  return ftruncate(file, 0) == 0 && pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

enum class RankZero { at_work, begun, ended, unknown };

RankZero look_at(const std::string& folder) {
  const int file = open(path_in(folder).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return RankZero::unknown;
  char buffer[64];
  const bool locked = flock(file, LOCK_SH | LOCK_NB) != 0;
  const ssize_t got = locked ? 0 : pread(file, buffer, sizeof buffer, 0);
  close(file);
  if (locked) return RankZero::at_work;
  const std::string_view text(buffer, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return text == kEnded ? RankZero::ended : text == kBegun ? RankZero::begun : RankZero::unknown;
}

}  // namespace

ReportClaim::ReportClaim(const std::string& folder)
    : file_(open(path_in(folder).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666)) {
  // Ranks that look hold it for a moment. Another job's rank 0 in this folder holds it for long: that one reports too.
  for (int attempt = 0; file_ >= 0 && flock(file_, LOCK_EX | LOCK_NB) != 0; ++attempt) {
    if (attempt < 100) {
      std::this_thread::sleep_for(kShortestPause);
      continue;
    }
    close(file_);
    file_ = -1;
    return;
  }
  if (file_ < 0 || !write_text(file_, kBegun)) {
    const int error = errno;
    if (file_ >= 0) close(file_);
    throw WriteError(fmt::format("[--engine] cannot write '{}': {}", path_in(folder), std::strerror(error)));
  }
}

ReportClaim::~ReportClaim() {
  if (file_ < 0) return;
  write_text(file_, kEnded);  // where that fails, a further rank says that the report may be missing: so it may
  close(file_);
}

bool rank_zero_came_to_its_end(const std::string& folder) {
  const auto start = Clock::now();
  for (auto unlocked = start;;) {
    const RankZero now = look_at(folder);
    if (now == RankZero::unknown || now == RankZero::ended) return true;
    if (now == RankZero::at_work) unlocked = Clock::now();
    if (Clock::now() - unlocked > kRankZeroStarts) return false;
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
    std::this_thread::sleep_for(std::clamp(waited / 20, kShortestPause, kLongestPause));
  }
}

}  // namespace ampcheck::tools
