// SPDX-License-Identifier: Apache-2.0
// Where a constant factor may come from: a count that was divided by or not, its root, n/(n-1), another base of a
// logarithm, a power of two.
#pragma once

#include <string>

#include "checks/case/wrong_tensor.h"

namespace ampcheck::checks {

/// ", which is 1/sqrt(7), 7 being D": every such number that gives the tensor, wrong elements and right ones, to within
/// the formula's and the storage's roundings; empty if there is none, or too many to say which. `factor`: about the
/// ratio.
std::string factor_origin(double factor, const WrongTensor& wrong);

/// Whether nine of ten wrong elements are wrong by this factor, each to within its roundings and an eighth of its
/// error.
bool wrong_by_factor(double factor, const WrongTensor& wrong);

}  // namespace ampcheck::checks
