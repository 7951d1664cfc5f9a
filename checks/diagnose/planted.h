// SPDX-License-Identifier: Apache-2.0
// Training runs in which one cause was planted, clean controls, and healthy runs: what a diagnosis is scored on.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checks/diagnose/cause.h"
#include "checks/diagnose/subject.h"

namespace ampcheck::checks::diagnose {

struct PlantedRun {
  std::string name;
  Cause cause = Cause::none;  ///< none: healthy
  std::string what;
  std::vector<std::string> ops = {};  ///< any of these is the op; empty: the cause is in no op
  int optimum = -1;                   ///< ops in the smallest set whose raise cures it; -1: no raise does
  std::function<Subject()> make;
  bool unseen = false;  ///< the rules were not written with it
  bool control() const { return cause == Cause::none || info(cause).harmless; }
};

/// All, planted ones first. The same each time.
const std::vector<PlantedRun>& planted_runs();

// Parts of the list, each in a file of its own.
std::vector<PlantedRun> planted_ranges();
std::vector<PlantedRun> planted_scalers();
std::vector<PlantedRun> planted_optimizers();
std::vector<PlantedRun> planted_kernels();
std::vector<PlantedRun> planted_boundaries();
std::vector<PlantedRun> planted_twice();
std::vector<PlantedRun> planted_fp8();
std::vector<PlantedRun> planted_controls();
std::vector<PlantedRun> planted_unseen();

}  // namespace ampcheck::checks::diagnose
