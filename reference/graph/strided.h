// SPDX-License-Identifier: Apache-2.0
// Maps of views: what a transposition, a slice, a broadcast or a placement reads or writes.
#pragma once

#include <cstdint>
#include <vector>

#include "src/tensor.h"

namespace ampcheck::reference {

/// begin + the offset of each element of a view with these strides, in row-major order: TensorView::offset without its
/// divisions.
std::vector<std::int64_t> strided_offsets(const Shape& shape, const Shape& strides, std::int64_t begin = 0);

}  // namespace ampcheck::reference
