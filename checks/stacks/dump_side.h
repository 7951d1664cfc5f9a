// SPDX-License-Identifier: Apache-2.0
// One side of an op from a dump: what was written there, and which inputs differ from the other side's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checks/run/contract_evidence.h"
#include "src/tensor_file.h"

namespace ampcheck::checks::stacks {

/// The outputs in the dump, and the gradients where their cotangents are there too. `call` must stay where it is.
std::vector<Wrote> written_in(const OpDef& op, const OpCall& call, const TensorFile& dump);

/// Inputs and cotangents of the op whose numbers differ, as "x (12 of 512 elements)".
std::vector<std::string> differing_inputs(const OpDef& op, const TensorFile& a, const TensorFile& b);

/// The dump with these rows of every tensor that has that many; nothing where no tensor has.
std::optional<TensorFile> rows_of(const TensorFile& dump, std::int64_t extent, std::int64_t begin, std::int64_t count);

/// Whether an element of every tensor that was written follows from its own row alone.
bool by_rows(const OpDef& op, const OpCall& call, const std::vector<Wrote>& wrote);

}  // namespace ampcheck::checks::stacks
