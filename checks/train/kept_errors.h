// SPDX-License-Identifier: Apache-2.0
// What of a step is kept to be told what it moved (checks/train/gradient_errors.h): the errors that ops and casts made,
// what ops made of inputs that had errors already, and the roundings of sums of gradients, which no op writes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checks/models/fp64_tape.h"
#include "checks/train/tensor_key.h"

namespace ampcheck::checks::train {

/// The error made in one tensor. Only where it is not zero throughout.
struct LocalError {
  TensorKey where;
  int batch = 0;     ///< number of the micro-batch in the step, over all ranks; all_reduce: none
  double scale = 1;  ///< what a gradient is multiplied by
  std::vector<float> error,
      exact;  ///< and the exact values, scaled; some digits are enough; an error that is not finite is zero
};

/// One call whose inputs were others than the fp64 run's: how far they and its incoming gradient were from it, and how
/// far by that the exact results at these inputs are from the fp64 run's. What is not finite is zero. Gradients are
/// without the scale.
struct InheritedErrors {
  TensorKey where;  ///< of the forward's output
  int batch = 0;
  std::vector<float> output, cotangent;
  std::map<std::string, std::vector<float>> inputs, gradients;  ///< by input
};

/// The rounding of a sum of gradients: of what several ops gave for one tensor, or of micro-batches.
struct SumError {
  std::string of;          ///< "layer0.weight", or of an op's output the op: "relu_1"
  bool parameter = false;  ///< which of the two
  int batch = 0;
  double scale = 1;
  std::vector<float> error;
};

class KeptErrors {
 public:
  void clear();
  void add_local(const Event& event, const TensorKey& key, int batch);
  /// An op's output or gradient with its inputs; `record`: the same micro-batch of the fp64 run.
  void add_inherited(const Event& event, const TensorKey& key, int batch, const models::StepRecord& record);
  void add_sum(const GradientSum& sum, int batch);

  const std::vector<LocalError>& local() const { return local_; }
  const std::vector<InheritedErrors>& inherited() const { return inherited_; }
  const std::vector<SumError>& sums() const { return sums_; }

 private:
  std::vector<LocalError> local_;
  std::vector<InheritedErrors> inherited_;
  std::vector<SumError> sums_;
};

}  // namespace ampcheck::checks::train
