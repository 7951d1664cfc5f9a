// SPDX-License-Identifier: Apache-2.0
// What stands first in a trace's tables and page: what gradients lose between ranks, and no tensor that is zero by a
// symmetry.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>

#include "checks/train/noise.h"
#include "tests/support/run_program.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::testing {
namespace {

using checks::train::Noise;
using checks::train::Phase;
using checks::train::Sizes;
using nlohmann::json;

TEST(Noise, IsBelowTheRoundingOfTheArithmeticThatSaysSo) {
  Noise noise;
  for (const Sizes& s : {Sizes{1.0, 1.0}, Sizes{1e-3, 1e-17}, Sizes{1e-9, 1e-9}, Sizes{1e-9, {}}, Sizes{}})
    noise.add(Phase::backward, s);
  EXPECT_TRUE(noise.is(Phase::backward, {1e-3, 1e-17})) << "zero by a symmetry, with fp16's roundings in its inputs";
  EXPECT_TRUE(noise.is(Phase::backward, {1e-3, 0.0}));
  EXPECT_FALSE(noise.is(Phase::backward, {1e-9, 1e-9})) << "small, and a gradient all the same";
  EXPECT_TRUE(noise.is(Phase::backward, {1e-9, {}})) << "below fp32's roundings";
  EXPECT_FALSE(noise.is(Phase::backward, {1e-6, {}}));
  EXPECT_FALSE(noise.is(Phase::backward, {}));
  EXPECT_FALSE(noise.is(Phase::forward, {1e-9, 1e-17})) << "of another phase";
}

class TraceWorst : public ::testing::Test {
 protected:
  void record(const std::string& arguments) {
    const ProgramResult trained = ampcheck("train --record " + path_ + " " + arguments);
    EXPECT_LE(trained.exit_code, 1) << trained.err;
    train_ = trained.out;
    text_ = ampcheck("trace " + path_ + " -o html:" + folder_.path() + "/page.html").out;
    page_ = read_text(folder_.path() + "/page.html");
    summary_ = json::parse(ampcheck("trace --json " + path_).out);
  }
  /// The lines of the first table.
  std::string first_table() const { return text_.substr(0, text_.find("\n\n", text_.find("\n\n") + 2)); }
  /// A section of the page.
  std::string section(const std::string& heading) const {
    const std::size_t at = page_.find("<h2>" + heading + "</h2>");
    return at == std::string::npos ? "" : page_.substr(at, page_.find("<h2>", at + 4) - at);
  }
  TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/run.trace", train_, text_, page_;
  json summary_;
};

TEST_F(TraceWorst, WhatACompressionHookFlushesStandsFirst) {
  record("--ranks 8 --compress fp16 --dtype fp32 --loss-weight 1e-4 --steps 3");
  EXPECT_TRUE(contains(train_, "where   layer1.weight all_reduce grad: ")) << train_;
  EXPECT_TRUE(contains(train_, "try     --scaler torch")) << train_;
  const std::string table = first_table();
  EXPECT_LT(table.find("layer1.weight all_reduce grad"), table.find("backward")) << table;
  const std::string steps = text_.substr(text_.find("worst tensor"));
  EXPECT_TRUE(contains(steps, "layer1.weight all_reduce grad")) << steps;
  for (const json& s : summary_["steps"]) {
    EXPECT_GT(s["flushed"].get<int>(), 1000);
    EXPECT_EQ(s["worst"], "layer1.weight all_reduce grad");
  }
  EXPECT_TRUE(contains(section("Gradients flushed to zero"), "layer1.weight all_reduce grad, step 1: "));
  record("--ranks 8 --compress bf16 --dtype fp32 --loss-weight 1e-4 --steps 3");
  EXPECT_FALSE(contains(train_, "where ")) << train_;
  for (const json& s : summary_["steps"]) EXPECT_EQ(s["flushed"], 0);
}

/// A number that vanishes on each rank is flushed, however large the sum of them all would be in the format.
TEST_F(TraceWorst, WhatVanishesOnEveryRankIsFlushedThoughTheMeanWouldNot) {
  std::int64_t zero = 0, flushed = 0, nonzero = 0;
  for (const char* seed : {"1", "2", "3"}) {
    record(std::string("--ranks 64 --batch 4 --compress fp16 --dtype fp32 --loss-weight 1e-3 --steps 1 --seed ") +
           seed);
    for (const auto& t : tools::read_trace(path_).tensors)
      if (t.phase == "all_reduce") {
        zero += t.zero - (t.elements - t.nonzero);
        flushed += t.flushed;
        nonzero += t.nonzero;
      }
  }
  EXPECT_GT(flushed, nonzero / 50);
  EXPECT_GE(zero, flushed);
  EXPECT_LT(zero - flushed, flushed / 10) << "of the zeros all but those where numbers cancel";
}

TEST_F(TraceWorst, WhatHasErrorsInLaterPhasesIsInTheTable) {
  record("--weights low --fused --steps 2");
  const json& tensors = summary_["tensors"];
  const auto has = [&](const std::string& phase) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const json& t) { return t["phase"] == phase && !t["carried_error"].is_null(); });
  };
  ASSERT_TRUE(has("optimizer"));
  const std::string more = text_.substr(text_.find("  ... and "));
  EXPECT_EQ(std::stoul(more.substr(10)) + 12, tensors.size())
      << "every tensor is in the table, with its end in the CSV";
}

