// SPDX-License-Identifier: Apache-2.0
// Causes that the error of a whole tensor shows: its rows and columns exchanged, one outer product too many or too few,
// zero where another number has one sign.
#pragma once

#include <string>

#include "checks/case/wrong_tensor.h"

namespace ampcheck::checks {

/// Words if the numbers are right at the places of their transpose, of the last two axes.
std::string transposed(const WrongTensor& wrong);

/// Words if the error of a matrix, or the matrix itself, is one number per row times one per column.
std::string outer_product(const WrongTensor& wrong);

/// Words if it is zero by mistake just where a number of the formula is beyond another.
std::string zero_where(const WrongTensor& wrong);

}  // namespace ampcheck::checks
