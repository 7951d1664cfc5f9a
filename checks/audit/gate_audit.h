// SPDX-License-Identifier: Apache-2.0
// Tests a test: what a tolerance rule accepts that is wrong, and what it rejects that is right. The rule gets wrong
// answers made from the right one (zeros, a shuffle, a dropped tile, ...), the zoo's defects of the op, the correctly
// rounded answer, and the zoo's correct kernels.
#pragma once

#include <string>
#include <vector>

#include "checks/audit/gate_rules.h"
#include "checks/define/op_def.h"
#include "src/op_call.h"

namespace ampcheck::checks::zoo {

/// One kind of wrong answer to one tensor.
struct SurrogateScore {
  const char* name;
  const char* what;
  bool uninformed;  ///< knows nothing of the answer
  bool zeros = false;
  std::int64_t wrong = 0;  ///< tensors at which it really is wrong: an element lies outside the interval of every form
  std::int64_t accepted = 0;  ///< of these, by the rule

  /// A rule that accepts zeros somewhere, or another uninformed answer everywhere, says nothing: near-equal numbers may
  /// well be shuffled.
  bool says_nothing() const;
};

/// What the rule does with one output or gradient over all cases.
struct GatedTensor {
  std::string name;
  std::int64_t tensors = 0;
  std::vector<SurrogateScore> surrogates;
  std::int64_t right_rejected = 0;  ///< cases in which the correctly rounded answer is rejected
  std::string rejected_case;        ///< the first of them, and its element farthest beyond the rule
  std::int64_t index = -1;
  double right = 0, want = 0;
  double widest_ulp = 0;  ///< widest interval, in ulps of the storage type
  double widest = 0;      ///< largest distance of a right answer from the reference

  bool vacuous() const;
};

/// A kernel of the zoo before the rule.
struct GatedKernel {
  std::string name, what;
  bool defect = false;
  bool visible = false;  ///< it leaves the interval in some of these cases
  bool accepted = true;  ///< in all of them
};

struct GateAudit {
  std::string op;
  Dtype dtype = Dtype::fp32;
  GateRule rule;
  std::int64_t cases = 0;
  std::vector<GatedTensor> tensors;
  std::vector<GatedKernel> kernels;  ///< none for ops that the zoo does not have

  bool vacuous() const;
  bool too_tight() const;  ///< it rejects a correctly rounded answer
};

struct GateAuditOptions {
  GateRule rule;
  bool rounded_reference = false;  ///< the reference is rounded to the storage type before it is compared
};

/// The cases that stand for a project's test of an op: normal data at its three standard shapes.
std::vector<OpCall> everyday_cases(const OpSignature& signature, Dtype storage, std::uint64_t seed);
bool everyday(const OpSignature& signature, const OpCall& call);

/// Audits a rule at these cases of one storage type. An op without a kernel (of a dump) has no kernels to try; its rule
/// may not ask for one.
GateAudit audit_gate(const OpDef& op, const std::vector<OpCall>& calls, const GateAuditOptions& options);

}  // namespace ampcheck::checks::zoo
