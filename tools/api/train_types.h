// SPDX-License-Identifier: Apache-2.0
// The types of ampcheck/train.h from ours and back.
#pragma once

#include "checks/models/tape.h"
#include "checks/train/diagnosis.h"
#include "checks/train/trainer.h"
#include "src/api/ampcheck/train.h"
#include "tools/api/public_errors.h"

namespace ampcheck::train {

/// What our side may see of the public types.
struct Internals {
  static checks::models::Tape& of(const Tape& tape) { return tape.tape_; }
  template <class F>
  static void with_tape(checks::models::Tape& inner, F use) {
    Tape tape(inner);
    use(tape);
  }
};

template <class F>
auto with_public_errors(F work) {
  return tools::with_public_errors<UsageError, EnvironmentError>(std::move(work));
}

ampcheck::Dtype inner_dtype(Dtype dtype);
Dtype public_dtype(ampcheck::Dtype dtype);
/// Throws UsageError for a rank or an extent that a tensor cannot have.
ampcheck::Shape inner_shape(const Shape& shape);
Shape public_shape(const ampcheck::Shape& shape);
StepResult public_result(const checks::train::StepResult& from);
Diagnosis public_diagnosis(const checks::train::Diagnosis& from);

}  // namespace ampcheck::train
