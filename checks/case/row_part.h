// SPDX-License-Identifier: Apache-2.0
// Why a large tensor is wrong shows on some of its rows, where the contract says that a row follows from its own row
// alone: replays and changed formulas then cost what those rows cost.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "checks/case/wrong_tensor.h"
#include "checks/define/rows.h"

namespace ampcheck::checks {

/// Neighbouring rows of a case as a case of their own.
struct RowCase {
  std::optional<OpDef> own;  ///< the op with rows that its contract does not name; else it is that of the case
  std::map<std::string, int> axes = {};  ///< of `own`: inputs with rows, and along which axis
  OpCall call;                           ///< that of the case, with fewer rows
  std::unique_ptr<CaseRun> run;          ///< at their inputs; holds on to `own` and `call`

  RowCase() = default;
  RowCase(const RowCase&) = delete;
  RowCase& operator=(const RowCase&) = delete;
  /// By the rows of `own` and of a call of it. False where rows do not lie in front, or the op takes no case of so few.
  bool take(CaseRun& whole, const OpCall& all, const RowRange& rows);
  bool take(CaseRun& whole, const RowRange& rows) { return take(whole, whole.call, rows); }
};

/// Rows of a wrong tensor, with their cotangents; nothing is launched there.
struct RowPart : RowCase {
  Written tensor;
  std::vector<double> got;
  Interval interval;
  Comparison comparison;  ///< `outside` alone

  WrongTensor wrong(Pass pass) const { return {*run, tensor, pass, got, interval, comparison}; }
};

/// Some hundred elements in rows that are wrong as the whole is: the first ones, or those with the most wrong elements.
/// Null where the tensor's rows are not independent by contract, follow from how many there are, or are too few for
/// that to be worth it. Nothing is promised of a formula beside a file of tensors: its rows are independent where the
/// formula gives some of them, alone, the values that they have among all.
std::unique_ptr<RowPart> some_rows(const WrongTensor& wrong);

/// As many rows of it, with the fewest wrong elements: what explains the wrong ones has to hold there too.
std::unique_ptr<RowPart> right_rows(const WrongTensor& wrong);

}  // namespace ampcheck::checks
