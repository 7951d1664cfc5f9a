// SPDX-License-Identifier: Apache-2.0
// `ampcheck diagnose` as a user runs it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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
