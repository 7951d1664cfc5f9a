// SPDX-License-Identifier: Apache-2.0
// Tensors that somebody saved: inputs, outputs, gradients and cotangents of one call, judged without its kernel. Names
// are those of the formula: "x" an input, "y" an output, "dx" its gradient, "dy" the cotangent that the backward was
// given.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checks/define/op_def.h"
#include "src/finding.h"
#include "src/op_call.h"
#include "src/tensor_file.h"

namespace ampcheck::checks {

/// What the dumped op is held to.
struct DumpContract {
  std::optional<Dtype> storage;  ///< of tensors that hold its values in a wider type; else what the dump holds
  Accumulator accumulate = Dtype::fp32;
  MathSet math;
};

/// An op whose formula is this text: its inputs are the tensors of the dump that the text uses, its outputs the
/// statements that the dump has. Throws Error, reference::FormulaError with line and column among them.
OpDef op_of_formula(const TensorFile& dump, const std::string& text, const DumpContract& contract);

/// A known op, held to another contract.
OpDef op_with_contract(const OpDef& op, const DumpContract& contract);

/// How surely the formula of op_of_formula() is right: 100-digit differences at small extents, or at the dump's where
/// only these fit it. No digits and a reason in `why` where it has no extents that are small.
Certificate certify_formula(const OpDef& op, const OpCall& call, std::string& why);

struct DumpResult {
  CaseResult result;
  std::vector<std::string> notes;  ///< what was not judged, and why
};

/// Judges the outputs and gradients in the dump, whose inputs the call has (file_call). Throws Error where there is
/// nothing to judge, for shapes that are not the formula's, and for gradients without the cotangent that they follow
/// from.
DumpResult judge_dump(const OpDef& op, const OpCall& call, const TensorFile& dump, bool as_written = false);

}  // namespace ampcheck::checks
