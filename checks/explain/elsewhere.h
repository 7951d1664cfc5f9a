// SPDX-License-Identifier: Apache-2.0
// What an explanation of the wrong elements says of the right ones: who adds up in few digits, or takes a fast
// function, does so in every row, and it shows wherever rows are of the same size.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "checks/case/row_part.h"
#include "checks/case/wrong_tensor.h"

namespace ampcheck::checks {

/// Right rows of a wrong tensor, as a case of their own, or those with the fewest wrong elements; made when first asked
/// for.
class RightRows {
 public:
  explicit RightRows(const WrongTensor& whole) : whole_(whole) {}
  /// Null where the tensor has no rows that stand for others.
  const WrongTensor* get();

 private:
  const WrongTensor& whole_;
  bool asked_ = false;
  std::unique_ptr<RowPart> part_;
  std::optional<WrongTensor> rows_;
};

/// Whether the elements inside are too near to their values for these replays: such a kernel would be off there as
/// well. False where too few of them tell.
bool refuted_by_passing(const WrongTensor& wrong, std::span<const std::vector<double>> replays);

/// Whether the wrong elements stand in a few rows, though others have inputs as large and bounds as wide: so that
/// chance did not choose these rows, and a departure of the whole kernel did not either.
bool confined_to_rows(const WrongTensor& wrong);

}  // namespace ampcheck::checks
