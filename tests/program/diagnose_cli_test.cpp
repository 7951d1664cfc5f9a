// SPDX-License-Identifier: Apache-2.0
// `ampcheck diagnose` as a user runs it.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::testing {
namespace {

using nlohmann::json;

TEST(DiagnoseCli, NamesVanishedGradientsAndTriesTheScaler) {
  const ProgramResult r =
      ampcheck("diagnose mlp --scaler none --loss-weight 1e-6 --optimizer adam --lr 0.003 --steps 30 --json");
  EXPECT_EQ(r.exit_code, 1) << r.err;
  const json out = json::parse(r.out);
  ASSERT_FALSE(out["findings"].empty());
  EXPECT_EQ(out["findings"][0]["cause"], "gradient_underflow");
  EXPECT_EQ(out["findings"][0]["weight"], "decided");
  EXPECT_TRUE(contains(out["findings"][0]["change"], "GradScaler"));
  EXPECT_TRUE(out["cured"]);
}

TEST(DiagnoseCli, AHealthyRunIsWell) {
  const ProgramResult r = ampcheck("diagnose mlp --steps 20");
  EXPECT_EQ(r.exit_code, 0) << r.out;
  EXPECT_TRUE(contains(r.out, "is well"));
}

/// A user's fused kernel in a net: the maximum that it compares with was rounded on its way. The same kernel without
/// that way is well.
TEST(DiagnoseCli, NamesARoundingThatAFusedKernelMoved) {
  const TemporaryFolder folder;
  const auto of = [&](const std::string& op) {
    const std::string path = folder.path() + "/" + op + ".toml";
    std::ofstream(path) << "data = 'digits'\n[[layers]]\ntype = 'linear'\noutputs = 48\nname = 'first'\n"
                        << "[[layers]]\ntype = 'op'\nlibrary = '" << tests::in_build("/custom_ops/fused_share.so")
                        << "'\nop = '" << op << "'\ncast_inputs = 'bf16'\n[[layers]]\ntype = 'add'\nof = 'first'\n"
                        << "[[layers]]\ntype = 'layer_norm'\n[[layers]]\ntype = 'linear'\n";
    return json::parse(ampcheck("diagnose " + path + " --dtype bf16 --steps 12 --json").out);
  };
  const json moved = of("share_through_memory"), well = of("share_in_registers");
  ASSERT_FALSE(moved["findings"].empty());
  EXPECT_EQ(moved["findings"][0]["cause"], "moved_boundary");
  EXPECT_EQ(moved["findings"][0]["op"], "share_through_memory_1");
  EXPECT_EQ(moved["smallest_set"]["ops"], (json{"share_through_memory_1"}));
  EXPECT_TRUE(moved["cured"]);
  EXPECT_TRUE(well["healthy"]) << well;
}

TEST(DiagnoseCli, SaysWhatItWants) {
  const ProgramResult r = ampcheck("diagnose nothing_there");
  EXPECT_EQ(r.exit_code, 2);
  EXPECT_TRUE(contains(r.err, "'nothing_there'")) << r.err;
  EXPECT_EQ(ampcheck("audit diagnose no_such_run").exit_code, 2);
}

TEST(DiagnoseCli, TheAuditScoresTheRunsThatAreAskedFor) {
  const ProgramResult r = ampcheck("audit diagnose D1 healthy_clip --json");
  EXPECT_EQ(r.exit_code, 0) << r.out;
  const json out = json::parse(r.out);
  EXPECT_EQ(out["planted"], 6);
  EXPECT_EQ(out["top1"], 6);
  EXPECT_EQ(out["unseen"]["planted"], 3);
  EXPECT_EQ(out["controls"], 1);
  EXPECT_EQ(out["false_alarms"], 0);
  EXPECT_EQ(out["baselines"].size(), 4u);
}

}  // namespace
}  // namespace ampcheck::testing
