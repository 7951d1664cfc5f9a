// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/shard_choice.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

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

}  // namespace

ShardChoice choose_shard(const std::string& text) {
  if (text == "auto") {
    for (const Pair& pair : kPairs)
      if (variable(pair.total) && (pair.only_in == nullptr || variable(pair.only_in))) return choice_of(pair);
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
  for (const Pair& pair : kRanks)
    if (variable(pair.total) && (pair.only_in == nullptr || variable(pair.only_in))) return choice_of(pair);
  return {1, 1, "no mpirun or srun started this"};
}

int ranks_of_this_machine(int ranks) {
  for (const char* const name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
    if (variable(name)) return static_cast<int>(number_of(name, 1, kMostShards));
  return ranks;
}

}  // namespace ampcheck::tools
