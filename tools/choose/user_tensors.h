// SPDX-License-Identifier: Apache-2.0
// `--inputs FILE`: one op at the user's own tensors.
#pragma once

#include "src/tensor_file.h"
#include "tools/choose/dump_options.h"
#include "tools/choose/selection.h"

namespace ampcheck::tools {

/// Sets options.call_data from --inputs and --data. Throws UsageError for a file that cannot be read as tensors,
/// EnvironmentError for one that is not there.
void open_data(CaseOptions& options);

/// The cases of the one op among options.words at the tensors of options.inputs: one for each seed, and for each
/// --dtype or in the file's own. The word may name attributes, cotangents and layout: 'layer_norm(eps=0.001)'. Throws
/// UsageError.
Selection cases_at_inputs(const CaseOptions& options);

/// The op that --formula names or writes, and its call at a dump's tensors. Throws UsageError
/// for a formula whose gradient is not that of its differences, Error for a dump that does not fit.
struct DumpedOp {
  checks::OpDef op;
  OpCall call;
  Certificate certificate;  ///< no points: not certified, and `notes` says why
};
DumpedOp dumped_op(const CaseOptions& cases, const DumpOptions& options, const TensorFile& dump,
                   std::vector<std::string>& notes);

/// The text of a case: `call` with the fields that `word` names behind its own.
std::string with_fields(const OpCall& call, const OpSignature& signature, const std::string& word);

}  // namespace ampcheck::tools
