// SPDX-License-Identifier: Apache-2.0
// `ampcheck autocast lists` and `ampcheck audit autocast` as a user calls them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::testing {
namespace {

using nlohmann::json;

class AutocastCommand : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    const std::string path = folder_.path() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }

 private:
  TemporaryFolder folder_;
};

json result(const std::string& arguments, int exit_code) {
  const ProgramResult got = ampcheck(arguments + " --json");
  EXPECT_EQ(got.exit_code, exit_code) << got.out.substr(0, 2000) << got.err;
  return json::accept(got.out) ? json::parse(got.out) : json();
}

std::string outcome(const json& audit, const std::string& code) {
  for (const json& check : audit["checks"])
    if (check["code"] == code) return check["outcome"];
  return "";
}

void expect_refused(const std::string& arguments, const std::string& part) {
  const ProgramResult got = ampcheck(arguments);
  EXPECT_EQ(got.exit_code, 2) << got.out << got.err;
  EXPECT_TRUE(contains(got.err, part)) << got.err;
}

TEST_F(AutocastCommand, ListsAreThoseOfTheDispatcher) {
  const json lists = result("autocast lists", 0);
  std::set<std::string> ops;
  for (const json& of : lists["classes"])
    for (const json& op : of["ops"]) ops.insert(op);
  EXPECT_EQ(ops.size(), 121u);
  EXPECT_EQ(lists["default_dtype"], "fp16");
  EXPECT_EQ(lists["releases"].back(), "2.15.0");
  const ProgramResult text = ampcheck("autocast lists '*softmax*' --torch 2.6 --device cpu");
  EXPECT_EQ(text.exit_code, 4) << "the CPU lists no softmax";
  EXPECT_TRUE(contains(text.err, "no op of torch 2.6.0, cpu has such a name: it is unlisted")) << text.err;
  EXPECT_TRUE(contains(ampcheck("autocast lists rms_norm").out, "fp32 (1): every floating argument"));
  EXPECT_EQ(ampcheck("autocast lists rms_norm --torch 2.10").exit_code, 4);
}

TEST_F(AutocastCommand, WrongUseIsSaid) {
  expect_refused("autocast list", "(did you mean 'lists'?)");
  expect_refused("autocast lists --device cdua", "(did you mean 'cuda'?), want cuda");
  expect_refused("autocast lists --torch 2.7", "want 2.1.2, 2.4.1");
  expect_refused("autocast lists --torch 2.6 --device xpu", "want 2.15.0");
  expect_refused("audit autocast mpl", "(did you mean 'mlp'?)");
  expect_refused("audit autocast transfomer", "(did you mean 'transformer'?)");
  expect_refused("audit autocast mlp --dtype fp32", "want fp16 or bf16");
  expect_refused("audit autocast mlp --dtype fp16 --dtype bf16", "want fp16 or bf16");
  expect_refused("audit autocast a b c", "got 'c' too");
  expect_refused("audit autocast 2.15/cdua", "(did you mean 'cuda'?)");
  expect_refused("audit autocast --torch 2.6", "follows torch 2.15.0");
  expect_refused("audit autocast " + file("a.txt", "softmax fp23\n"),
                 "a.txt:1] class, got 'fp23' (did you mean 'fp32'?)");
  expect_refused("audit autocast " + file("b.txt", "softmax fp32\nlinear low\nsoftmax low\n"),
                 "b.txt:3] class of softmax, got lower_precision_fp after fp32");
  expect_refused("audit autocast " + file("c.txt", "# nothing\n\n"), "ops, got none");
  expect_refused("audit autocast " + file("d.txt", "soft!max fp32\n"), "d.txt:1] op, got 'soft!max'");
  expect_refused("audit autocast " + file("e.txt", "softmax fp32 low\n"), "got 'low' behind the class");
  expect_refused("audit autocast " + file("f.toml", "fp32 = \"softmax\"\n"), "f.toml:1:8] fp32, got a string");
  expect_refused("audit autocast " + file("g.toml", "fp32 = [1]\n"), "op, got an integer");
  expect_refused("audit autocast " + file("h.txt", "softmax fp32\n") + " " + file("i.txt", "softmax\n"),
                 "got an op without a class (softmax)");
  expect_refused("audit autocast " + file("j.trace", "{\"no\": 1}\n"), "j.trace");
}

