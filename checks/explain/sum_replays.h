// SPDX-License-Identifier: Apache-2.0
// Causes of sums that go wrong: a short accumulator, terms that are left out.
#pragma once

#include <string>

#include "checks/case/wrong_tensor.h"
#include "checks/explain/elsewhere.h"
#include "checks/explain/notes.h"

namespace ampcheck::checks {

/// Words if the wrong elements are those of a sum that leaves out its last term or its tail; empty otherwise.
std::string dropped_terms(const WrongTensor& wrong);

/// A short accumulator, if a replay of the formula that adds in order, in 16 bits, gives the tensor as the kernel wrote
/// it. Cheap, and as sure as a changed formula that gives it.
Replayed surely_low_accumulation(const WrongTensor& wrong);

/// A short accumulator, if it explains the failed elements of a tensor and the others do not refute it; those of
/// `right` too, if the tensor is some rows of one.
Replayed explained_by_low_accumulation(const WrongTensor& wrong, RightRows* right = nullptr);

}  // namespace ampcheck::checks
