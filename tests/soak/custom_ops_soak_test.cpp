// SPDX-License-Identifier: Apache-2.0
// No false alarm on the right kernels of tests/custom_ops/.
#include "tests/support/custom_op_list.h"
#include "tests/support/soak.h"

namespace ampcheck::checks {
namespace {

std::vector<CustomOpCase> right_ops() {
  std::vector<CustomOpCase> out;
  for (const CustomOpCase& entry : kCustomOps)
    if (entry.code[0] == '\0') out.push_back(entry);
  return out;
}

class CustomOpSoak : public ::testing::TestWithParam<CustomOpCase> {};
INSTANTIATE_TEST_SUITE_P(Right, CustomOpSoak, ::testing::ValuesIn(right_ops()),
                         [](const auto& info) { return std::string(info.param.op); });

TEST_P(CustomOpSoak, NoFinding) {
  const OpDef& op = custom_op(GetParam());
  for (const Dtype storage : op.signature.precision.storage) expect_no_finding(op, storage);
}

}  // namespace
}  // namespace ampcheck::checks