/// A program that is no autocast is said to be none.
TEST_F(AutocastCommand, AProgramThatDoesNotAnswerIsNamed) {
  expect_refused("audit autocast 'cat /dev/null'", "'cat /dev/null' ended before it answered");
  expect_refused("audit autocast 'echo no JSON; sleep 1'", "wants to answer with a line of JSON, got 'no JSON'");
  expect_refused("audit autocast 'echo [1]; cat'", "wants to answer with {\"has\": [...]} to {\"hello\": 1}");
  const std::string has = "echo \"{\\\"has\\\": []}\"; ";
  expect_refused("audit autocast '" + has + "echo \"{}\"; sleep 1'", "(ampcheck explain autocast)");
  expect_refused("audit autocast '" + has + "echo \"{\\\"replies\\\": []}\"; sleep 1'", "a reply for each of");
  expect_refused("audit autocast '" + has + "echo \"{\\\"replies\\\": [{\\\"autocast\\\": \\\"fp8\\\"}]}\"; sleep 1'",
                 "a dtype (fp32, fp16, bf16, fp64, i64), got fp8");
}

TEST_F(AutocastCommand, AUsersListIsHeldAgainstTorchs) {
  const std::string own = file("ops.csv",
                               "op,class\naten::linear,lower_precision_fp\nsoftmax,fp16\nexp,float32\n"
                               "torch.sum,fp32\nF.gelu,fp32\n\n# a comment\nmatmul,none\n");
  const json found = result("audit autocast " + own, 1);
  std::set<std::string> rows;
  for (const json& d : found["differences"])
    rows.insert(d["op"].get<std::string>() + " " + d["relation"].get<std::string>());
  EXPECT_EQ(rows, (std::set<std::string>{"softmax narrower", "sum alike", "gelu wider", "matmul wider"}));
  EXPECT_EQ(found["ops"], 6);
  const std::string right =
      file("right.toml", "lower_precision_fp = [\"linear\", \"conv2d\"]\nfp32 = [\"exp\", \"sum\"]\n");
  EXPECT_EQ(result("audit autocast " + right, 0)["passed"], true);
  EXPECT_EQ(result("audit autocast " + right + " --device cpu", 1)["passed"], false);
  const ProgramResult typo = ampcheck("audit autocast " + file("typo.txt", "sofmax fp32\n"));
  EXPECT_EQ(typo.exit_code, 1);
  EXPECT_TRUE(contains(typo.out, "(did you mean 'softmax'?)")) << typo.out;
  const ProgramResult asked = ampcheck("audit autocast " + file("plain.txt", "rms_norm\nrelu\n") + " --torch 2.10");
  EXPECT_EQ(asked.exit_code, 0) << asked.out;
  EXPECT_TRUE(contains(asked.out, "rms_norm  unlisted")) << asked.out;
  const ProgramResult banned = ampcheck("audit autocast " + file("bce.txt", "binary_cross_entropy\n"));
  EXPECT_EQ(banned.exit_code, 1);
  EXPECT_TRUE(contains(banned.out, "is banned in a region: call binary_cross_entropy_with_logits")) << banned.out;
  EXPECT_EQ(ampcheck("audit autocast " + file("bce2.txt", "binary_cross_entropy\n") + " --device cpu").exit_code, 0);
}

TEST_F(AutocastCommand, TorchsListsAreHeldAgainstOneAnother) {
  const json releases = result("audit autocast 2.10/cuda 2.12/cuda", 1);
  ASSERT_EQ(releases["differences"].size(), 1u) << releases;
  EXPECT_EQ(releases["differences"][0]["op"], "rms_norm");
  EXPECT_EQ(releases["differences"][0]["relation"], "narrower");
  EXPECT_EQ(result("audit autocast 2.6/cuda 2.10/cuda", 0)["differences"].size(), 0u);
  EXPECT_EQ(result("audit autocast cuda", 0)["passed"], true) << "the newest is what it is";
  const ProgramResult devices = ampcheck("audit autocast cuda cpu");
  EXPECT_EQ(devices.exit_code, 1);
  EXPECT_TRUE(contains(devices.out, "binary_cross_entropy ")) << devices.out;
}

