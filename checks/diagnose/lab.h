// SPDX-License-Identifier: Apache-2.0
// Experiments on a subject: runs with one thing changed, from the newest checkpoint before what is asked about. Each is
// run once, however often it is asked for.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checks/diagnose/observation.h"

namespace ampcheck::checks::diagnose {

/// What came of an experiment.
struct Course {
  int from = 0;  ///< its first step
  std::vector<train::StepResult> steps;
  std::map<std::string, double> excess;  ///< if asked for: by op the largest Sample::excess
  std::string refused;                   ///< why it could not be run; empty: it was
  double seconds = 0;

  const train::StepResult* at(int step) const;
  /// The first step whose loss is not finite; none: -1.
  int first_lost() const;
};

/// For the report: what was changed, and what came of it.
struct Tried {
  std::string experiment;  ///< "E1"
  std::string what, result;
};

class Lab {
 public:
  Lab(const Subject& subject, const Observation& seen) : subject_(subject), seen_(seen) {}

  /// Steps `from` to `to`, from the newest checkpoint that is no later than `from`; from 0 where there is none or the
  /// run has a state that checkpoints do not hold. `locally`: with local shadows.
  const Course& run(const Change& change, int from, int to, bool locally = false);
  /// From the start, whatever checkpoints there are.
  const Course& whole(const Change& change, bool locally = false) {
    return run(change, -1, static_cast<int>(seen_.steps.size()) - 1, locally);
  }
  void hides_state() { hidden_state_ = true; }
  bool state_is_hidden() const { return hidden_state_; }

  void note(std::string experiment, std::string what, std::string result);
  const std::vector<Tried>& tried() const { return tried_; }
  int runs() const { return runs_; }
  const Subject& subject() const { return subject_; }
  const Observation& seen() const { return seen_; }

 private:
  const Subject& subject_;
  const Observation& seen_;
  bool hidden_state_ = false;
  int runs_ = 0;
  std::map<std::string, Course> known_;
  std::vector<Tried> tried_;
};

}  // namespace ampcheck::checks::diagnose
