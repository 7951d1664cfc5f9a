// SPDX-License-Identifier: Apache-2.0
// Parts of balls: cut out of a whole without a copy, gathered from rows or elements that stand alone, put together
// again.
#pragma once

#include <span>
#include <vector>

#include "reference/ball/ball.h"

namespace ampcheck::reference {

/// Elements first, first + 1, ... of a ball as a ball of its own, sharing memory.
Ball part_of(const Ball& ball, const Shape& shape, std::int64_t first);
/// Copies a part into the whole, whose channels are made with the first one.
void put(const Ball& part, const Shape& shape, std::int64_t first, Ball& whole);
/// These rows of `width` elements of a ball, side by side in `shape`.
Ball rows_of(const Ball& ball, const Shape& shape, std::int64_t width, std::span<const std::int64_t> rows);

/// Elements of some rows, as many of each: of a row with fewer the last one again.
struct PickedElements {
  std::int64_t rows = 0, most = 0;
  std::vector<std::int64_t> at;  ///< places in their rows, `most` a row
};
PickedElements elements_of_rows(const RowElements& all, std::span<const std::int64_t> rows);
/// Those of a ball of picked.rows rows of `width` elements, or of one row for all of them.
Ball elements_of(const Ball& ball, std::int64_t width, const PickedElements& picked);

}  // namespace ampcheck::reference