TEST_F(AutocastCommand, ItsOwnRulesPassAndANetIsHeldAgainstThem) {
  const json rules = result("audit autocast", 0);
  EXPECT_EQ(outcome(rules, "A9"), "passed");
  EXPECT_EQ(outcome(rules, "A3"), "not asked");
  const json net = result("audit autocast mlp --dtype bf16 --batches 1", 0);
  for (const char* const code : {"A1", "A2", "A3", "A5", "A6", "A7", "A8", "A9", "A11", "A13"})
    EXPECT_EQ(outcome(net, code), "passed") << code;
  for (const char* const code : {"A12", "A14"}) EXPECT_EQ(outcome(net, code), "passed") << "its ops never changed";
  EXPECT_TRUE(net["advice"].is_null());
  for (const json& op : net["ops"]) EXPECT_EQ(op["by_hand"], "same") << op;
  const ProgramResult fp16 = ampcheck("audit autocast transformer --batches 1");
  EXPECT_EQ(fp16.exit_code, 0) << fp16.out;
  EXPECT_TRUE(contains(fp16.out, "No change of the policy is needed.")) << fp16.out;
  EXPECT_TRUE(contains(fp16.out, "rms_norm unlisted in torch 2.1.2 to 2.10.0")) << fp16.out;
}

/// A net whose unlisted op leaves fp16: the smallest change is that op. `first`: more of its first layer.
std::string eighth_power(const std::string& first = "") {
  return "data = \"random\"\nwidth = 32\n[[layers]]\ntype = \"linear\"\noutputs = 48\nname = \"a\"\n" + first +
         "[[layers]]\ntype = \"mul\"\nof = \"a\"\nname = \"b\"\n[[layers]]\ntype = \"mul\"\nof = \"b\"\nname = \"c\"\n"
         "[[layers]]\ntype = \"mul\"\nof = \"c\"\nname = \"d\"\n[[layers]]\ntype = \"mul\"\nof = \"d\"\n[[layers]]\n"
         "type = \"layer_norm\"\n[[layers]]\ntype = \"linear\"\n";
}

TEST_F(AutocastCommand, ANetThatOverflowsGetsAdviceThatWasTried) {
  const std::string net = file("net.toml", eighth_power());
  const json audit = result("audit autocast " + net + " --dtype fp16", 1);
  EXPECT_EQ(audit["code"], "A3");
  ASSERT_FALSE(audit["advice"].is_null()) << audit;
  EXPECT_EQ(audit["advice"]["ops"], json({"mul"}));
  EXPECT_EQ(audit["advice"]["error_before"], "nan");
  EXPECT_LT(audit["advice"]["error_after"], 0.01);
  EXPECT_EQ(result("audit autocast " + net + " --dtype bf16", 0)["passed"], true) << "bf16 has the range";
}

TEST_F(AutocastCommand, ARecordedRunsFaultsAreFound) {
  const auto audit = [&](const std::string& arguments, int exit_code) {
    EXPECT_LE(ampcheck("train --steps 2 --record " + path("t") + " " + arguments).exit_code, 1);
    return result("audit autocast " + path("t"), exit_code);
  };
  EXPECT_EQ(audit("--dtype fp16 --scaler none --loss-weight 1e-6", 1)["code"], "A8") << "gradients become zero";
  EXPECT_EQ(audit("--dtype fp16", 0)["code"], "");
  EXPECT_EQ(audit("--dtype fp16 " + file("wide.toml", eighth_power()), 1)["code"], "A3") << "values leave fp16";
  const json off = audit("--dtype bf16 " + file("off.toml", eighth_power("autocast = \"off\"\n")), 0);
  EXPECT_EQ(outcome(off, "A9"), "WEAK") << "a listed op for which nothing was cast";
}

