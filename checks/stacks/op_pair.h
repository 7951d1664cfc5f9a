// SPDX-License-Identifier: Apache-2.0
// One op of two stacks: is a difference made there or inherited from the inputs, what makes it, and which side follows
// the declared contract?
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "checks/run/contract_evidence.h"
#include "src/finding.h"

namespace ampcheck::checks::stacks {

/// What one side of an op wrote, over all its calls.
struct Side {
  const OpDef* op = nullptr;       ///< with the contract that is declared
  const OpDef* read_by = nullptr;  ///< whose formula says how it computes; null: `op`
  const std::vector<OpCall>* calls = nullptr;
  std::vector<Wrote> wrote;              ///< in the order of the other side's
  bool repeats = true;                   ///< the same call gives the same bits
  std::vector<CheckResult> judged = {};  ///< under the declared contract, by tensor; of a dump
};

/// Where the difference of a tensor comes from.
enum class Origin : std::uint8_t {
  equal,      ///< the same bits
  order,      ///< made here, within one contract: another order of sums, other functions of the same accuracy
  made,       ///< made here: the two do not follow the same contract
  inherited,  ///< the inputs differ, and both sides compute alike
  unknown,    ///< the inputs differ, and what the sides do with them was not read
};
const char* name(Origin origin);

/// How one side computes a tensor.
struct SideReading {
  std::string precision;             ///< in few words: "accumulates in bf16", "sums in fp32"
  std::string order;                 ///< of its sums, where the bits tell
  std::string contract;              ///< "rounds once, at the end; sums in fp32"
  bool plain = false;                ///< the declared precision and no rounding on the way, in whatever algebra
  bool explained = false;            ///< every number lies inside the intervals of that contract
  double surety = 0;                 ///< log10 against the next best way
  std::int64_t outside = 0;          ///< elements outside of the declared contract's interval
  std::string verdict, code, cause;  ///< under the declared contract
  bool follows() const { return outside == 0; }
};

struct TensorPair {
  std::string tensor;
  Pass pass = Pass::forward;
  Dtype dtype = Dtype::fp32;
  std::int64_t elements = 0, differ = 0;
  double worst_ulp = 0;
  std::string worst_index;
  double worst_a = 0, worst_b = 0;
  Origin origin = Origin::equal;
  std::int64_t made = 0;  ///< elements that the other side's way cannot give at the same inputs
  std::array<SideReading, 2> sides;
  std::string boundary;  ///< "A rounds before weight, B after"
};

struct OpPair {
  std::string name, formula;
  std::int64_t cases = 0;
  std::vector<std::string> differing_inputs;  ///< "x (12 of 512)"
  std::vector<TensorPair> tensors;
  std::vector<std::string> notes;

  /// The gravest of its tensors: made before order before unknown before inherited before equal.
  Origin origin() const;
  const TensorPair* deciding() const;
};

/// How each side computes its tensors is read of all of them, or of none: then differences with differing inputs stay
/// CANNOT TELL, and with equal ones MADE.
enum class HowRead : std::uint8_t { all, none };

/// `inputs_differ`: names of inputs with other bits on either side, with how many elements.
OpPair compare_op(const std::string& name, Side& a, Side& b, std::vector<std::string> inputs_differ, HowRead reading);

}  // namespace ampcheck::checks::stacks
