// SPDX-License-Identifier: Apache-2.0
// Nets of a user's own, from a file of layers.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <fstream>

#include "tests/support/trace_file_test.h"
#include "tests/support/trained_json.h"

namespace ampcheck::testing {
namespace {

using nlohmann::json;

/// Files of a user's own net.
class OwnNet : public TraceFile {
 protected:
  std::string write(const std::string& text) {
    const std::string path = folder_.path() + "/net.toml";
    std::ofstream(path) << text;
    return path;
  }
  static std::string layers(std::initializer_list<const char*> types) {
    std::string out;
    for (const char* type : types) out += std::string("[[layers]]\ntype = ") + type + "\n";
    return out;
  }
};

TEST_F(OwnNet, WithTheLayersOfAModelHasItsBits) {
  const std::string mlp =
      "name = \"mlp\"\n" + layers({"'linear'\noutputs = 64", "'relu'", "'linear'\noutputs = 64", "'relu'", "'linear'"});
  const std::string settings = "[train]\nsteps = 5\nlr = 0.1\nmomentum = 0.9\ndtype = 'bf16'\nclip_norm = 0.5\n";
  const std::string path = write(mlp + settings);
  EXPECT_EQ(trained_json(path), trained_json("--model mlp --steps 5 --dtype bf16 --clip-norm 0.5"));
  EXPECT_EQ(trained_json(path + " --dtype fp16 --loss mse --steps 3"),
            trained_json("--model mlp --steps 3 --dtype fp16 --clip-norm 0.5 --loss mse"))
      << "the command line comes first";
  write("name = 'tutorial'\ndata = 'random'\nwidth = 24\n" +
        layers({"'linear'", "'relu'", "'linear'", "'relu'", "'linear'"}) +
        "[train]\nlr = 1e-3\nbatch = 8\nnesterov = false\n");
  EXPECT_EQ(trained_json(path + " --steps 2"), trained_json("--model tutorial --width 24 --batch 8 --steps 2"));
}

TEST_F(OwnNet, EveryTypeOfLayerTrainsAndGoesOnFromItsCheckpointAlone) {
  const std::string path =
      write("data = 'text'\n" + layers({"'embedding'\noutputs = 16\nname = 'start'", "'rms_norm'",
                                        "'attention'\nheads = 2", "'add'\nof = 'start'", "'layer_norm'\nname = 'n'",
                                        "'linear'\noutputs = 16", "'gelu_tanh'", "'mul'\nof = 'n'", "'linear'"}));
  const std::string at = folder_.path() + "/", common = path + " --dtype bf16 --lr 0.01 ";
  const json whole = trained_json(common + "--steps 4 --save " + at + "whole.st");
  trained_json(common + "--steps 2 --save " + at + "half.st");
  EXPECT_EQ(trained_json(common + "--steps 4 --resume " + at + "half.st --save " + at + "rest.st")["steps"][1],
            whole["steps"][3]);
  EXPECT_TRUE(!read_text(at + "whole.st").empty() && read_text(at + "whole.st") == read_text(at + "rest.st"));
  write("data = 'text'\n" + layers({"'embedding'\noutputs = 16", "'linear'"}));
  EXPECT_EQ(ampcheck("train " + common + "--steps 4 --resume " + at + "half.st").exit_code, 2)
      << "a checkpoint of other layers";
  write(layers({"'conv2d'\noutputs = 2", "'silu'", "'max_pool2d'", "'flatten'", "'linear'"}));
  EXPECT_EQ(trained_json(path + " --steps 2")["steps"].size(), 2u);
}

TEST_F(OwnNet, WhatIsWrongInTheFileIsNamedWithItsLine) {
  const struct {
    std::string text, want;
  } cases[] = {
      {"nam = 'x'\n" + layers({"'linear'"}), ":1:1] net, got unknown key 'nam' (did you mean 'name'?"},
      {layers({"'linaer'"}), ":2:8] type, got 'linaer' (did you mean 'linear'?"},
      {layers({"'relu'\noutputs = 3"}),
       ":3:11] outputs, got it in a layer of type relu, want it in linear, conv2d, embedding, op alone"},
      {layers({"'linear'\noutputs = 0"}), ":3:11] outputs, got 0, want a whole number from 1"},
      {layers({"'linear'\noutputs = '3'"}), ":3:11] outputs, got a string, want an integer"},
      {layers({"'linear'\nname = 'a'", "'relu'\nname = 'a'"}), ":6:8] name, got 'a' again"},
      {layers({"'linear'\nname = 'l.q'\noutputs = 32"}), ":3:8] name, got 'l.q', want one without a dot"},
      {layers({"'linear'\nname = \"a\\u001bb\""}), ":3:8] name, got a control character, want one line of text"},
      {layers({"'conv2d'\noutputs = 2", "'max_pool2d'", "'max_pool2d'", "'max_pool2d'", "'max_pool2d'", "'flatten'",
               "'linear'"}),
       "input, got [64,2,1,1], want images of two rows and columns at least"},
      {layers({"'linear'\nname = 'first'", "'add'\nof = 'frist'"}), ":6:6] of, got 'frist' (did you mean 'first'?"},
      {layers({"'add'\nof = 'nothing'"}),
       ":3:6] of, got a layer of type add where no layer before it has a name, want one before it, with a name"},
      {"data = 'random'\n" + layers({"'linear'"}) + "[train]\nloss = 'cross_entropy'\n",
       "data, got random with loss cross_entropy, want mse"},
      {layers({"'linear'"}) + "[train]\nlr_schedul = 'cosine:3'\n",
       ":4:1] train, got unknown key 'lr_schedul' (did you mean 'lr_schedule'?"},
      {layers({"'linear'"}) + "[train]\ndtype = 'fp4'\n", ":4:9] dtype, got 'fp4'"},
      {layers({"'linear'"}) + "[train]\nsteps = true\n", ":4:9] steps, got a boolean, want a string or a number"},
      {layers({"'linear'\noutputs = 7"}),
       ":1:1] linear 'layer0', output, got [64,7] from the last layer, want [64,10]"},
      {layers({"'conv2d'\noutputs = 2", "'linear'"}),
       ":4:1] linear 'layer1', input, got [64,2,8,8], want [rows, columns]"},
      {"data = 'random'\nwidth = 8\n[[layers]]\n", "] type, got a layer without it, want one"},
      {"", "] layers, got none, want tables [[layers]]"}};
  for (const auto& c : cases) {
    const ProgramResult run = ampcheck("train --steps 1 " + write(c.text));
    EXPECT_EQ(run.exit_code, 2) << c.text;
    EXPECT_TRUE(contains(run.err, c.want)) << c.text << run.err;
  }
  EXPECT_EQ(ampcheck("train --model mlp " + write(layers({"'linear'"}))).exit_code, 2);
  EXPECT_EQ(ampcheck("train --width 8 " + write(layers({"'linear'"}))).exit_code, 2);
  EXPECT_EQ(ampcheck("train no_such_file.toml").exit_code, 2);
}

TEST_F(OwnNet, DtypesThatAutocastChoseByItselfAreNamed) {
  const auto notes = [&](const std::string& arguments) {
    const std::string path = folder_.path() + "/run.trace";
    EXPECT_LE(ampcheck("train --steps 1 --shadow off --record " + path + " " + arguments).exit_code, 1);
    std::vector<std::string> out;
    const json shown = json::parse(ampcheck("trace --json " + path).out);
    for (const json& note : shown["dtypes"])
      out.push_back(note["kind"].get<std::string>() + " " + note["op"].get<std::string>() + " " +
                    note["text"].get<std::string>());
    const std::string text = ampcheck("trace " + path).out;
    for (const json& note : shown["dtypes"]) EXPECT_TRUE(contains(text, note["text"].get<std::string>())) << text;
    return out;
  };
  const std::string island = write(layers({"'linear'\noutputs = 16", "'rms_norm'", "'linear'"}));
  EXPECT_EQ(notes(island),
            std::vector<std::string>{
                "island rms_norm_1 runs in fp32 between ops of 16 bits: 'x' widened, linear_2 reads it in fp16"});
  EXPECT_TRUE(notes(island + " --dtype fp32").empty());
  const std::string residual =
      write(layers({"'linear'\noutputs = 16\nname = 'h'", "'rms_norm'", "'add'\nof = 'h'", "'relu'", "'linear'"}));
  EXPECT_EQ(notes(residual + " --dtype bf16"),
            (std::vector<std::string>{"widened add_1 runs in fp32 and widens 'y', because another input is fp32",
                                      "fp32 relu_1 runs in fp32: nothing casts what it reads back",
                                      "narrowed relu_1 has a result in fp32; linear_2 reads it in bf16"}));
  EXPECT_TRUE(notes("--model mlp").empty()) << "a loss in fp32 is as it should be";
}

}  // namespace
}  // namespace ampcheck::testing
