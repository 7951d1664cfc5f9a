// SPDX-License-Identifier: Apache-2.0
// What `ampcheck facts` and `ampcheck memory` print follows from what was measured.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checks/train/facts.h"
#include "checks/train/memory.h"
#include "tests/run_program.h"

namespace ampcheck::testing {
namespace {

using namespace checks::train;

const std::string kData = std::string(AMPCHECK_ROOT) + "/tests/data";

TEST(Facts, EachClaimIsMeasuredAndItsCommandRuns) {
  const std::vector<Fact> facts = measured_facts(kData);
  ASSERT_GE(facts.size(), 10u);
  for (const Fact& f : facts) {
    EXPECT_FALSE(f.measured.empty()) << f.claim;
    EXPECT_TRUE(f.command.starts_with("ampcheck ")) << f.claim;
    const bool is_time = f.claim.find("multiples of eight") != std::string::npos;  // the machine's own
    EXPECT_TRUE(is_time || !f.holds) << f.claim << ": " << f.measured;
  }
  const auto said = [&](const char* claim, const char* number) {
    for (const Fact& f : facts)
      if (f.claim.find(claim) != std::string::npos) return f.measured.find(number) != std::string::npos;
    return false;
  };
  // Independent of the code that measures: IEEE 754 binary16, and the figures of the goldens (scale traces).
  EXPECT_TRUE(said("underflows to zero", "2^-25"));
  EXPECT_TRUE(said("keeps its update", "2^-11 in fp16, 2^-8 in bf16, 2^-24 in fp32"));
  EXPECT_TRUE(said("a sum, a mean", "give 2048"));
  EXPECT_TRUE(said("finds back", "after 144"));
  EXPECT_TRUE(said("finds back", "after 166"));
  EXPECT_TRUE(said("computed in fp32", "of the 8970 elements of the MLP's weight gradients, held in fp32, 8970 are"));
}

TEST(Facts, TheCommandOfTheFirstOneShowsIt) {
  const std::vector<Fact> facts = measured_facts(kData);
  const ProgramResult run = ampcheck(facts.front().command.substr(9));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.out, "fp16")) << run.out;
  const nlohmann::json j = nlohmann::json::parse(ampcheck("facts --json").out);
  EXPECT_EQ(j["facts"].size(), facts.size());
}

/// The account, tensor by tensor, against what an allocator gave out and had not got back.
TEST(Memory, TheAccountIsWhatWasAllocated) {
  for (const char* model : {"mlp", "conv", "transformer"}) {
    NetOptions options;
    options.model = model, options.data = kData;
    for (const char* optimizer : {"sgd", "adam"})
      for (const MemoryUse& use : memory_of(make_net(options), {.name = optimizer}, Dtype::bf16, 1).strategies) {
        EXPECT_EQ(use.live_after_forward, use.weights + use.masters + use.moments + use.activations) << model << " " << use.strategy;
        EXPECT_EQ(use.live_after_update, use.weights + use.masters + use.gradients + use.moments) << model << " " << use.strategy;
        EXPECT_GE(use.peak, use.live_after_forward) << model << " " << use.strategy;
        EXPECT_GE(use.peak, use.live_after_update) << model << " " << use.strategy;
      }
  }
}

TEST(Memory, BytesFollowFromTheParameters) {
  NetOptions options;
  options.data = kData;
  const OptimizerChoice adam{.name = "adam"};
  const MemoryReport report = memory_of(make_net(options), adam, Dtype::fp16, 1);
  ASSERT_EQ(report.parameters, 2 * (64 * 64 + 64) + 64 * 10 + 10);
  ASSERT_EQ(report.strategies.size(), 7u);
  const MemoryUse &fp32 = report.strategies[0], &autocast = report.strategies[1], &kept = report.strategies[2], &upcast = report.strategies[3], &masters = report.strategies[4], &moments = report.strategies[5],
                  &pure = report.strategies[6];
  EXPECT_EQ(fp32.weights, 4 * report.parameters);
  EXPECT_EQ(fp32.gradients, 4 * report.parameters);
  EXPECT_EQ(kept.gradients, 2 * report.parameters) << "all of this net's weights are read through a cast";
  EXPECT_EQ(fp32.moments, 8 * report.parameters + 6 * 4) << "two moments, and a step counter for each of six tensors";
  EXPECT_EQ(moments.moments, 4 * report.parameters + 6 * 4);
  EXPECT_EQ(masters.weights + masters.masters + masters.gradients, 8 * report.parameters);
  EXPECT_EQ(pure.weights + pure.masters + pure.gradients, 4 * report.parameters);
  EXPECT_EQ(upcast.gradients, 6 * report.parameters);
  EXPECT_EQ(upcast.total() - masters.total(), 4 * report.parameters) << "what chunks save";
  // x and five activations of 64 rows; 16-bit casts of x and the weights beside them; the loss stays in fp32.
  const std::int64_t rows = 64, activations = rows * (4 * 64 + 10), losses = (64 + 1) * 4, targets = rows * (4 + 8);
  EXPECT_EQ(fp32.activations, 4 * (rows * 64 + activations) + losses + targets);
  EXPECT_EQ(autocast.activations, 4 * rows * 64 + 2 * (rows * 64 + activations + report.parameters) + 4 * rows * 10 + losses + targets);
  EXPECT_EQ(masters.activations, autocast.activations - 2 * report.parameters);
}

}  // namespace
}  // namespace ampcheck::testing