/// A trace names its net: the change is tried there, with errors and bytes before and after.
TEST_F(AutocastCommand, ARecordedRunsNetIsTakenUpAgain) {
  const std::string net = file("wide.toml", eighth_power()), run = path("wide.trace");
  ASSERT_LE(ampcheck("train --steps 2 --batch 8 --record " + run + " " + net).exit_code, 1);
  const json audit = result("audit autocast " + run, 1);
  EXPECT_EQ(audit["run"]["net"], net);
  EXPECT_EQ(audit["run"]["tried"], true) << audit["run"];
  EXPECT_EQ(audit["run"]["recommended"][0]["op"], "mul");
  EXPECT_EQ(audit["advice"]["ops"], json({"mul"}));
  EXPECT_EQ(audit["advice"]["error_before"], "nan");
  EXPECT_LT(audit["advice"]["error_after"], 0.01);
  EXPECT_GT(audit["advice"]["bytes_after"], audit["advice"]["bytes_before"]);
  for (const char* const code : {"A9", "A10", "A13"}) EXPECT_EQ(outcome(audit, code), "passed") << code;
  const json larger = result("audit autocast " + net + " --batches 2", 1);
  EXPECT_LT(audit["bytes"], larger["bytes"]) << "the run's batch is smaller than the net's own";

  std::ofstream(net) << eighth_power("[[layers]]\ntype = \"tanh\"\n").replace(0, 0, "name = \"net\"\n");
  const json longer = result("audit autocast " + run, 1);
  EXPECT_EQ(longer["run"]["tried"], true) << "the net has all calls of the run and one more";
  std::ofstream(net) << "data = \"random\"\nwidth = 32\n[[layers]]\ntype = \"linear\"\n";
  const json changed = result("audit autocast " + run, 1);
  EXPECT_EQ(changed["run"]["tried"], false);
  EXPECT_TRUE(contains(changed["run"]["why_not"], "it is another net, or has changed since")) << changed["run"];
  expect_refused("audit autocast " + run + " " + net, "has no mul_1, which the run has");
  std::filesystem::remove(net);
  EXPECT_TRUE(contains(ampcheck("audit autocast " + run).out, "wide.toml' is not here")) << "nothing to try it on";
}

/// Of weights that grow: the first ones show nothing wrong, and what went wrong later is tried all the same.
TEST_F(AutocastCommand, WhatWentWrongLaterInARunIsTriedToo) {
  const std::string net = file("grows.toml",
                               "data = \"random\"\nwidth = 16\n[[layers]]\ntype = \"linear\"\nname = \"a\"\n"
                               "[[layers]]\ntype = \"mul\"\nof = \"a\"\n[[layers]]\ntype = \"layer_norm\"\n"
                               "[[layers]]\ntype = \"linear\"\n"),
                    run = path("grows.trace");
  ASSERT_LE(ampcheck("train --dtype fp16 --lr 30000 --optimizer adam --steps 4 --every 1 --record " + run + " " + net)
                .exit_code,
            1);
  const json audit = result("audit autocast " + run, 1);
  ASSERT_FALSE(audit["advice"].is_null()) << audit["run"];
  EXPECT_GT(audit["run"]["recommended"][0]["step"], 0) << audit["run"];
  EXPECT_TRUE(contains(ampcheck("audit autocast " + run).out, "With these weights nothing goes wrong yet."));
}

/// As ampcheck.torch.record() writes it: statistics of modules, no exact values and no net that is at hand.
std::string foreign_trace(std::int64_t infinite) {
  const auto line = [](int seq, const char* op, std::int64_t inf) {
    return "{\"step\": 3, \"seq\": " + std::to_string(seq) + ", \"phase\": \"forward\", \"cast\": false, \"op\": \"" +
           op +
           "\", \"layer\": \"\", \"tensor\": \"y\", \"dtype\": \"fp16\", \"from\": \"\", \"source\": -1, \"scale\": "
           "1.0, "
           "\"role\": \"none\", \"elements\": 8, \"zero\": 0, \"subnormal\": 0, \"inf\": " +
           std::to_string(inf) + ", \"nan\": 0, \"amax\": 60000.0, \"amin\": 32768.0, \"exponents\": [15, [" +
           std::to_string(8 - inf) +
           "]], \"nonzero\": 0, \"flushed\": 0, \"overflowed\": 0, \"intended\": 0, \"stagnant\": 0, "
           "\"subnormal_loss\": 0, \"saturated\": 0, \"bias\": null, \"bias_z\": null, \"ulps\": [], \"local_error\": "
           "null, \"carried_error\": null}\n";
  };
  return "{\"schema\": \"ampcheck.trace/1\", \"model\": \"Net\", \"dtype\": \"fp16\", \"autocast\": \"cuda\", "
         "\"autocast_tables\": \"torch 2.15.0\", \"scaler\": \"torch\", \"seed\": 0, \"steps\": 0, \"local\": false, "
         "\"carried\": false}\n" +
         line(0, "linear_1", 0) + line(1, "mul_1", infinite) + line(2, "silu_1", infinite) +
         "{\"step\": 3, \"loss\": 1.0, \"fp64_loss\": null, \"spread\": null, \"scale\": 65536.0, \"scale_after\": "
         "65536.0, \"tracker\": 0, \"found_inf\": false, \"stepped\": true, \"stagnant_share\": 0.0}\n";
}

