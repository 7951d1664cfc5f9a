// SPDX-License-Identifier: Apache-2.0
// Rows as a launch contract names them: the elements of the leading axes row_dim = "B H" together, in row-major order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/op_call.h"
#include "src/op_signature.h"

namespace ampcheck::checks {

/// The symbols of row_dim; none where the contract names no rows.
std::vector<std::string> row_symbols(const OpSignature& signature);

/// Whether the tensor's leading axes are those of the rows.
bool has_rows(const OpSignature& signature, const TensorSpec& spec);

/// How many rows a call has; 0 where the contract names none, or none for this call (LaunchContract::row_axis).
std::int64_t rows_of(const OpSignature& signature, const OpCall& call);

/// Rows [first, first + count) of `all`.
struct RowRange {
  std::int64_t first, count, all;
};

/// The elements of these rows, of a tensor that has them all.
std::vector<double> taken(const std::vector<double>& values, const RowRange& rows);

/// Why a call cannot be taken apart by rows, in words; empty if every input has them in front or not at all.
std::string misplaced_rows(const OpSignature& signature, const OpCall& call);

/// The same call with `rows` rows: the last of the axes has them all, the others one each.
OpCall with_rows(const OpSignature& signature, const OpCall& call, std::int64_t rows);

}  // namespace ampcheck::checks
