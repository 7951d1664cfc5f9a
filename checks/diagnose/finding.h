// SPDX-License-Identifier: Apache-2.0
// What a diagnosis says.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checks/diagnose/cause.h"
#include "checks/diagnose/lab.h"

namespace ampcheck::checks::diagnose {

/// How much speaks for a cause: the largest is named first.
enum class Weight : std::uint8_t {
  possible,   ///< it fits what was seen
  supported,  ///< and an experiment says so too
  decided,    ///< and what else could be was excluded
};
const char* name(Weight weight);

struct Finding {
  Cause cause = Cause::none;
  Weight weight = Weight::possible;
  std::string op = {}, tensor = {};  ///< "linear_1", "linear_1 (layer0) forward y"
  int precursor = -1;                ///< first step that showed it; -1: not known
  int step = -1;                     ///< first step that went wrong
  std::vector<std::string> speaks_for = {}, speaks_against = {};
  std::string paste = {};                ///< the line to change
  Change cure = {};                      ///< what that line does, where an experiment can do it
  std::optional<Change> otherwise = {};  ///< another one that the line names, where that is not enough
  bool can_be_tried = false;
  std::string not_tried = {};  ///< why no experiment can; empty: as the program would have to be changed
  int sets_tried = 0;          ///< cure.raised is the smallest set already, by so many trials; 0: it was not looked for
};

/// What is to be raised to fp32, tried.
struct SmallestSet {
  bool known = false;
  Ops ops = {};
  int runs = 0;                            ///< sets that were tried
  std::int64_t more_bytes = 0;             ///< of the tensors that are wide then, in a step
  double step_before = 0, step_after = 0;  ///< seconds
};

/// What was wrong with the run itself, before any cause.
struct Symptoms {
  int lost = -1;    ///< first step whose loss is not finite
  int left = -1;    ///< first step at which the loss left the fp64 run's
  int storm = -1;   ///< first of kStorm steps that were skipped in a row
  int bad_op = -1;  ///< first step at which an op's error was more than rounding makes
  bool any() const { return lost >= 0 || left >= 0 || storm >= 0 || bad_op >= 0; }
  int first() const;
};

struct Report {
  Symptoms symptoms;
  std::vector<Finding> findings;  ///< most supported first; empty: nothing is wrong, or nothing is known
  std::vector<Finding> notes;     ///< harmless causes that were seen
  SmallestSet smallest;
  std::string cure_tried;  ///< what came of the first finding's cure, or why it was not tried; empty: there is none
  bool tried_cure = false, cured = false;
  bool inconclusive = false;  ///< something is wrong, and no finding is supported
  std::vector<Tried> tried;
  int runs = 0;
  double seconds = 0;

  bool healthy() const { return findings.empty() && !inconclusive; }
};

}  // namespace ampcheck::checks::diagnose
