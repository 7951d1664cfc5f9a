// SPDX-License-Identifier: Apache-2.0
// No false alarm on the built-in ops.
#include "tests/support/soak.h"

namespace ampcheck::checks {
namespace {

struct SoakCase {
  std::string op;
  Dtype dtype;
};
void PrintTo(const SoakCase& one, std::ostream* out) { *out << one.op << ' ' << name(one.dtype); }

std::vector<SoakCase> soak_cases() {
  std::vector<SoakCase> out;
  for (const OpDef& op : all_ops())
    for (const Dtype dtype : op.signature.precision.storage) out.push_back({op.signature.name, dtype});
  return out;
}

class Soak : public ::testing::TestWithParam<SoakCase> {};
INSTANTIATE_TEST_SUITE_P(Ops, Soak, ::testing::ValuesIn(soak_cases()),
                         [](const auto& info) { return info.param.op + "_" + name(info.param.dtype); });

TEST_P(Soak, NoFinding) { expect_no_finding(*find_op(GetParam().op), GetParam().dtype); }

}  // namespace
}  // namespace ampcheck::checks
