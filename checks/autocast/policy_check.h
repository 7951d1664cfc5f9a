// SPDX-License-Identifier: Apache-2.0
// The checks A1 to A14 of an autocast: their names, and how each ended.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/audit_outcome.h"

namespace ampcheck::checks::autocast {

using Outcome = AuditOutcome;

struct PolicyCheck {
  const char* code;  ///< "A1"
  const char* name;
  const char* asks;
};
/// A1 to A14.
std::span<const PolicyCheck> policy_checks();

struct PolicyResult {
  const PolicyCheck* check = nullptr;
  Outcome outcome = Outcome::not_asked;
  std::string says;                 ///< what has to be, and what is
  std::vector<std::string> places;  ///< ops, or the shortest sequence of actions that shows it
};

/// Results of all checks, in the order of policy_checks().
class Results {
 public:
  Results();
  PolicyResult& at(std::string_view code) { return all_[place(code)]; }
  const PolicyResult& at(std::string_view code) const { return all_[place(code)]; }
  /// Keeps the worst outcome; of equal ones the first that was said, with all places.
  void add(std::string_view code, Outcome outcome, std::string says = "", std::vector<std::string> places = {});
  /// Adds every result of `other` that passed or failed: what a rule loses is no fault of who follows it.
  void add(const Results& other);
  const std::vector<PolicyResult>& all() const { return all_; }
  int count(Outcome outcome) const;
  /// The failure that explains the others; null without one.
  const PolicyResult* headline() const;

 private:
  static std::size_t place(std::string_view code);
  std::vector<PolicyResult> all_;
};

}  // namespace ampcheck::checks::autocast
