// SPDX-License-Identifier: Apache-2.0
#include "reference/graph/strided.h"

namespace ampcheck::reference {

std::vector<std::int64_t> strided_offsets(const Shape& shape, const Shape& strides, std::int64_t begin) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(shape.count()), begin);
  if (out.empty() || shape.rank == 0) return out;
  Shape index = shape;
  for (int axis = 0; axis < shape.rank; ++axis) index[axis] = 0;
  const int last = shape.rank - 1;
  std::int64_t at = begin;
  for (std::size_t i = 0; i < out.size();) {
    for (std::int64_t k = 0; k < shape[last]; ++k) out[i++] = at + k * strides[last];
    for (int axis = last - 1; axis >= 0; --axis) {
      at += strides[axis];
      if (++index[axis] < shape[axis]) break;
      at -= shape[axis] * strides[axis];
      index[axis] = 0;
    }
  }
  return out;
}

}  // namespace ampcheck::reference
