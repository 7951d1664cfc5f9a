// SPDX-License-Identifier: Apache-2.0
// A wrong kernel, called again at other data: what an explanation of its numbers was not derived from. Nothing is
// judged here and nobody convicted.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "checks/case/row_part.h"
#include "checks/case/wrong_tensor.h"

namespace ampcheck::checks {

/// One tensor as a further call writes it.
struct FreshTensor {
  RunOptions options;
  OpCall call;
  std::unique_ptr<CaseRun> run;
  Written tensor;
  std::vector<double> got;
  Interval interval;
  Comparison comparison;
  std::unique_ptr<RowPart> part;  ///< rows that stand for it, where it has any

  WrongTensor whole(Pass pass) { return {*run, tensor, pass, got, interval, comparison}; }
  WrongTensor rows(Pass pass) { return part ? part->wrong(pass) : whole(pass); }
};

class FreshCases {
 public:
  /// `first`: of the seeds; two that differ share no data.
  explicit FreshCases(CaseRun& of, std::uint64_t first = 1) : of_(of), first_(first) {}

  /// The tensor at the same extents and other data, for `which` from 0 on; null where the kernel is right there, or
  /// cannot be called: of a dump, at data that someone gave, where a call costs much.
  FreshTensor* again(const std::string& tensor, Pass pass, int which);
  /// The same at other extents.
  FreshTensor* elsewhere(const std::string& tensor, Pass pass, int which);
  static constexpr int kAgain = 2;      ///< that a claim is held against
  static constexpr int kElsewhere = 4;  ///< of these two that are wrong

 private:
  bool may_call(const std::string& tensor) const;
  std::unique_ptr<FreshTensor> made(const OpCall& call, const std::string& tensor, Pass pass) const;
  const std::vector<OpCall>& other_extents();

  CaseRun& of_;
  std::uint64_t first_;
  bool listed_ = false;
  std::vector<OpCall> elsewhere_;
  std::map<std::tuple<std::string, Pass, int, int>, std::unique_ptr<FreshTensor>> made_;  ///< by probe and number
};

/// Those of a case, or of the case that its rows belong to.
FreshCases& fresh_cases_of(CaseRun& run);

}  // namespace ampcheck::checks
