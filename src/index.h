// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "src/tensor.h"

namespace ampcheck {

/// The index of element `at`, row-major, of a tensor of this shape: one number an axis.
inline std::vector<std::int64_t> index_of(const Shape& shape, std::int64_t at) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(shape.rank));
  for (int axis = shape.rank; axis-- > 0;) {
    out[static_cast<std::size_t>(axis)] = at % shape[axis];
    at /= shape[axis];
  }
  return out;
}

/// The same in words: "[5,1024]".
inline std::string index_text(const Shape& shape, std::int64_t at) {
  return Shape(std::span<const std::int64_t>(index_of(shape, at))).str();
}

}  // namespace ampcheck
