// SPDX-License-Identifier: Apache-2.0
// What a kernel's bits say of its precision contract, for an author who does not know it: which accumulator, functions,
// order of summation and form explain them, and how surely.
#pragma once

#include <string>
#include <vector>

#include "checks/define/op_def.h"
#include "checks/run/core_reading.h"
#include "reference/replay/replay.h"
#include "src/op_call.h"

namespace ampcheck::checks {

/// One value that a field of the contract may have.
struct Reading {
  std::string words;         ///< "fp32", "kept", "CUDA"
  std::int64_t outside = 0;  ///< elements that no form's interval admits under this reading
  /// log10 of how likely the kernel's bits are: an element is any of the numbers in its interval; 10^-30 outside.
  double likelihood = 0;
  bool declared = false;
};

/// One order of summation replayed in fp32 along one form.
struct OrderReading {
  std::string form;
  reference::SumOrder order = reference::SumOrder::sequential;
  Dtype accumulate = Dtype::fp32;
  bool fused = false;      ///< products enter sums by fma, unrounded
  std::int64_t equal = 0;  ///< of the elements that tell, as the kernel has them bit for bit
};

/// The accumulators of one output or gradient.
struct TensorReading {
  std::string tensor;
  std::vector<Reading> accumulators;
  std::string departure =
      {};  ///< "keeps y in bf16": what explains its bits as no accumulator does; empty: none is needed, or known
  std::string function = {};           ///< that a function departs: its name; it can be declared
  double departure_surety = 0;         ///< log10 against the next best explanation
  std::string next = {};               ///< that one
  std::int64_t unexplained = 0;        ///< elements that neither `best` nor a departure admits
  std::string first_unexplained = {};  ///< a case of theirs
};

struct ContractReading {
  std::string op;
  Dtype storage = Dtype::fp32;
  std::int64_t cases = 0, elements = 0;
  // Best first; of equal ones the narrower promise.
  std::vector<Reading> functions, subnormals;
  std::vector<std::string>
      used;  ///< functions of the formula that data passes through: "exp", "rsqrt"; of none nothing is read
  std::vector<TensorReading> tensors;
  std::vector<OrderReading> orders;  ///< empty where no sum of these cases depends on its order
  std::int64_t told = 0;             ///< elements at which orders, forms and accumulators give different bits
  std::vector<std::pair<std::string, Dtype>>
      narrow;           ///< tensors whose every number fits a shorter type than the one that stores them
  bool repeats = true;  ///< the same call gives the same bits
  CoreReadings cores;   ///< of the matrix products
  PrecisionContract best;

  /// Whether every element lies inside the interval of `best`, or of one that forbids more.
  bool explained() const;
  /// Whether `best` says all of it, so that it may be declared: it is explained, and by nothing for which a contract
  /// has no word.
  bool can_be_declared() const;

  /// The order that fits best with products that are fused, or not; null if there is none.
  const OrderReading* best_order(bool fused) const;

  /// Whether the likeliest functions leave no more than half of the elements unexplained: then they may be declared.
  bool functions_explain() const { return !functions.empty() && 2 * functions.front().outside <= elements; }

  /// log10 of the likelihood of the first reading against the second; infinite if there is no second.
  static double surety(const std::vector<Reading>& readings);
};

/// Runs the kernel at cases of one storage type, in this process. Throws Error for an op without a formula.
ContractReading read_contract(const OpDef& op, Dtype storage, std::uint64_t seed);

}  // namespace ampcheck::checks
