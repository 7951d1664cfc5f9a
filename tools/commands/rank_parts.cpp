// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/commands/rank_parts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "src/error.h"
#include "src/parallel.h"
#include "tools/choose/shard_choice.h"
#include "tools/commands/rank_report.h"
#include "tools/report/foreign_file.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"
#include "tools/report/plain_text.h"
#include "tools/report/shell_word.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

namespace {

namespace fs = std::filesystem;

constexpr int kMostAttempts = 2;  ///< that ranks may die of one part
constexpr int kLeastParts = 16, kPartsOfARank = 4, kMostParts = 40'000;
/// Parts in a row that a rank finds taken before it ends. Else a job's looks would be the square of its ranks. Rank 0
/// looks at all: what a rank that ended leaves is done by it, at the latest.
constexpr int kMostInVain = 64;

/// Between two looks of rank 0 at parts that others work on: four times what a look takes, within these.
constexpr std::chrono::milliseconds kShortestPause(2), kLongestPause(100);

/// How many parts the folder's run has: what it says, or from now on what this job asks for. Of ranks that ask at the
/// same time the first one's answer holds.
int parts_of(const std::string& folder, int ranks) {
  const std::string path = folder + "/parts", own = fmt::format("{}.{}", path, getpid());
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::ifstream in(path);
    std::string text;
    if (std::getline(in, text)) {
      const auto known = parse_whole(text);
      if (!known || *known < 1 || *known > kMostParts)
        throw ForeignFileError("['" + path + "'] got '" + one_line(text) + "', want a number of parts from 1 to " +
                               std::to_string(kMostParts) + " (--engine mpi)");
      return static_cast<int>(*known);
    }
    std::ofstream(own) << std::max(kLeastParts, kPartsOfARank * ranks) << '\n';
    std::error_code taken;  // a link is there at once with all that it holds
    fs::create_hard_link(own, path, taken);
    fs::remove(own);
  }
  throw WriteError("[--engine] cannot write '" + path + "'");
}

/// Where a rank runs.
struct Cores {
  std::string host;
  int jobs = 1;
  std::set<int> of_machine;  ///< numbers of those that it may run on

  /// "on HOST with 2 of cores 0,1".
  std::string str() const {
    std::string list;
    for (const int core : of_machine) list += (list.empty() ? "" : ",") + std::to_string(core);
    return fmt::format("on {} with {} of cores {}", host, jobs, list);
  }
};

Cores cores_of_this(int jobs) {
  Cores out;
  out.jobs = jobs;
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) == 0) out.host = name;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return out;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) out.of_machine.insert(core);
  return out;
}

/// The claim on one part: a file that is locked while a rank works on it, and says how often one began and if it is
/// done. A lock goes with its process.
class Claim {
 public:
  Claim(const std::string& folder, int part) : path_(fmt::format("{}/part{:02}.claim", folder, part)) {
    file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file_ < 0) fail();
    busy_ = flock(file_, LOCK_EX | LOCK_NB) != 0;
    if (busy_ && errno != EWOULDBLOCK) fail();
    char buffer[4096];
    const ssize_t got = busy_ ? 0 : pread(file_, buffer, sizeof buffer, 0);
    text_.assign(buffer, static_cast<std::size_t>(got > 0 ? got : 0));
  }
  ~Claim() { close(file_); }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  bool busy() const { return busy_; }  ///< another rank works on it
  bool done() const { return text_.find("done") != text_.npos; }
  std::size_t attempts() const {
    std::size_t out = 0;
    for (std::size_t at = 0; (at = text_.find("begun", at)) != text_.npos; ++at) ++out;
    return out;
  }
  bool given_up() const { return !busy_ && !done() && attempts() >= kMostAttempts; }
  void begin(int rank, const Cores& cores) { append(fmt::format("begun by rank {} {}\n", rank, cores.str())); }
  const std::string& text() const { return text_; }
  void end() { append("done\n"); }
  void forget() {
    if (ftruncate(file_, 0) != 0) fail();
    text_.clear();
  }

 private:
  void append(const std::string& line) {
    text_ += line;
    if (pwrite(file_, text_.data(), text_.size(), 0) != static_cast<ssize_t>(text_.size())) fail();
  }
  [[noreturn]] void fail() const {
    throw WriteError(fmt::format("[--engine] cannot write '{}': {}", path_, std::strerror(errno)));
  }

  std::string path_, text_;
  int file_ = -1;
  bool busy_ = false;
};

/// Ranks that ended in a job before this one say nothing of it.
void forget_earlier_jobs(const std::string& folder, int parts) {
  for (int part = 1; part <= parts; ++part)
    if (Claim claim(folder, part); !claim.busy() && !claim.done()) claim.forget();
}

/// What a look at all parts found.
struct Round {
  int taken = 0, busy = 0, given_up = 0;
  ExitCode code = ExitCode::passed;  ///< not passed: this rank is to end
};

