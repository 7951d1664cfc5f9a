// SPDX-License-Identifier: Apache-2.0
// Where in a tensor the wrong elements stand.
#pragma once

#include <string>

#include "checks/case/interval.h"

namespace ampcheck::checks {

/// The last column, the tail of a vector width, one row, every k-th one, the diagonal, a triangle, a tile; empty if
/// nothing tells them from the right ones.
std::string place(const Comparison& comparison, const Shape& shape);

/// Whether they are every k-th row or column, of so many that no sum of few digits goes wrong just there.
bool on_regular_lines(const Comparison& comparison, const Shape& shape);

/// log2 of n over k, the bits by which chance does not pick these elements.
double bits_of_choice(std::size_t n, std::size_t k);

}  // namespace ampcheck::checks