TEST_F(AutocastCommand, ARunOfAnotherProgramGetsARecommendationThatSaysItWasNotTried) {
  const std::string run = file("torch.trace", foreign_trace(2));
  const json audit = result("audit autocast " + run, 1);
  EXPECT_EQ(audit["code"], "A3");
  EXPECT_EQ(audit["run"]["tried"], false);
  ASSERT_EQ(audit["run"]["recommended"].size(), 1u) << "silu was given infinities: " << audit["run"];
  EXPECT_EQ(audit["run"]["recommended"][0]["op"], "mul");
  EXPECT_EQ(audit["run"]["recommended"][0]["step"], 3);
  const ProgramResult text = ampcheck("audit autocast " + run);
  EXPECT_TRUE(contains(text.out, "first went wrong in step 4; its results take 16 bytes and would take 32"))
      << text.out;
  EXPECT_TRUE(contains(text.out, "torch.trace NET.toml")) << text.out;
  const json right = result("audit autocast " + file("right.trace", foreign_trace(0)), 0);
  EXPECT_EQ(right["run"]["recommended"].size(), 0u);
  expect_refused("audit autocast " + run + " mlp", "has no mul_1, which the run has");
  expect_refused("audit autocast " + run + " mpl", "got 'mpl'");
}

TEST_F(AutocastCommand, ARecordedRunIsReadBack) {
  const std::string run = path("run.trace");
  ASSERT_EQ(ampcheck("train --model conv --dtype bf16 --steps 2 --record " + run).exit_code, 0);
  const json audit = result("audit autocast " + run, 0);
  EXPECT_EQ(audit["kind"], "trace");
  for (const char* const code : {"A1", "A2", "A3", "A8"}) EXPECT_NE(outcome(audit, code), "FAILED") << code;
  EXPECT_EQ(outcome(audit, "A2"), "passed");
  const json other = result("audit autocast " + run + " --device cpu", 1);
  EXPECT_EQ(other["code"], "A2") << "the run followed CUDA's list";
  ASSERT_LE(ampcheck("train --dtype fp32 --steps 1 --record " + path("wide.trace")).exit_code, 1);
  expect_refused("audit autocast " + path("wide.trace"), "got a run in fp32");
}

/// A layer with cast_inputs has the dtype that the net asked for: autocast did not choose it.
TEST_F(AutocastCommand, ALayerWithCastInputsIsNotAutocastsChoice) {
  const std::string
      net = file("own.toml",
                 "data = \"digits\"\n[[layers]]\ntype = \"linear\"\noutputs = 32\n[[layers]]\ntype = \"op\"\nname = "
                 "\"mine\"\nlibrary = \"" +
                     tests::in_build("/custom_ops/my_rms_norm.so") +
                     "\"\ncast_inputs = \"fp32\"\n[[layers]]\ntype = \"linear\"\n"),
      run = path("own.trace");
  ASSERT_LE(ampcheck("train --dtype bf16 --steps 1 --record " + run + " " + net).exit_code, 1);
  const std::string shown = ampcheck("trace " + run).out;
  const std::size_t asked = shown.find("\nDtypes that the net asked for (cast_inputs, or a region that is off):\n");
  ASSERT_NE(asked, std::string::npos) << shown;
  EXPECT_GT(shown.find("my_rms_norm_1", asked), asked) << shown;
  const std::size_t chosen = shown.find("\nDtypes that autocast chose by itself:\n");
  if (chosen != std::string::npos) {
    EXPECT_EQ(shown.substr(chosen, asked - chosen).find("my_rms_norm_1"), std::string::npos) << shown;
  }
  const json audit = result("audit autocast " + net + " --dtype bf16 --batches 1", 0);
  EXPECT_EQ(outcome(audit, "A11"), "passed");
}

}  // namespace
}  // namespace ampcheck::testing
