// SPDX-License-Identifier: Apache-2.0
// `ampcheck diagnose A B`: two stacks, op by op.
#pragma once

#include <string>
#include <vector>

#include "checks/stacks/op_pair.h"
#include "tools/choose/other_data_options.h"
#include "tools/report/exit_code.h"
#include "tools/report/json.h"

namespace ampcheck::tools {

struct StacksResult {
  std::string a, b;
  std::vector<checks::stacks::OpPair> ops;  ///< in the order of the calls
  std::vector<std::string> only_a, only_b;  ///< calls of one side
  std::vector<std::string> unread;          ///< calls whose formula is not known: "name: why"
  std::vector<std::string> notes;

  /// The first op at which a difference is made: by another contract, or else by another order.
  const checks::stacks::OpPair* first_made() const;
};

/// Whether words name plug-ins, ops or tensors, from which contracts can be read.
bool is_stack(const std::string& word);

ExitCode diagnose_stacks(const std::string& a, const std::string& b, bool json, const OtherDataOptions& options);

std::string stacks_text(const StacksResult& result);
Json stacks_json(const StacksResult& result);
ExitCode stacks_exit(const StacksResult& result);

}  // namespace ampcheck::tools
