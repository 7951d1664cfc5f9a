// SPDX-License-Identifier: Apache-2.0
// Likely causes that need no other formula than the op's own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checks/case/wrong_tensor.h"
#include "checks/explain/notes.h"

namespace ampcheck::checks {

/// What the words of a cause begin with that states a change of the formula.
inline constexpr std::string_view kChangedFormula = "these are the values of the formula ";

/// Likely cause of a failed comparison, in words; empty if nothing fits.
std::string likely_cause(const WrongTensor& wrong);

/// Whether a finding claims what the kernel does, beyond what is seen of its numbers (where they are, what they have in
/// common): a claim may be false.
bool names_a_cause(const CheckResult& check);
/// Whether a reader needs no other case: it names one, or a factor that all share.
bool says_why(const CheckResult& check);
/// Whether what it names is told from another fault by no number of this case.
bool is_undecided(const CheckResult& check);
/// Whether what it names is surely told from what names no cause: enough to be quoted of another case.
bool gives_a_reason(const CheckResult& check);

/// Whether there are several numbers and all are zero: any change of a formula that leaves nothing gives them.
bool all_zero(const std::vector<double>& got);

/// What an accumulating buffer seems to have got instead of what it held plus the gradient, in words; empty if nothing
/// fits.
std::string added_otherwise(const WrongTensor& wrong);

/// Whether the wrong elements are all wrong by one factor: the errors of sums have either sign and no common size.
bool off_by_one_factor(const WrongTensor& wrong);

/// Words if the numbers are those of the formula, rounded toward zero on the way to a 16-bit storage; empty otherwise.
std::string truncated(const WrongTensor& wrong, Notes& notes);

/// Words if they are rounded to a storage of 16 or 8 bits by another mode.
std::string rounded_otherwise(const WrongTensor& wrong);

}  // namespace ampcheck::checks
