// SPDX-License-Identifier: Apache-2.0
// Cases at tensors of the user's own: inputs by the op's names, cotangents by "d" and the output's. Such a case is an
// ordinary op call whose data regime names the contents of the file: range=inputs.0123456789abcdef.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checks/data/call_data.h"
#include "checks/define/op_def.h"
#include "src/op_call.h"
#include "src/tensor_file.h"

namespace ampcheck::checks {

/// The tensors that `range=inputs.*` shall mean (--inputs), for the `data` of calls. `runs`: of the nets, if they are
/// wanted too.
std::shared_ptr<const CallData> data_of_file(TensorFile file, std::shared_ptr<NetRuns> runs = nullptr);

/// Whether a data regime is of a file.
bool is_file_range(std::string_view range);

/// The op, or, where the file or `storage` says that it stores in fp64 and the op is not declared for it, the same op
/// with a kernel in double (checks/define/fp64_ops.h), if there is one.
const OpDef& op_for_file(const OpDef& op, const TensorFile& file, std::optional<Dtype> storage);

/// The call of an op at the tensors of data's file, attributes at their defaults; it keeps the data. `storage`: of
/// tensors whose values must be exact in it; without one, what the file holds. Throws Error for a missing tensor, a
/// dtype that the op does not take or that differs from the others', a rank or extent that does not fit.
OpCall file_call(const OpDef& op, std::shared_ptr<const CallData> data, std::optional<Dtype> storage);

/// Throws Error unless the file of the call's data is the one that its range names, its tensors have the call's dtypes
/// and extents, all values are exact there, indices lie in their range, and the cotangents that it has fit the outputs.
/// `dumped`: cotangents are the affair of who judges the dump. From here on the call's data knows which cotangents it
/// uses.
void require_file_call(const OpDef& op, OpCall& call, bool dumped = false);

/// Names of tensors of the file that a call of this op does not read.
std::vector<std::string> unused_inputs(const OpDef& op, const TensorFile& file);

/// Values of one input; the cotangent of an output, none where the file has none.
std::vector<double> file_input(const OpCall& call, const TensorSpec& spec);
std::optional<std::vector<double>> file_cotangent(const OpCall& call, const std::string& output);
/// Whether the file has the cotangent of some output of the call's op.
bool has_file_cotangents(const OpCall& call);

/// The index of the first value that is not exact in a dtype; -1 if there is none. NaN is exact in every float.
std::int64_t first_inexact(const std::vector<double>& values, Dtype dtype);

}  // namespace ampcheck::checks
