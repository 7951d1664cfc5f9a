// SPDX-License-Identifier: Apache-2.0
// How often the verdict over a training run is right: kernels of the zoo as layers of nets, steps with planted defects,
// and healthy runs.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "checks/train/trainer.h"
#include "checks/zoo/zoo.h"

namespace ampcheck::checks::train_audit {

struct Options {
  bool quick = false;  ///< a sample of each part
  std::vector<std::string> patterns =
      {};  ///< of names of kernels or ops, with * and ?; empty: all, and the other parts
  int jobs = 0;
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(std::size_t done, std::size_t all, const std::string& last)> progress = nullptr;
};

/// Steps of every run; a fault counts as found if it is found in these.
inline constexpr int kSteps = 10;

enum class Part : std::uint8_t { kernel, variant, step, healthy };

struct Trial {
  Part part = Part::kernel;
  std::string name;  ///< of the kernel, of the defect, or of the run's settings
  std::string net;
  Dtype dtype = Dtype::fp16;
  /// Of a kernel: some number of this run is farther from the formula's than two last places, and than twice what any
  /// right kernel of the op has anywhere in that tensor.
  bool shows = true;
  bool found = false;        ///< something was found
  bool named = false;        ///< kernel: its op; step: the stage that it is in
  bool right_class = false;  ///< kernel: the verdict that is due
  int step = 0;              ///< of the finding, from 0
  std::string what;          ///< the finding
};

struct Score {
  int trials = 0, found = 0, named = 0, right_class = 0;
};

/// In the order of the parts, whatever the number of jobs.
std::vector<Trial> audit(const Options& options);
/// Kernels that do not show count in no score.
Score score(const std::vector<Trial>& trials, Part part);

inline constexpr double kKernelGoal = 0.95, kStepGoal = 1;

}  // namespace ampcheck::checks::train_audit
