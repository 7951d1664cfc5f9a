// SPDX-License-Identifier: Apache-2.0
// The tensors that the ranges of calls name and that no generator draws: those of a file
// (range=inputs.0123456789abcdef) and those of the nets' runs (range=digits.step2.softmax_1). Who runs a check makes
// this once and hands it in with the calls, so that two checks with different tensors run beside each other.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "src/tensor_file.h"

namespace ampcheck::checks {
class NetRuns;  // checks/data/real_tensors.h
}

namespace ampcheck {

/// Never changed once it is made: any number of threads read it.
struct CallData {
  std::shared_ptr<const TensorFile> file = nullptr;  ///< null: none
  std::string file_range = {};                       ///< "inputs." and the digest of its contents
  /// Outputs whose cotangent the file has and the cases use; found out by require_file_call() for one op.
  std::set<std::string> cotangents = {};
  std::shared_ptr<checks::NetRuns> runs = nullptr;  ///< null: on the data in the usual places
};

}  // namespace ampcheck
