// SPDX-License-Identifier: Apache-2.0
// How often diagnoses are right, on planted runs, and the same for what others do.
#pragma once

#include <string>
#include <vector>

#include "checks/diagnose/finding.h"
#include "checks/diagnose/planted.h"

namespace ampcheck::checks::diagnose {

/// What a simpler tool says of the same run.
struct BaselineAnswer {
  bool fires = false;
  std::string op;     ///< that it names
  int set_size = -1;  ///< ops that it would raise; -1: it does not say
};
enum class Baseline : std::uint8_t { nan_hooks, anomaly, ratio, prefix };
inline constexpr int kBaselines = 4;
const char* name(Baseline baseline);
const char* what(Baseline baseline);

struct Trial {
  const PlantedRun* run = nullptr;
  std::vector<Cause> named;  ///< in the report's order
  std::string op;
  int precursor = -1, step = -1;
  bool healthy = true, inconclusive = false, cured = false, advised = false;
  int set_size = -1;
  double seconds = 0;
  BaselineAnswer baselines[kBaselines] = {};
  std::string error;  ///< the diagnosis itself failed

  bool top(std::size_t n) const;
  bool op_right(const std::string& named_op) const;
  /// Of a control: a cause of precision was named.
  bool false_alarm() const;
};

Trial try_run(const PlantedRun& run, bool with_baselines);

struct Score {
  int planted = 0, top1 = 0, top3 = 0;
  int with_op = 0, op_exact = 0;
  int controls = 0, false_alarms = 0;
  int with_optimum = 0, set_near = 0;
  int advised = 0, cured = 0;
  double median_seconds = 0, mean_lead = 0;
  struct Other {
    int fires = 0, op_exact = 0, false_alarms = 0, set_near = 0;
  } others[kBaselines] = {};
};
Score score(const std::vector<Trial>& trials);

/// Goals: shares, and seconds of the median.
inline constexpr double kTop1 = 0.85, kTop3 = 0.97, kOpExact = 0.90, kCured = 0.95, kMedianSeconds = 60;
bool goals_met(const Score& score);

}  // namespace ampcheck::checks::diagnose
