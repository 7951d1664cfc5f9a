// SPDX-License-Identifier: Apache-2.0
// Several losses and optimizers, and moments one by one, as a user asks for them.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/run_program.h"
#include "tests/support/trained_json.h"

namespace ampcheck::testing {
namespace {

using nlohmann::json;

class SeveralProgram : public ::testing::Test {
 protected:
  std::string net(const std::string& train) {
    const std::string path = folder_.path() + "/two.toml";
    std::ofstream(path) << "data = 'digits'\n"
                           "[[layers]]\ntype = 'linear'\noutputs = 32\nname = 'body'\n"
                           "[[layers]]\ntype = 'tanh'\nname = 'hidden'\n"
                           "[[layers]]\ntype = 'linear'\nname = 'classes'\n"
                           "[[layers]]\ntype = 'linear'\noutputs = 64\nfrom = 'hidden'\nname = 'pixels'\n"
                           "[train]\nsteps = 6\nlr = 0.05\n"
                        << train;
    return path;
  }
  TemporaryFolder folder_;
};

TEST_F(SeveralProgram, TomlAndCommandLineAreOne) {
  const std::string written =
      net("loss = ['cross_entropy@classes', 'mse*0.5@pixels']\noptimizer = ['sgd', 'adam,lr=0.003@classes']\n"
          "backward = 'each'\n");
  const json by_file = trained_json(written);
  const json by_words =
      trained_json(net("") +
                   " --loss cross_entropy@classes --loss 'mse*0.5@pixels' --optimizer sgd --optimizer "
                   "adam,lr=0.003@classes --backward each");
  EXPECT_EQ(by_file, by_words);
  EXPECT_EQ(by_file["losses"], (json{"cross_entropy@classes", "mse*0.5@pixels"}));
  ASSERT_EQ(by_file["optimizers"].size(), 2u);
  EXPECT_EQ(by_file["optimizers"][1]["name"], "adam");
  EXPECT_EQ(by_file["steps"][5]["losses"].size(), 2u);
  EXPECT_EQ(by_file["steps"][5]["optimizers"][1]["lr"], 0.003);
}

TEST_F(SeveralProgram, EachClipsAloneAndTheTraceKnows) {
  const std::string path =
                        net("loss = ['cross_entropy*4@classes', 'mse@pixels']\noptimizer = ['sgd', "
                            "'adam,lr=0.003,clip_norm=0.3@classes', 'sgd,clip_value=0.001@pixels']\nclip_norm = 1\n"
                            "init_scale = 2097152\n"),
                    trace = folder_.path() + "/run.trace";
  const ProgramResult run = ampcheck("train " + path + " --record " + trace);
  for (const char* words : {"  clipped ", "optimizer 2 (adam of classes): ", "their norm ",
                            "optimizer 3 (sgd of pixels): ", "elements cut to the largest value"})
    EXPECT_TRUE(contains(run.out, words)) << words << "\n" << run.out;
  const json trained = trained_json(path);
  EXPECT_EQ(trained["optimizers"][1]["clip_norm"], 0.3);
  EXPECT_EQ(trained["optimizers"][2]["clip_value"], 0.001);
  EXPECT_FALSE(trained["optimizers"][0].contains("clip_norm"));
  const json read = json::parse(ampcheck("trace " + trace + " --json").out);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(read["steps"][i]["optimizers"], trained["steps"][i]["optimizers"]) << i;
    EXPECT_EQ(read["steps"][i]["losses"], trained["steps"][i]["losses"]) << i;
  }
  const ProgramResult shown = ampcheck("trace " + trace);
  EXPECT_TRUE(contains(shown.out, "optimizer 2 (adam of classes): 4 of 6 steps skipped; clipped in ")) << shown.out;
}

TEST_F(SeveralProgram, WhatIsWrongIsSaid) {
  const auto refused = [&](const std::string& arguments, const std::string& words) {
    const ProgramResult run = ampcheck("train --steps 1 " + arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments << run.out;
    EXPECT_TRUE(contains(run.err, words)) << arguments << ": " << run.err;
  };
  refused("--loss hinge", "got 'hinge', want cross_entropy or mse, with *WEIGHT and @LAYER if wanted");
  refused("--loss mse@layer2", "got 'mse@layer2' for mlp, want one of its output, without @");
  refused("--optimizer adam,rate=1@layer2", "got 'rate=1' in 'adam,rate=1@layer2', want lr=X");
  refused("--optimizer adam,clip_norm=x@layer2", "'x'");
  refused("--optimizer adam@", "want the names of layers behind @");
  refused("--optimizer adam@layer7", "optimizer 2, got layers layer7, want some of layer0.weight");
  refused("--moments third=bf16", "third");
  refused("--moments first=int8", "int8");
  refused(net("loss = ['mse@pixel']\n"), "got no layer 'pixel'");
  refused(net("optimizer = [1]\n"), "optimizer");
}

TEST_F(SeveralProgram, SkipsAreOfEachOptimizer) {
  const ProgramResult run = ampcheck("train " + net("") +
                                     " --loss 'cross_entropy*64@classes,mse@pixels' --optimizer adam,lr=0.003@classes "
                                     "--optimizer sgd@pixels --init-scale 2097152 --shadow off --steps 9");
  for (const char* words : {"scale 2^14  skips 8 (7 8 1)", "skipped 8 of 9 steps:", "optimizer 1 (sgd of the rest): 7",
                            "optimizer 2 (adam of classes): 8", "optimizer 3 (sgd of pixels): 1"})
    EXPECT_TRUE(contains(run.out, words)) << words << "\n" << run.out;
}

TEST_F(SeveralProgram, MomentsAreChosenOneByOne) {
  const auto moments = [](const std::string& arguments) {
    return trained_json("--optimizer adam --lr 0.003 --dtype bf16 --steps 12 " + arguments)
        .value("moments", json::array());
  };
  EXPECT_TRUE(moments("").empty());
  const json first = moments("--moments first=bf16"), second = moments("--moments second=bf16");
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0]["name"], "exp_avg");
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0]["name"], "exp_avg_sq");
  EXPECT_EQ(moments("--moments bf16").size(), 2u);
}

}  // namespace
}  // namespace ampcheck::testing
