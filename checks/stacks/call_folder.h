// SPDX-License-Identifier: Apache-2.0
// The calls of a model that somebody dumped: one file or folder a call, one file whose names have prefixes, or the
// folders of FlashInfer's flight recorder.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checks/stacks/op_records.h"
#include "src/tensor_file.h"

namespace ampcheck::checks::stacks {

struct DumpedCall {
  std::string name;      ///< the same in both stacks: "003_rms_norm", "rmsnorm_call0001"
  std::string function;  ///< of a FlashInfer call: "rmsnorm"; else empty
  std::vector<std::string> files;
  std::string prefix;  ///< of the tensors of one file that belong to the call, with its separator
  std::map<std::string, double> numbers = {};  ///< numbers among its arguments: "arg_2" -> 1e-6
};

struct CallFolder {
  std::string path, kind;  ///< "tensors", "FlashInfer dump"
  std::vector<DumpedCall> calls;
  std::vector<std::string> notes;
};

/// Lists the calls of a file or folder, in the order of their names, numbers in names by their size; of FlashInfer in
/// the order of time. Throws Error for a folder of .pt files alone, with the way to convert them.
CallFolder list_calls(const std::string& path);

/// Reads the tensors of a call, without the prefix.
TensorFile tensors_of(const DumpedCall& call);

/// The formula of a FlashInfer function at its arguments' names, "result = arg_0 * ..."; empty if it is not known.
std::string known_formula(const DumpedCall& call);

/// Numbers about the tensors of all calls, to find where the first number that is not finite comes from. Outputs are
/// the tensors named y, result..., output... or out...
Recording numbers_of_calls(const CallFolder& folder);

/// "x2" before "x10".
bool natural_less(const std::string& a, const std::string& b);

/// The command that turns .pt files into safetensors.
std::string how_to_convert(const std::string& where);

}  // namespace ampcheck::checks::stacks
