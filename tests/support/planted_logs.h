// SPDX-License-Identifier: Apache-2.0
// Training logs with a known fate: runs are played by the scale rules of src/amp and written in each framework's words.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checks/scaler/answers.h"

namespace ampcheck::tests {

/// What happens in a run.
enum class Fate {
  steady,
  start_up,
  probes,
  bf16,
  nan_from_start,
  nan_later,
  gradient_nan,  ///< at any scale, with a finite loss
  ratchet,
  burst,
  scaled_norm,
  reset,
  ranks_differ,
  bf16_nan,
  runaway,
  infinite_scale,
  nan_at_times,
};
const char* name(Fate fate);

struct PlantedLog {
  std::string name, text;
  checks::scaler::Health due;
  std::string question, kind;  ///< of the headline; empty: any
  bool healthy = false;
};

/// Of every framework's grammar that can show it, each fate.
std::vector<PlantedLog> planted_logs();
/// A long one, for the time that reading takes.
std::string long_log(const std::string& format, int steps);

}  // namespace ampcheck::tests
