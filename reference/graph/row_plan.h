// SPDX-License-Identifier: Apache-2.0
// Which nodes of a graph can be evaluated a few rows at a time: row i of the result needs row i of the operands, or
// operands that are the same for all rows. A row is what the first `lead` axes count.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/graph/expr.h"

namespace ampcheck::reference {

enum class Grain : std::uint8_t {
  whole,   ///< evaluated at once
  row,     ///< in blocks of rows
  column,  ///< a sum over rows, added up block by block
};

struct RowPlan {
  int lead = 0;  ///< leading axes of the row tensors that count rows; 0: nothing goes by rows
  std::int64_t rows = 0;
  std::int64_t step = 0;       ///< rows of a block
  std::vector<Grain> grain;    ///< by node
  std::vector<char> has_rows;  ///< by node: whether its elements fall into `rows` equal runs, one a row

  std::int64_t blocks() const { return step > 0 ? (rows + step - 1) / step : 0; }
  /// The shape of `count` rows of a tensor that has rows; leading axes become one.
  Shape part(const Shape& shape, std::int64_t count) const;
  /// An operand that is the same for all rows, as it stands beside such a part in a result of `rank` axes.
  Shape beside(const Shape& shape, int rank) const;

  Shape lead_extents;  ///< the first `lead` extents of the row tensors
};

/// The plan by which most nodes that `needed` marks go by rows, and its blocks stay in cache.
RowPlan plan_rows(const Graph& graph, const std::vector<char>& needed);

/// Whether a primitive hands its operand on as it is, under another shape or mark.
bool moves_nothing(Primitive primitive);

/// What a node costs, about: 0 moves nothing, 1 is arithmetic, more is a function, a sum or a product.
int node_cost(Primitive primitive);

}  // namespace ampcheck::reference
