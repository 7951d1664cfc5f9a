// SPDX-License-Identifier: Apache-2.0
// The experiments behind the checks of a training step (loop_checks.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checks/scaler/loop_checks.h"

namespace ampcheck::checks::scaler {

/// A part of the state that is not as it should be, and how.
struct Difference {
  std::string part, text;
};
/// The first part that differs; none if both are the same.
std::optional<Difference> difference(const State& due, const State& got);
/// As the reply says; where it does not: whether nothing moved.
bool skipped(const RankReply& before, const RankReply& after);

/// The check that asks whether this part of the state stands still in a skipped step: "L5" of weights.
const char* code_of_skip(std::string_view part);

class LoopAuditor {
 public:
  LoopAuditor(Loop& loop, const ScaleRule& rule);
  CallAudit audit();

 private:
  /// A loop's life: what was asked of it, and its replies.
  struct Run {
    LoopSetup setup;
    std::vector<LoopCall> calls;
    std::vector<LoopReply> replies;

    const RankReply& at(std::size_t i, std::size_t rank = 0) const { return replies.at(i).ranks.at(rank); }
  };

  /// Throws Refused where the loop refuses a call, Error where a reply cannot be judged.
  Run play(const LoopSetup& setup, std::vector<LoopCall> calls);
  void require_judgeable(const Run& run) const;
  LoopSetup usual() const { return {.scale = scale_}; }
  LoopCall bad(int batch, int micro_batch = 0, int rank = 0) const;
  /// "..X.": batches 0, 1, 2, 3, with a gradient that is not finite in the third.
  std::vector<LoopCall> pattern(std::string_view steps) const;

  CheckResult& result(std::string_view code);
  void pass(std::string_view code);
  bool passed(std::string_view code) { return result(code).outcome == Outcome::passed; }
  /// The first failure of a check stays. `last`: the call that shows it.
  void fail(std::string_view code, const Run& run, std::size_t last, std::string says,
            Outcome outcome = Outcome::failed);

  void repeats();
  bool finds_scale();
  void counts_updates(const Run& run);
  void detects();
  void detects(double value, bool last);
  void keeps();
  void keeps(std::string_view steps);
  void leaves_nothing();
  void compare_without(const LoopSetup& setup, const std::vector<LoopCall>& skipped, const LoopCall& clean,
                       const std::string& code);
  void moves_scale();
  void invariant();
  std::vector<Run> at_scales(const LoopSetup& setup, int steps);
  void grows_unseen();
  void clips();
  bool clips_alike(const LoopSetup& setup);
  bool clips_no_infinity(double clip);
  void keeps_one_scale();
  void spoils_window();
  void resumes();
  void compare_resumed(const Run& whole, const Run& resumed, std::size_t at);
  void ranks_agree();

  Loop& loop_;
  const ScaleRule& rule_;
  CallAudit out_;
  double scale_ = 65536;             ///< at which clean steps are not skipped
  std::optional<double> seen_ = {};  ///< a value that the loop finds in its gradients
};

}  // namespace ampcheck::checks::scaler
