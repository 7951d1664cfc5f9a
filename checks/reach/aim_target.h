// SPDX-License-Identifier: Apache-2.0
// The first form of an op at one call, on the reference alone, with data that is changed until it shows something
// (checks/reach/aim.h).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checks/case/case_run.h"
#include "checks/data/aimed_range.h"
#include "checks/reach/sites.h"

namespace ampcheck::checks {

class Target {
 public:
  Target(const OpDef& op, const OpCall& call);

  const reference::Recording& recording() { return run_.reference.recording(); }
  SiteValues& values() { return values_; }
  /// Whether the inputs of the call itself are.
  bool finite() const { return run_.reference.inputs_finite(); }
  /// The floating inputs of the formula, the largest tensors first.
  std::vector<const TensorSpec*> inputs();
  const FloatFormat& format_of(const TensorSpec& spec) const { return format(call_.dtype(spec)); }

  /// Draws these inputs so, and the others as the call has them if it is of the regime "normal", else as that has them.
  void set(const std::vector<AimedInput>& aims);
  /// Of all outputs and gradients, at the present data.
  std::map<std::string, Interval> intervals();
  /// Whether some element of a node is known to more than its rounding.
  bool determined(int node);
  /// The largest share of a result's radius that is this primitive's own rounding.
  double rounding_share(reference::Primitive primitive);
  /// The middle one of a node's finite values; NaN where there is none.
  double typical(int node);
  /// The same site in this recording: nodes are counted anew in each.
  std::optional<Site> find(const Site& site);

 private:
  std::unique_ptr<reference::BallEvaluator> balls_of(const std::vector<reference::Expr>& targets,
                                                     reference::Switches switches = {});
  std::vector<reference::Expr> results();
  Dtype dtype_of_written(const std::string& name) const;

  const RunOptions options_;
  const OpCall call_;
  CaseRun run_;
  SiteValues values_;
  NamedValues inputs_;
  std::map<std::string, std::string> ranges_;  ///< of inputs that were changed
};

}  // namespace ampcheck::checks
