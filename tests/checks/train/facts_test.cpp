// SPDX-License-Identifier: Apache-2.0
// What `ampcheck facts` and `ampcheck memory` print follows from what was measured.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <sstream>

#include "checks/define/op_def.h"
#include "checks/train/facts.h"
#include "checks/train/memory.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::testing {
namespace {

using namespace checks::train;

const std::string kData = tests::in_source("/tests/data");

/// Part of a claim, what its measurement says, and of each of its commands what must stand in the output for a reader
/// to see it (spaces count as one). Independent of the code that measures: IEEE 754 binary16, the goldens' scale
/// traces, and what was counted by hand.
struct Shown {
  const char* claim;
  std::vector<std::string> measured;
  std::vector<std::vector<std::string>> commands;
};

/// "25 of 25", whatever the number of built-in ops is.
std::string every_op() {
  const std::string count = std::to_string(checks::all_ops().size());
  return count + " of " + count;
}

const std::vector<Shown>& all_shown() {
  static const std::vector<Shown> kShown = {
      {"underflows to zero",
       {"zero begins at 2^-25", "becomes 5.96e-08", "2^-14 is the smallest normal"},
       {{"6e-5 = ", "fp16 0x03ef 6e-05", "0x1p-25 = ", "fp16 0x0000 0 0x0p+0 -0.5 ulp, underflows to zero",
         "fp16 0x0001 6e-08 0x1p-24"}}},
      {"keeps its update",
       {"2^-11 in fp16, 2^-8 in bf16, 2^-24 in fp32"},
       {{"fp16 0x1000 0.0004883 0x1p-11 exact", "fp16 0x3c00 1 0x1p+0 -0.5 ulp",
         "fp32 0x3f801000 1.0004883 0x1.002p+0 exact", "bf16 0x3f80 1 0x1p+0 -0.5 ulp"}}},
      {"a sum, a mean",
       {"4096 ones are 2048", "2 times too large", "10000s is inf", "in fp32: 4096 and 10000"},
       {{"got 2970 (0x69cd) want 3252", "accumulates in fp16", "got inf (0x7c00) want 10000",
         "got 0.0004883 (0x1000) want 0.0002441", "the sum of exp(x - max(x)) alone", "3 of 3 cases failed"}}},
      {"largest logit",
       {"88.7 is the limit", "exp(11.0) = 59874.1 fits and exp(11.1) = 66171.2 is inf",
        "1000 terms exp(4.1) is 60340.3, of exp(4.2) inf", "(0.731, 0.269, 0)"},
       {{"59874.1 = ", "fp16 0x7b4f 59872",
         "66171.2 = 66171.199999999997 = 0x1.027b333333333p+16 in fp64 fp16 0x7c00 inf inf overflows",
         "fp16 0x7b5e 60352",
         "66686.3 = 66686.300000000003 = 0x1.047e4cccccccdp+16 in fp64 fp16 0x7c00 inf inf overflows"},
        {"ROUNDING 'softmax(x=fp16[4,64],range=mean10000,seed=1)'", "forward y 256 exact"}}},
      {"eps = 1e-8",
       {"1e-8 is 0", "2^-13", "from x = 2^-16 down"},
       {{"1e-8 = 1e-08", "-0.168 ulp, underflows to zero", "0x1p-26 = ", "-0.25 ulp, underflows to zero",
         "65536 = 65536 = 0x1p+16 in fp64 fp16 0x7c00 inf inf overflows"}}},
      {"gradcheck with a step",
       {"fp32: error 0.02", "fp16: x + h is x", "bf16: x + h is x"},
       {{"with step 1e-6", "fp32 4e-03 9e-07 2.3 %", "fp16 6e-02 6e-04 x + h == x: derivative reads 0",
         "bf16 1e-01 0.2 % x + h == x: derivative reads 0"}}},
      {"recovers from any number",
       {"after 144", "after 166"},
       {{"scale 2^-149 skips 166", "scale 0 skips 167", "scale 0 skips 199", "skipped 199 of 200 steps"}}},
      {"65536 suits an fp16 loss",
       {"65536 is inf", "32768 works"},
       {{"fp16 0x7c00 inf inf overflows", "fp32 0x47800000 65536 0x1p+16 exact", "fp16 0x7800 32768 0x1p+15 exact"}}},
      {"gradients are computed in fp32",
       {"of the 8970 elements of the MLP's weight gradients, held in fp32, 8970 are"},
       {{"step 1/1"},
        {"linear_1 (layer0) backward dweight fp16", "linear_1 (layer0) backward cast of dweight to fp32 fp32",
         "linear_1 (layer0) backward cast of dbias to fp32 fp32",
         "Casts in a backward pass: 2 fp16 to fp32; of the 4 tensors that it writes: 2 fp16, 2 fp32"}}},
      {"not used in backward",
       {"11 of the 19 tensors"},
       {{"step 1/1"}, {"linear_3 (layer2) backward dx fp16", "of the 19 tensors that it writes: 11 fp16, 8 fp32"}}},
      {"clipped before unscale_",
       {"at 1.5e-05", "From loss 2.354, 20 steps so clipped come to 2.399, clipped at 1 after unscale_ to 0.618"},
       {{"step 20/20 loss 2.3987"}, {"step 20/20 loss 0.6176"}}},
      {"another loss scale",
       {"from 2^5 to 2^18"},
       {{"\"loss\": 2.3544363975524902", "\"loss\": 0.6100784540176392"},
        {"\"loss\": 2.3544363975524902", "\"loss\": 0.6100784540176392"}}},
      {"bf16 is for the CPU",
       {"from loss 2.354 to 0.615 in bf16 and to 0.610 in fp16", every_op()},
       {{"The bf16 run stayed close to the fp64 run: loss 0.6145 against 0.6118"},
        {"The fp16 run stayed close to the fp64 run: loss 0.6101 against 0.6118"}}},
      {"halves the memory",
       {"616.7 kB in fp32 and 619.1 kB", "5579.9 kB and 4106.9 kB"},
       {{"432.1 kB 616.7 kB", "434.6 kB 619.1 kB"}, {"5472.3 kB 5579.9 kB", "3999.3 kB 4106.9 kB"}}},
      {"multiples of eight", {"513 instead of 512"}, {{"of n = 512", "512 yes", "1.00", "513 no", "520 yes"}}},
  };
  return kShown;
}

/// Of the loop around autocast.
const std::vector<Shown>& shown_of_loops() {
  static const std::vector<Shown> kShown = {
      {"must both run under autocast",
       {"all 8970 gradients of the MLP are the same bits"},
       {{"step 1/1"}, {"of the 19 tensors that it writes: 11 fp16, 8 fp32"}}},
      {"without loss scaling", {"20 steps of the MLP", "nothing is learned"}, {{"step 20/20"}, {"step 20/20"}}},
      {"every few hundred", {"of 600 steps"}, {{"step 600/600"}, {"step 600/600"}}},
      {"before accumulation was complete", {"no factor brings it back"}, {{"--rule"}}},
      {"set_to_none", {"8970 gradients"}, {{"8970 parameters"}}},
      {"inference_mode", {"0 under no_grad and 0 under inference_mode"}, {{"8970 parameters"}}},
      {"4 times as fast", {"A GPU is not measured here"}, {{"512 yes"}}},
  };
  return kShown;
}

const Shown* shown_of(const Fact& fact) {
  for (const auto* const all : {&all_shown(), &shown_of_loops()})
    for (const Shown& shown : *all)
      if (contains(fact.claim, shown.claim)) return &shown;
  return nullptr;
}

std::string single_spaced(const std::string& text) {
  std::istringstream words(text);
  std::string out;
  for (std::string word; words >> word;) out += (out.empty() ? "" : " ") + word;
  return out;
}

std::vector<std::string> commands_of(const Fact& fact) {
  std::vector<std::string> out;
  for (std::size_t start = 0; start < fact.command.size();) {
    const std::size_t end = std::min(fact.command.find("; ", start), fact.command.size());
    out.push_back(fact.command.substr(start, end - start));
    start = end + 2;
  }
  return out;
}

TEST(Facts, EachClaimIsMeasured) {
  const std::vector<Fact> facts = measured_facts(kData);
  EXPECT_EQ(facts.size(), all_shown().size() + shown_of_loops().size());
  for (const Fact& f : facts) {
    const Shown* shown = shown_of(f);
    ASSERT_NE(shown, nullptr) << f.claim;
    const bool is_time =
        contains(f.claim, "multiples of eight") || contains(f.claim, "saves time");  // the machine's own
    EXPECT_TRUE(is_time || !f.holds) << f.claim << ": " << f.measured;
    for (const std::string& words : shown->measured)
      EXPECT_TRUE(contains(f.measured, words)) << f.claim << ": '" << words << "' is not in\n" << f.measured;
  }
}

TEST(Facts, TheCommandsShowWhatIsSaid) {
  for (const Fact& f : measured_facts(kData)) {
    const Shown* shown = shown_of(f);
    ASSERT_NE(shown, nullptr) << f.claim;
    const std::vector<std::string> commands = commands_of(f);
    ASSERT_EQ(commands.size(), shown->commands.size()) << f.command;
    const TemporaryFolder folder;
    for (std::size_t i = 0; i < commands.size(); ++i) {
      EXPECT_TRUE(commands[i].starts_with("ampcheck ")) << f.claim;
      const ProgramResult run =
          shell("PATH=\"${AMPCHECK%/*}:$PATH\"\ncd '" + folder.path() + "' || exit 9\n" + commands[i]);
      EXPECT_LE(run.exit_code, 1) << commands[i] << run.err;  // 1: the fault that is shown is found
      const std::string out = single_spaced(run.out);
      for (const std::string& words : shown->commands[i])
        EXPECT_TRUE(contains(out, words)) << commands[i] << ": '" << words << "' is not in\n" << run.out;
    }
  }
}

TEST(Facts, AreJson) {
  const nlohmann::json facts = nlohmann::json::parse(ampcheck("facts --json").out);
  EXPECT_EQ(facts["schema"], "ampcheck.facts/1");
  EXPECT_EQ(facts["facts"].size(), all_shown().size() + shown_of_loops().size());
  const nlohmann::json times = nlohmann::json::parse(ampcheck("facts --times --json").out);
  ASSERT_EQ(times["times"].size(), 17u);
  EXPECT_EQ(times["times"][0]["n"], 504);
  for (const nlohmann::json& time : times["times"]) EXPECT_GT(time["fp16_seconds"].get<double>(), 0) << time;
}

/// The account, tensor by tensor, against what an allocator gave out and had not got back.
TEST(Memory, TheAccountIsWhatWasAllocated) {
  for (const char* model : {"mlp", "conv", "transformer"}) {
    NetOptions options;
    options.model = model;
    options.data = kData;
    for (const char* optimizer : {"sgd", "adam"})
      for (const MemoryUse& use :
           memory_of(make_net(options), {.optimizer = {.name = optimizer}}, Dtype::bf16, 1).strategies) {
        EXPECT_EQ(use.live_after_forward, use.weights + use.masters + use.moments + use.activations)
            << model << " " << use.strategy;
        EXPECT_EQ(use.live_after_update, use.weights + use.masters + use.gradients + use.moments)
            << model << " " << use.strategy;
        EXPECT_GE(use.peak, use.live_after_forward) << model << " " << use.strategy;
        EXPECT_GE(use.peak, use.live_after_update) << model << " " << use.strategy;
      }
  }
}

/// 30 GB of gradients in fp32: 15 GB in 16 bits and a fifth of them in fp32, 6 GB, are 21 GB. Of a net that runs, all
/// at once is what was allocated.
TEST(Memory, AChunkedUpdateTakesAShare) {
  const ChunkedUpdate fifth = chunked_update(7'500'000'000, 0.2, Dtype::fp16);
  EXPECT_EQ(fifth.in_fp32, 30'000'000'000);
  EXPECT_EQ(fifth.in_low, 15'000'000'000);
  EXPECT_EQ(fifth.widened, 6'000'000'000);
  EXPECT_EQ(fifth.together(), 21'000'000'000);
  EXPECT_EQ(fifth.updates, 5);
  EXPECT_EQ(chunked_update(10, 0.3, Dtype::bf16).chunk, 3);
  EXPECT_EQ(chunked_update(10, 0.25, Dtype::bf16).chunk, 3) << "2.5, rounded up";
  EXPECT_EQ(chunked_update(10, 1e-9, Dtype::bf16).chunk, 1);
  EXPECT_EQ(chunked_update(10, 1e-9, Dtype::bf16).updates, 10);
  NetOptions options;
  options.data = kData;
  const MemoryReport report = memory_of(make_net(options), {}, Dtype::fp16, 1);
  EXPECT_EQ(chunked_update(report.parameters, 1, Dtype::fp16).together(), report.strategies[3].gradients);
  EXPECT_NE(chunked_update(report.parameters, 0.5, Dtype::fp16).together(), report.strategies[3].gradients);
}

TEST(Memory, ParametersAndShareAreOptions) {
  const ProgramResult run = ampcheck("memory --parameters 7.5e9 --share 0.2");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const char* words : {"30.0 GB", "15.0 GB", "6.0 GB", "21.0 GB", "5 updates a step"})
    EXPECT_TRUE(contains(run.out, words)) << words << run.out;
  for (const char* wrong : {"memory", "memory mlp --parameters 5", "memory --parameters 1.5", "memory --parameters 0",
                            "memory mlp --share 0", "memory mlp --share 1.5"})
    EXPECT_EQ(ampcheck(wrong).exit_code, 2) << wrong;
}

TEST(Memory, BytesFollowFromTheParameters) {
  NetOptions options;
  options.data = kData;
  const OptimizerChoice adam{.name = "adam"};
  const MemoryReport report = memory_of(make_net(options), {.optimizer = adam}, Dtype::fp16, 1);
  ASSERT_EQ(report.parameters, 2 * (64 * 64 + 64) + 64 * 10 + 10);
  ASSERT_EQ(report.strategies.size(), 7u);
  const MemoryUse &fp32 = report.strategies[0], &autocast = report.strategies[1], &kept = report.strategies[2],
                  &upcast = report.strategies[3], &masters = report.strategies[4], &moments = report.strategies[5],
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
  EXPECT_EQ(autocast.activations,
            4 * rows * 64 + 2 * (rows * 64 + activations + report.parameters) + 4 * rows * 10 + losses + targets);
  EXPECT_EQ(masters.activations, autocast.activations - 2 * report.parameters);
}

}  // namespace
}  // namespace ampcheck::testing
