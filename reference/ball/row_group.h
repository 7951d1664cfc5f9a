// SPDX-License-Identifier: Apache-2.0
// Values of several nodes of a block row by row: what one writes the next one reads from the nearest cache.
#pragma once

#include <cstdint>
#include <span>

#include "reference/ball/ball_rules.h"

namespace ampcheck::reference {

/// One node of such a group, on the first row of the block.
struct RowStep {
  enum class Kind : std::uint8_t {
    values,    ///< elementwise
    products,  ///< the same, of which only the largest is looked for
    sum,       ///< of the row: `out` takes the value, `mass` that of the magnitudes
    column,    ///< the row is added to `out` and its magnitudes to `mass`, which are the same for all rows
    moved,     ///< nothing to do: the operand's numbers
  };
  Kind kind = Kind::moved;
  Primitive primitive = Primitive::input;
  std::size_t n = 0;  ///< numbers of a row: of the result, or of what is summed
  ValuesIn in[3] = {};
  std::int64_t advance[3] = {};  ///< of the operands from row to row
  double *out = nullptr, *mass = nullptr;
  Extremes seen{kInfinity, 0, true, false};
  double gap = kInfinity;  ///< of a comparison, as evaluate_values() has it
};

/// How operand `x` of an elementwise result lies beside its rows of `width` elements in a block of `count`; false where
/// it repeats within a row.
bool lies_by_rows(const Ball& x, bool has_rows, std::int64_t width, std::int64_t count, ValuesIn& in,
                  std::int64_t& advance);

/// Every row through all steps, in order.
void run_row_steps(std::span<RowStep> steps, std::int64_t count);

/// Radius and extremes of an elementwise result from what was seen of its values.
bool bound_elementwise(const RuleContext& context, const Node& node, std::span<const Ball* const> in, bool wants_sum,
                       bool sharp, double gap, Ball& out);
/// Whether the values of this node are looked at for the largest alone.
bool seen_as_products(const Node& node);

}  // namespace ampcheck::reference