TEST_F(TraceWorst, ATensorThatIsZeroByASymmetryIsNeverFirst) {
  for (const char* penalty : {"", " --grad-penalty 0.1"}) {
    record(std::string("--model transformer --steps 3") + penalty);
    int noise = 0, flushed = 0;
    for (const json& t : summary_["tensors"]) {
      const bool zero =
          contains(t["name"].get<std::string>(), ".k) ") && contains(t["tensor"].get<std::string>(), "bias");
      noise += t["noise"].get<bool>();
      flushed += t["noise"].get<bool>() && t["flushed"] > 0;
      if (zero && t["dtype"] == "fp16" && t["nonzero"] > 0) {
        EXPECT_TRUE(t["noise"].get<bool>()) << t["name"];
      }
      if (t["noise"].get<bool>()) {
        EXPECT_TRUE(contains(t["name"].get<std::string>(), ".k")) << t["name"];
      }
    }
    EXPECT_GT(noise, 6);
    EXPECT_GT(flushed, 0) << "it is counted, and in JSON and CSV";
    const std::string table = first_table();
    for (const std::string& of :
         {table, section("Gradients flushed to zero"), section("Exponents"), train_.substr(train_.find("\n\n"))})
      for (const char* zero : {".k) forward cast of bias", ".k) backward dbias", ".k) backward cast of dgrad_bias",
                               ".k) backward grad_bias"})
        EXPECT_FALSE(contains(of, zero)) << of.substr(0, 3000);
    EXPECT_TRUE(contains(table, "backward dbias")) << "others are there: " << table;
  }
}

/// Planted beside them: a gradient a million times smaller than the others, and no noise, that fp16 flushes.
TEST_F(TraceWorst, ASmallGradientThatIsFlushedStandsFirstAllTheSame) {
  std::ofstream(folder_.path() + "/net.toml") << "data = 'digits'\n[[layers]]\ntype = 'linear'\noutputs = 16\nname = "
                                                 "'small'\n[[layers]]\ntype = 'sigmoid'\n[[layers]]\ntype = 'linear'\n";
  record(folder_.path() + "/net.toml --scaler none --loss-weight 1e-6 --steps 3");
  EXPECT_TRUE(contains(train_, "% of non-zero elements became zero")) << train_;
  EXPECT_TRUE(contains(first_table().substr(0, 400), "100 %")) << first_table();
  for (const json& t : summary_["tensors"]) EXPECT_FALSE(t["noise"].get<bool>()) << t["name"];
}

}  // namespace
}  // namespace ampcheck::testing
