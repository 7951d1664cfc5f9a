// SPDX-License-Identifier: Apache-2.0
// The three parts of the audit of training runs, as pieces of work.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checks/audit/train_audit.h"

namespace ampcheck::checks::train_audit {

struct Work {
  std::string name;
  std::function<std::vector<Trial>()> run;
};

/// Kernels of the zoo in the place of the built-in ones, in every net that has their op.
std::vector<Work> kernel_works(const Options& options);
/// Defects of a step: of gradients, casts, sums, scale, clipping and update.
std::vector<Work> step_works(bool quick);
/// Runs without a defect.
std::vector<Work> healthy_works(bool quick);

/// What `train` would find in these steps, "" if nothing: as its exit code says. The first finding in words.
std::string verdict_of(train::Trainer& trainer, int steps);

}  // namespace ampcheck::checks::train_audit
