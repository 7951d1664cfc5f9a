// SPDX-License-Identifier: Apache-2.0
// What ops lack is a list, not a failure: an op of which nothing is there but its three files passes. An op that has a
// part and loses another does not.
#include "tools/commands/wanting.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checks/define/op_def.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::tools {
namespace {

using ampcheck::testing::contains;
using nlohmann::json;

const std::string kData = tests::in_data_root("/tests/data");

TEST(Wanting, EveryOpHasItsEvidenceWholeOrNoneOfIt) {
  std::size_t whole = 0;
  for (const Evidence& op : evidence(kData)) {
    EXPECT_EQ(op.broken(), "");
    whole += op.values >= Evidence::kValues ? 1 : 0;
  }
  EXPECT_EQ(evidence(kData).size(), checks::all_ops().size());
  EXPECT_GE(whole, 20u);
}

TEST(Wanting, ALossIsSeenAndANewOpIsNone) {
  const Evidence none{.name = "new"}, whole{"op", 5, 5, 2, {"digits"}}, without_net{"op", 5, 5, 2, {}};
  EXPECT_EQ(none.broken(), "");
  EXPECT_EQ(none.wanting(),
            (std::vector<std::string>{"independent values", "planted defects", "correct variants", "a net"}));
  EXPECT_EQ(whole.broken(), "");
  EXPECT_TRUE(whole.wanting().empty());
  EXPECT_EQ(without_net.broken(), "") << "no net has to meet an op";
  EXPECT_EQ(without_net.wanting(), std::vector<std::string>{"a net"});
  // Planted faults: each of the three is lost in turn, and all of them by an op that a net calls.
  EXPECT_EQ((Evidence{"op", 0, 5, 2, {}}.broken()), "op: independent values: 0, want at least 5");
  EXPECT_EQ((Evidence{"op", 5, 4, 2, {}}.broken()), "op: planted defects: 4, want at least 5");
  EXPECT_EQ((Evidence{"op", 5, 5, 0, {}}.broken()), "op: correct variants: 0, want at least 2");
  EXPECT_EQ((Evidence{"op", 0, 0, 0, {"text"}}.broken()),
            "op: independent values: 0, want at least 5; planted defects: 0, want at least 5; correct variants: 0, "
            "want at least 2");
}

TEST(Wanting, IsPrintedAsAList) {
  const json ops = json::parse(ampcheck::testing::ampcheck("list --wanting --json").out).at("ops");
  std::size_t lacking = 0;
  for (const Evidence& op : evidence(kData)) {
    if (op.wanting().empty()) continue;
    ASSERT_LT(lacking, ops.size());
    EXPECT_EQ(ops.at(lacking).at("op"), op.name);
    EXPECT_EQ(ops.at(lacking++).at("wanting"), json(op.wanting()));
  }
  EXPECT_EQ(lacking, ops.size());
  const auto text = ampcheck::testing::ampcheck("list --wanting");
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_TRUE(contains(text.out, lacking == 0 ? "nothing is wanting" : "CONTRIBUTING.md")) << text.out;
  EXPECT_EQ(ampcheck::testing::ampcheck("list --wanting softmax").out, "nothing is wanting\n");
  const auto nowhere = ampcheck::testing::ampcheck("list --wanting", "AMPCHECK_DATA=/nowhere");
  EXPECT_EQ(nowhere.exit_code, 6);
  EXPECT_TRUE(contains(nowhere.err, "/nowhere")) << nowhere.err;
}

}  // namespace
}  // namespace ampcheck::tools
