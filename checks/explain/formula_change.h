// SPDX-License-Identifier: Apache-2.0
// Causes that are found by changing the formula.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checks/case/wrong_tensor.h"
#include "checks/explain/notes.h"

namespace ampcheck::checks {

/// The one change of a form that gives the tensor as the kernel wrote it; Kind::none if there is none. `only`: no other
/// change than that of these words is tried.
Replayed explained_by_change(const WrongTensor& wrong, const std::string& only = "");

/// A change that no list of slips has: every operand exchanged for every other one, every function for every other one,
/// other places, a factor or addend found from the numbers.
Replayed explained_by_further_change(const WrongTensor& wrong);

/// Whether the change of these words gives this tensor, which it was not found from; nothing where no change is meant.
/// `found_at`: at which extents, if at others; null: at the same.
std::optional<bool> gives(const std::string& change, const WrongTensor& there, const Dims* found_at = nullptr);

/// Words if the wrong elements are right for a kernel that flushes subnormals, which the contract does not allow; empty
/// otherwise.
std::string explained_by_flushing(const WrongTensor& wrong);

/// Whether these numbers are the kernel's own, wrong ones and right ones, and farther from the formula's than chance
/// could bring them.
bool gives_the_numbers(const WrongTensor& wrong, const std::vector<double>& changed);

}  // namespace ampcheck::checks
