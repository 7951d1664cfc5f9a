// SPDX-License-Identifier: Apache-2.0
// Two builds of one op: the nearer one, the faster one and the wrong one are told apart, and equal ones are equal.
#include "checks/run/compare_builds.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "checks/data/regimes.h"
#include "checks/doors/launcher_toml.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::contains;

const std::string kFolder = tests::in_build("/custom_ops/");

std::string text_with(const std::string& from, const std::string& to) {
  std::ifstream in(kFolder + "rms_norm_launchers.toml");
  std::stringstream read;
  read << in.rdbuf();
  std::string text = read.str();
  for (std::size_t at = from.empty() ? std::string::npos : text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

ComparedBuilds compared(const std::string& forward_of_b) {
  const TomlOp a = op_of_toml(text_with("", ""), kFolder + "a.toml"),
               b = op_of_toml(text_with("\"launch_rms_norm\"", "\"" + forward_of_b + "\""), kFolder + "b.toml");
  RunOptions options;
  options.relations = false;
  return compare_builds(a.op, b.op, cases_of(a.op.signature, Dtype::fp32, CaseSet::quick, 1), options);
}

const ComparedTensor& tensor(const ComparedBuilds& builds, const std::string& name) {
  for (const ComparedTensor& t : builds.tensors)
    if (t.name == name) return t;
  throw Error("[test] no tensor " + name);
}

TEST(CompareBuilds, EqualOnesAreEqual) {
  const ComparedBuilds same = compared("launch_rms_norm");
  EXPECT_EQ(same.tensors.size(), 4u);  // y, inv_rms, dx, dweight
  for (const ComparedTensor& t : same.tensors) {
    EXPECT_GT(t.elements, 100) << t.name;
    EXPECT_EQ(t.differ, 0) << t.name;
    EXPECT_EQ(t.mean[0], t.mean[1]) << t.name;
  }
  EXPECT_EQ(same.nearer(), -1);
}

TEST(CompareBuilds, TheNearerOneIsFound) {
  const ComparedBuilds exact = compared("launch_rms_norm_exact");
  const ComparedTensor& y = tensor(exact, "y");
  EXPECT_LT(y.mean[1], y.mean[0]);
  EXPECT_GT(y.differ, 0);
  EXPECT_TRUE(contains(y.first, "launched_rms_norm(")) << y.first;
  for (const ComparedTensor& t : exact.tensors)
    for (const double largest : t.largest) EXPECT_LE(largest, 1 + 1e-9) << t.name << ": both are right";
}

TEST(CompareBuilds, TheFasterOneIsFound) {
  const ComparedBuilds slow = compared("launch_rms_norm_slow");
  EXPECT_EQ(slow.forward.winner(), 0) << slow.forward.faster[0] << " to " << slow.forward.faster[1];
  EXPECT_GT(slow.forward.seconds[1], 2 * slow.forward.seconds[0]);
}

TEST(CompareBuilds, NeitherOfTwoCopiesIsFaster) {
  for (int round = 0; round < 3; ++round) {
    const ComparedBuilds same = compared("launch_rms_norm");
    EXPECT_EQ(same.forward.winner(), -1) << same.forward.faster[0] << " to " << same.forward.faster[1];
    EXPECT_EQ(same.backward.winner(), -1) << same.backward.faster[0] << " to " << same.backward.faster[1];
    EXPECT_GT(same.forward.seconds[0], 0);
  }
}

TEST(CompareBuilds, WhatAddsToItsOutputsIsTimedFromTheSameState) {
  OpDef op = op_of_toml(
                 "library = './rms_norm_launchers.so'\nname = 'cube'\nformula = 'y = x * x * x'\ndims = { N = [35, 64, "
                 "2] }\ninputs = { x = 'N' }\noutputs = { y = 'N' }\n"
                 "contract = { storage = ['fp32'] }\naccumulates = ['dx']\n"
                 "[forward]\nsymbol = 'cube'\narguments = ['const float* x', 'float* y', 'int64_t N']\n"
                 "[backward]\nsymbol = 'cube_backward'\narguments = ['const float* x', 'const float* dy', 'float* dx', "
                 "'int64_t N']\n",
                 kFolder + "x.toml")
                 .op;
  op.kernel.backward = [](const kernels::KernelCall& call) {
    const auto at = [&](const char* name) { return static_cast<float*>(call.at(name).data); };
    for (std::int64_t i = 0; i < call.at("x").shape.count(); ++i)
      at("dx")[i] += 3 * (at("x")[i] * at("x")[i]) * at("dy")[i];
  };
  RunOptions options;
  options.relations = false;
  const ComparedBuilds same = compare_builds(op, op, cases_of(op.signature, Dtype::fp32, CaseSet::quick, 1), options);
  EXPECT_GT(same.backward.seconds[0], 0);
  EXPECT_FALSE(same.tensors.empty());
  for (const ComparedTensor& t : same.tensors) EXPECT_LE(t.largest[0], 1 + 1e-9) << t.name << ": added to once";
}

TEST(CompareBuilds, ChanceDoesNotWin) {
  EXPECT_EQ((ComparedTime{{1, 2}, {60, 40}}).winner(), -1);
  EXPECT_EQ((ComparedTime{{2, 1}, {20, 80}}).winner(), 1);
  EXPECT_EQ((ComparedTime{{1.03, 1}, {20, 80}}).winner(), -1) << "the place of code in memory does as much";
  EXPECT_EQ((ComparedTime{{1, 2}, {20, 80}}).winner(), -1) << "faster in the small cases, slower in all";
  EXPECT_EQ((ComparedTime{{1, 1}, {3, 0}}).winner(), -1) << "three cases prove nothing";
}

TEST(CompareBuilds, TheProgramSaysWhichIsWrong) {
  const testing::TemporaryFolder folder;
  const auto write = [&](const std::string& name, std::string text) {
    text.replace(text.find("./rms_norm_launchers.so"), 23, kFolder + "rms_norm_launchers.so");
    std::ofstream(folder.path() + "/" + name) << text;
  };
  write("a.toml", text_with("", ""));
  write("b.toml", text_with("rms_norm_backward_", "rms_norm_forgets_norm_"));
  write("other.toml", text_with("eps", "epsilon"));
  const std::string in = "cd " + folder.path() + " && $AMPCHECK compare ",
                    limits = " --regimes quick --shapes first --dtype fp32";
  const auto wrong = testing::shell(in + "a.toml b.toml" + limits);
  EXPECT_EQ(wrong.exit_code, 1) << wrong.err;
  for (const char* words : {"A a.toml", ": right", "B b.toml: 0 of", "BUG AC101 in", "A is nearer to the reference"})
    EXPECT_TRUE(contains(wrong.out, words)) << words << "\n" << wrong.out;
  write("named.toml", text_with("\"launched_rms_norm\"", "\"other_rms_norm\""));
  write("named_other.toml", [&] {
    std::string text = text_with("\"launched_rms_norm\"", "\"other_rms_norm\"");
    for (std::size_t at = text.find("eps"); at != std::string::npos; at = text.find("eps", at + 7))
      text.replace(at, 3, "epsilon");
    return text;
  }());
  const auto named = testing::shell(in + "a.toml named.toml" + limits);
  EXPECT_TRUE(contains(named.out, "launched_rms_norm (A), other_rms_norm (B)")) << named.out << named.err;
  EXPECT_TRUE(contains(testing::shell(in + "a.toml named_other.toml" + limits).err,
                       "builds of 'launched_rms_norm' and 'other_rms_norm' that differ in attribute 1"));
  const auto same = testing::shell(in + "a.toml a.toml" + limits);
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_TRUE(contains(same.out, "nowhere")) << same.out;
  EXPECT_TRUE(contains(testing::shell(in + "a.toml b.toml --json" + limits).out, "\"schema\": \"ampcheck.compare/1\""));
  EXPECT_EQ(testing::shell(in + "a.toml" + limits).exit_code, 2);
  const auto other = testing::shell(in + "a.toml other.toml" + limits);
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_TRUE(contains(other.err, "that differ in attribute 1, 'eps' and 'epsilon', want the same signature"))
      << other.err;
  EXPECT_EQ(testing::shell(in + "a.toml nowhere.toml" + limits).exit_code, 6);
}

TEST(CompareBuilds, AnEmptySelectionIsSaidToBe) {
  const std::string rope = kFolder + "rope.so";
  const auto none = testing::ampcheck("compare " + rope + " " + rope + " 'nosuch*'");
  EXPECT_EQ(none.exit_code, 4);
  EXPECT_TRUE(contains(none.err, "nothing selected by 'nosuch*'")) << none.err;
  EXPECT_EQ(testing::ampcheck("compare " + rope + " " + rope + " --memory 1GB").exit_code, 2)
      << "compare leaves nothing out";
}

}  // namespace
}  // namespace ampcheck::checks