/// `done`: parts that were found so, which are not looked at again.
Round take_parts(const RankWork& work, const ShardChoice& rank, int parts, const Cores& cores,
                 std::vector<char>& done) {
  Round out;
  for (int i = 0, in_vain = 0; i < parts && (rank.shard == 1 || in_vain < kMostInVain); ++i) {
    const int part = (i + (rank.shard - 1) * parts / rank.shards) % parts + 1;  // ranks begin apart
    if (done[static_cast<std::size_t>(part - 1)] != 0) continue;
    Claim claim(work.folder, part);
    done[static_cast<std::size_t>(part - 1)] = static_cast<char>(claim.done());
    ++in_vain;
    out.busy += claim.busy();
    out.given_up += claim.given_up();
    if (claim.busy() || claim.done() || claim.given_up()) continue;
    if (claim.attempts() > 0)
      write_stderr(fmt::format("ampcheck: part {} of {} goes on in rank {}: the rank that had it ended\n", part, parts,
                               rank.shard - 1));
    in_vain = 0;
    claim.begin(rank.shard - 1, cores);
    out.code = work.part(part, parts, cores.jobs);
    if (out.code != ExitCode::passed && out.code != ExitCode::findings && out.code != ExitCode::nothing_ran) return out;
    out.code = ExitCode::passed;
    claim.end();
    ++out.taken;
  }
  return out;
}

/// Rank 0 goes on alone: this process may now run wherever a rank of its machine did, whose claims say where. How many
/// cores that are.
int take_cores_of_all(const std::string& folder, int parts, const Cores& own) {
  std::map<std::string, int> jobs_of;  // by rank
  std::set<int> cores = own.of_machine;
  for (int part = 1; part <= parts; ++part) {
    std::istringstream lines(Claim(folder, part).text());
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string word, rank, host, list;
      int jobs = 0;
      if (!(words >> word >> word >> word >> rank >> word >> host >> word >> jobs >> word >> word >> list)) continue;
      if (host != own.host || jobs < 1) continue;
      jobs_of[rank] = jobs;
      std::istringstream numbers(list);
      for (std::string number; std::getline(numbers, number, ',');)
        if (const auto core = parse_whole(number); core && *core >= 0 && *core < CPU_SETSIZE)
          cores.insert(static_cast<int>(*core));
    }
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(static_cast<std::size_t>(core), &set);
  std::error_code error;
  for (const fs::directory_entry& thread : fs::directory_iterator("/proc/self/task", error))
    if (const auto id = parse_whole(thread.path().filename().string()))
      sched_setaffinity(static_cast<pid_t>(*id), sizeof set, &set);  // where that is not allowed, it stays where it is
  int jobs = 0;
  for (const auto& [rank, count] : jobs_of) jobs += count;
  return std::clamp(jobs, own.jobs, std::max(own.jobs, static_cast<int>(cores.size())));
}

}  // namespace

std::string part_file(const std::string& folder, int part, const char* kind) {
  return fmt::format("{}/part{:02}.{}", folder, part, kind);
}

ExitCode share_parts(const RankWork& work, int jobs) {
  if (work.folder.empty())
    throw UsageError(
        "[--engine] got mpi without --run-file FOLDER, want a folder that all ranks see: parts and results are kept "
        "there");
  const ShardChoice rank = rank_of_job();
  std::error_code error;
  fs::create_directories(work.folder, error);
  std::error_code none;
  if (error && !fs::exists(work.folder, none))
    throw WriteError(fmt::format("[--engine] cannot make the folder '{}': {}", work.folder, error.message()));
  if (!fs::is_directory(work.folder, none))
    throw UsageError("[--engine] got --run-file '" + work.folder +
                     "', which is no folder, want one that all ranks see");
  if (jobs == 0) jobs = std::max(1, threads() / ranks_of_this_machine(rank.shards));
  const Cores cores = cores_of_this(jobs);
  const bool reports = rank.shard == 1;
  const int parts = parts_of(work.folder, rank.shards);
  std::optional<ReportClaim> claim;
  if (reports) {
    claim.emplace(work.folder);
    write_stderr(fmt::format("ampcheck: {} rank{} ({}); if the job is ended, the same command goes on\n", rank.shards,
                             rank.shards == 1 ? "" : "s", rank.origin));
    forget_earlier_jobs(work.folder, parts);
  }
  Round round;
  std::vector<char> done(static_cast<std::size_t>(parts));
  do {
    const auto look = std::chrono::steady_clock::now();
    round = take_parts(work, rank, parts, cores, done);
    if (round.code != ExitCode::passed) break;
    if (round.taken > 0 || round.busy == 0 || !reports) continue;
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - look);
    std::this_thread::sleep_for(std::clamp(4 * took, kShortestPause, kLongestPause));
  } while (round.taken > 0 || (reports && round.busy > 0));
  const auto say_how_to_go_on = [&] {
    write_stderr(fmt::format("ampcheck: not all parts are done; the same command, with --run-file {}, goes on{}\n",
                             shell_word(work.folder),
                             work.what_there.empty() ? "" : ", and " + work.what_there + " reports what there is"));
  };
  if (!reports) {
    if (round.code != ExitCode::passed) return round.code == ExitCode::incomplete ? ExitCode::passed : round.code;
    if (rank_zero_came_to_its_end(work.folder)) return ExitCode::passed;
    write_stderr(
        fmt::format("ampcheck: rank 0, which reports, ended before it did; the same command, with --run-file "
                    "{}, goes on\n",
                    shell_word(work.folder)));
    return ExitCode::incomplete;
  }
  if (round.code != ExitCode::passed && round.code != ExitCode::incomplete) return round.code;
  if (round.code == ExitCode::incomplete) {  // a signal: what starts the ranks may kill them any time now
    say_how_to_go_on();
    return round.code;
  }
  const ExitCode code = work.report(parts, take_cores_of_all(work.folder, parts, cores));
  if (round.given_up > 0) say_how_to_go_on();
  return round.given_up > 0 ? worse(code, ExitCode::incomplete) : code;
}

}  // namespace ampcheck::tools
