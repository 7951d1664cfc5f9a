// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/shard_choice.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "src/error.h"
#include "tools/report/numbers.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

namespace {

constexpr int kMostShards = 10'000;

/// Two variables that say a part. `first`: the index of the first one.
struct Pair {
  const char *index, *total;
  int first = 0;
  const char* status = nullptr;   ///< names a file to touch: a runner learns from it that parts are understood
  const char* only_in = nullptr;  ///< counts where this is set too
};
constexpr Pair kPairs[] = {
    {"GTEST_SHARD_INDEX", "GTEST_TOTAL_SHARDS", 0, "GTEST_SHARD_STATUS_FILE"},
    {"TEST_SHARD_INDEX", "TEST_TOTAL_SHARDS", 0, "TEST_SHARD_STATUS_FILE"},
    {"CI_NODE_INDEX", "CI_NODE_TOTAL", 1},
    {"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT"},
    {"SLURM_PROCID", "SLURM_NTASKS", 0, nullptr, "SLURM_STEP_ID"},  // a batch script has the others too, and runs once
};

constexpr Pair kRanks[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"SLURM_PROCID", "SLURM_NTASKS", 0, nullptr, "SLURM_STEP_ID"},
};

/// The text of a variable; nothing where it is not set or empty.
std::optional<std::string> variable(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return text;
}

std::int64_t number_of(const char* name, std::int64_t low, std::int64_t high) {
  const std::string text = variable(name).value_or("");
  const std::optional<std::int64_t> value = parse_whole(text);
  if (!value || *value < low || *value > high)
    throw UsageError(fmt::format("[environment] {} is '{}', want a whole number from {} to {}", name, text, low, high));
  return *value;
}

void touch(const char* name) {
  const std::optional<std::string> path = variable(name);
  if (!path) return;
  const int file = open(path->c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0)
    throw WriteError(fmt::format("[environment] cannot touch '{}' of {}: {}", *path, name, std::strerror(errno)));
  close(file);
}

ShardChoice choice_of(const Pair& pair) {
  if (!variable(pair.index))
    throw UsageError(fmt::format("[environment] {} is set and {} is not, want both", pair.total, pair.index));
  const std::int64_t total = number_of(pair.total, 1, kMostShards);
  const bool is_array = std::strcmp(pair.index, "SLURM_ARRAY_TASK_ID") == 0;
  std::int64_t index = 0;
  if (is_array) {
    constexpr std::int64_t kMost = 1'000'000'000;
    const std::int64_t least = variable("SLURM_ARRAY_TASK_MIN") ? number_of("SLURM_ARRAY_TASK_MIN", 0, kMost) : 0,
                       step = variable("SLURM_ARRAY_TASK_STEP") ? number_of("SLURM_ARRAY_TASK_STEP", 1, kMost) : 1,
                       id = number_of(pair.index, least, least + (total - 1) * step);
    if ((id - least) % step != 0)
      throw UsageError(
          fmt::format("[environment] SLURM_ARRAY_TASK_ID is {}, want {} and every {} on", id, least, step));
    index = (id - least) / step;
  } else {
    index = number_of(pair.index, pair.first, pair.first + total - 1) - pair.first;
  }
  if (pair.status != nullptr) touch(pair.status);
  return {static_cast<int>(index) + 1, static_cast<int>(total),
          fmt::format("{}={}, {}={}", pair.index, *variable(pair.index), pair.total, *variable(pair.total))};
}

/// The first of the pairs that is set.
const Pair* set_pair(std::span<const Pair> pairs) {
  for (const Pair& pair : pairs)
    if (variable(pair.total) && (pair.only_in == nullptr || variable(pair.only_in))) return &pair;
  return nullptr;
}

/// One count of "2(x3)": the count, and of how many nodes it is.
std::optional<std::pair<std::int64_t, std::int64_t>> count_of_nodes(std::string_view text) {
  const std::size_t bracket = text.find('(');
  const auto count = parse_whole(text.substr(0, bracket));
  std::optional<std::int64_t> nodes = 1;
  if (bracket != text.npos) {
    const std::string_view rest = text.substr(bracket);
    if (!rest.starts_with("(x") || !rest.ends_with(")")) return std::nullopt;
    nodes = parse_whole(rest.substr(2, rest.size() - 3));
  }
  if (!count || !nodes || *count < 1 || *nodes < 1) return std::nullopt;
  return std::pair(*count, *nodes);
}

/// The count of this node among "2(x3),1", in the order of the job's nodes; where Slurm does not say which node this
/// is, the largest.
std::int64_t count_of_this_node(const char* name) {
  const std::string text = variable(name).value_or("");
  const std::int64_t node = variable("SLURM_NODEID") ? number_of("SLURM_NODEID", 0, 1'000'000'000) : -1;
  std::int64_t first = 0, most = 0, here = 0;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const auto count = count_of_nodes(std::string_view(text).substr(at, end - at));
    if (!count)
      throw UsageError(
          fmt::format("[environment] {} is '{}', want the tasks of each node, such as 2(x3),1", name, text));
    if (node >= first && node - first < count->second) here = count->first;
    first += count->second;
    most = std::max(most, count->first);
    at = end + 1;
  }
  return here > 0 ? here : most;
}

/// The step's own tasks come before those of its job.
std::optional<std::int64_t> slurm_tasks_of_this_node() {
  for (const char* const name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"})
    if (variable(name)) return count_of_this_node(name);
  if (variable("SLURM_NTASKS_PER_NODE")) return number_of("SLURM_NTASKS_PER_NODE", 1, 1'000'000'000);
  return std::nullopt;
}

}  // namespace

ShardChoice choose_shard(const std::string& text) {
  if (text == "auto") {
    if (const Pair* const pair = set_pair(kPairs)) return choice_of(*pair);
    return {1, 1, "no variable says another"};
  }
  const std::size_t slash = text.find('/');
  const auto shard = parse_whole(text.substr(0, slash));
  const auto shards = slash == std::string::npos ? std::nullopt : parse_whole(text.substr(slash + 1));
  if (!shard || !shards || *shards < 1 || *shards > kMostShards || *shard < 1 || *shard > *shards)
    throw UsageError("[--shard] got '" + text + "', want a part and their number, as 1/4 to 4/4, or auto");
  return {static_cast<int>(*shard), static_cast<int>(*shards), ""};
}

ShardChoice rank_of_job() {
  if (const Pair* const pair = set_pair(kRanks)) return choice_of(*pair);
  return {1, 1, "no mpirun or srun started this"};
}

int ranks_of_this_machine(int ranks) {
  const Pair* const pair = set_pair(kRanks);
  if (pair == nullptr) return ranks;
  std::int64_t here = ranks;
  if (std::strcmp(pair->index, "SLURM_PROCID") == 0) {
    here = slurm_tasks_of_this_node().value_or(ranks);
  } else {
    for (const char* const name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}) {
      if (!variable(name)) continue;
      here = number_of(name, 1, kMostShards);
      break;
    }
  }
  return static_cast<int>(std::min<std::int64_t>(here, ranks));
}

}  // namespace ampcheck::tools
