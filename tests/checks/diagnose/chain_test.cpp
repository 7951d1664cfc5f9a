// SPDX-License-Identifier: Apache-2.0
// The causal chain of a diagnosis, in words and on the page of the run's trace.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/run_program.h"

namespace ampcheck::testing {
namespace {

using nlohmann::json;

class Chain : public ::testing::Test {
 protected:
  json diagnosed(const std::string& arguments) {
    const ProgramResult run = ampcheck("diagnose " + arguments + " --json -o html:" + page_);
    EXPECT_LE(run.exit_code, 1) << run.err;
    return json::parse(run.out);
  }
  TemporaryFolder folder_;
  std::string page_ = folder_.path() + "/run.html";
};

TEST_F(Chain, OfAnOverflowLeadsFromItsTensorToTheLoss) {
  const json out = diagnosed("mlp --lr 1000 --steps 6 --dtype fp16");
  ASSERT_FALSE(out["chain"].empty()) << out;
  EXPECT_EQ(out["chain"].back()["what"], "the loss is not finite") << out["chain"];
  int step = 0;
  for (const json& link : out["chain"]) {
    EXPECT_GE(link["step"].get<int>(), step) << "in the order of time";
    step = link["step"];
  }
  const std::string page = read_text(page_);
  EXPECT_TRUE(contains(page, "Causal chain")) << page.substr(0, 2000);
  EXPECT_TRUE(contains(page, "the loss is not finite"));
  EXPECT_TRUE(contains(page, "class=\"mark\"")) << "a tensor of the chain is marked in a map";
}

/// Gradients that vanish: the tensor of the finding is in the chain, at its first step.
TEST_F(Chain, OfVanishingGradientsBeginsAtTheCast) {
  const json out = diagnosed("mlp --scaler none --loss-weight 1e-6 --optimizer adam --lr 0.003 --steps 20");
  ASSERT_FALSE(out["chain"].empty());
  EXPECT_EQ(out["chain"][0]["tensor"], out["findings"][0]["tensor"]);
  EXPECT_EQ(out["chain"][0]["what"], "100 % of what is not zero became zero");
  EXPECT_TRUE(contains(read_text(page_), "class=\"mark\""));
}

TEST_F(Chain, OfAHealthyRunIsEmpty) {
  const json out = diagnosed("mlp --steps 6 --init-scale 1024");
  EXPECT_TRUE(out["chain"].empty()) << out["chain"];
  const std::string page = read_text(page_);
  EXPECT_TRUE(contains(page, "Nothing is wrong with this run."));
  EXPECT_FALSE(contains(page, "class=\"mark\""));
}

TEST_F(Chain, APageIsOfARunAlone) {
  EXPECT_EQ(ampcheck("diagnose mlp --steps 1 -o csv:" + page_).exit_code, 2);
  EXPECT_EQ(ampcheck("diagnose a.csv -o html:" + page_).exit_code, 2);
}

/// The scaler skips what a gradient did, and the run says which one.
TEST_F(Chain, TheProducerBehindASkippedStepIsNamed) {
  const ProgramResult run = ampcheck("train mlp --lr 1 --steps 8");
  EXPECT_TRUE(contains(run.out, "; in step 6 linear_3 (layer2) backward dweight made finite values non-finite"))
      << run.out;
  const json out = json::parse(ampcheck("train mlp --lr 1 --steps 8 --json").out);
  EXPECT_EQ(out["caught"]["step"], 5);
  EXPECT_TRUE(out["producer"].is_null());
}

}  // namespace
}  // namespace ampcheck::testing
