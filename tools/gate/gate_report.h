// SPDX-License-Identifier: Apache-2.0
// What gate and review say.
#pragma once

#include <string>
#include <vector>

#include "tools/gate/ladder.h"
#include "tools/report/json.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

/// A table with a line for each op, and below what is to be said of those that changed. `verbose`: of all.
std::string gate_text(const std::vector<OpGate>& gates, const Style& style);
/// A line for each op that was timed beside another library; empty: none was.
std::string speeds_text(const std::vector<OpGate>& gates, const Style& style);
/// ampcheck.gate/1, but for what the caller adds.
Json gate_json(const std::vector<OpGate>& gates);

/// An op's accepted state beside its pending one.
struct Review {
  std::string op;
  bool accepted = false;  ///< there is an accepted state
  Baseline was, now;
};

/// Tensors whose errors became larger, as "y is worse: ...", or smaller, as "y was worse: ...", beyond chance.
struct ErrorsBeyondChance {
  std::vector<std::string> worse;
  std::vector<std::string> better;  ///< none where others became worse
};
ErrorsBeyondChance errors_beyond_chance(const Review& review);
/// What --tighten proposes of an op; empty: nothing.
std::string tighten_text(const Review& review, const std::string& folder, const Style& style);

/// Cases that are in one state alone, and tensors whose numbers or bits differ: "rms 0.31 -> 0.52 ulp".
std::string review_text(const Review& review, const Style& style);
/// `folder`: of the baselines, for the line that accepts what became better.
std::string review_markdown(const std::vector<Review>& reviews, const std::string& folder);
Json review_json(const std::vector<Review>& reviews);

}  // namespace ampcheck::tools
