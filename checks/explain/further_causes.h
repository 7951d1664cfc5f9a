// SPDX-License-Identifier: Apache-2.0
// Causes that are looked for once a tensor is judged wrong and no changed formula or short accumulator explains it:
// a condition on the data, small errors everywhere. Like every cause they convict nobody.
#pragma once

#include "checks/case/wrong_tensor.h"
#include "checks/explain/notes.h"

namespace ampcheck::checks {

/// Words if the wrong elements are those at which an input or cotangent of the tensor's shape is zero, beyond or below
/// a number.
std::string data_condition(const WrongTensor& wrong);

/// Words if all errors are small and nothing else is known of them: as of a function or division of few digits.
/// `of_function`: they are many, of either sign, and the formula has such functions: then the contract's math set is
/// broken (AC304).
std::string few_digits(const WrongTensor& wrong, bool& of_function);

/// Adds what these say to the judged tensors of one launch that are wrong without a cause from replays.
void explain_further(CaseRun& run, const std::vector<Subject>& subjects, Pass pass, Notes& notes,
                     std::vector<CheckResult>& checks);

/// A broken relation says what is wrong with the values of its tensor too.
void quote_causes(std::vector<CheckResult>& checks);

}  // namespace ampcheck::checks
