// SPDX-License-Identifier: Apache-2.0
// TransformerEngine's debug log (nvdlfw-inspect): one statistic a line, with four decimals.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ampcheck::checks::stacks {

struct DebugStat {
  std::string layer, tensor, stat;  ///< "decoder.1.mlp.fc1", "activation", "cur_amax"
  std::int64_t iteration = 0, line = 0;
  double value = 0;
  bool four_decimals = false;

  std::string name() const { return layer + " " + tensor + " " + stat; }
};

struct DebugLog {
  std::string path;
  std::int64_t lines = 0;
  std::vector<DebugStat> stats;
  std::int64_t hidden = 0;  ///< sizes printed as 0.0000: anything below 5e-5
  std::string first_hidden;
};
/// Nothing if no line is one of such a log.
std::optional<DebugLog> read_debug_log(std::string_view text, const std::string& path);

/// One thing that the log shows, the gravest first.
struct DebugFinding {
  std::string kind;  ///< "not_finite", "saturates", "underflows", "grows", "hidden", "nothing"
  std::string what, next;
  std::int64_t iteration = -1, line = 0;
  bool wrong = false;  ///< exit code 1
};
std::vector<DebugFinding> judge_debug_log(const DebugLog& log);

/// Two logs of the same layers: the first statistic, by iteration and then by line, that differs by more than the
/// printing hides.
struct DebugDifference {
  std::int64_t compared = 0, differ = 0, hidden = 0;
  std::int64_t only_a = 0, only_b = 0;
  std::optional<DebugStat> first_a, first_b;
  std::map<std::string, std::int64_t> by_tensor;  ///< differing statistics by layer and tensor
};
DebugDifference compare_debug_logs(const DebugLog& a, const DebugLog& b);

}  // namespace ampcheck::checks::stacks
