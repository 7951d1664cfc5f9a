// SPDX-License-Identifier: Apache-2.0
// What `ampcheck train` says of a run, as text and as JSON. Text counts steps from 1, JSON and traces from 0.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checks/train/diagnosis.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

/// What to try, given what went wrong: nothing that was given, or would be refused.
struct Advice {
  std::string text;    ///< empty: nothing is known
  std::string tried;   ///< how it went when it was tried, or why it was not; empty: it cannot be
  std::string failed;  ///< without a text: the first thing that was tried and did not help, and how it went
};

/// What is run, above its steps.
std::string train_heading(const checks::train::Trainer& trainer);
/// A line of one step; `steps`: of the whole run.
std::string train_step_line(const checks::train::StepResult& step, int steps,
                            const std::optional<checks::train::Place>& worst);
/// What came of it. `saved_cases`: files of the wrong calls, in their order, if they were saved.
std::string train_summary(const checks::train::Trainer& trainer, const checks::train::Diagnosis& diagnosis,
                          const std::vector<checks::train::StepResult>& steps, const Advice& advice,
                          const std::vector<std::string>& saved_cases, const Style& style);
/// ampcheck.train/1
std::string train_json(const checks::train::Trainer& trainer, const checks::train::Diagnosis& diagnosis,
                       const std::vector<checks::train::StepResult>& steps, const Advice& advice, double seconds);

/// Runs the training again, with what it advises.
Advice train_advice(const checks::train::Trainer& trainer, const checks::train::Diagnosis& diagnosis,
                    const std::vector<checks::train::StepResult>& steps);

/// A share in per cent.
std::string share_of(std::int64_t part, std::int64_t all);

}  // namespace ampcheck::tools
