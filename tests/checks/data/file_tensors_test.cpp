// SPDX-License-Identifier: Apache-2.0
// Ops checked at the user's own tensors: what a file may hold, what is refused, and that a finding re-runs.
#include "checks/data/file_tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "checks/data/regimes.h"
#include "checks/run/runner.h"
#include "src/error.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::ampcheck;
using testing::contains;
using testing::ProgramResult;
using testing::TemporaryFolder;

const std::string kData = tests::in_data_root("/tests/data/tensors/");

NamedTensor named(const std::string& name, Dtype dtype, const Shape& shape, std::vector<double> values = {}) {
  if (values.empty())
    for (std::int64_t i = 0; i < shape.count(); ++i) values.push_back(static_cast<double>(i * 7 % 11 - 5) / 4);
  Tensor tensor(dtype, shape);
  from_doubles(values, tensor.view());
  return {name, tensor};
}

/// The bound and validated call, or the words of the refusal.
std::string bind(const std::string& op_name, std::vector<NamedTensor> tensors, std::optional<Dtype> storage = {}) {
  const auto data = data_of_file({"file", std::move(tensors)});
  const OpDef& op = *find_op(op_name);
  try {
    OpCall call = file_call(op, data, storage);
    require_file_call(op, call);
    const std::string text = call.str(op.signature);
    OpCall parsed = parse_call(text, op.signature);
    parsed.data = data;
    require_file_call(op, parsed);
    return text.substr(0, text.find(",range=inputs."));
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(FileTensors, ShapesDtypesAndOptionalInputsComeFromTheFile) {
  EXPECT_EQ(bind("softmax", {named("x", Dtype::bf16, {3, 4})}), "softmax(x=bf16[3,4]");
  EXPECT_EQ(bind("layer_norm", {named("x", Dtype::fp16, {3, 4}), named("weight", Dtype::fp32, {4})}),
            "layer_norm(x=fp16[3,4],weight=fp32,bias=none");
  EXPECT_EQ(bind("layer_norm",
                 {named("bias", Dtype::fp32, {4}), named("x", Dtype::fp32, {3, 4}), named("weight", Dtype::fp32, {4})}),
            "layer_norm(x=fp32[3,4]");
  EXPECT_EQ(bind("cross_entropy", {named("x", Dtype::bf16, {3, 4}), named("target", Dtype::i32, {3}, {0, 3, -100})}),
            "cross_entropy(x=bf16[3,4]");
  EXPECT_EQ(bind("softmax", {named("x", Dtype::fp64, {3, 4})}, Dtype::fp16), "softmax(x=fp16[3,4]");
  // Everything in fp32: parameters that are no bf16 numbers stay there.
  EXPECT_EQ(bind("layer_norm",
                 {named("x", Dtype::fp32, {1, 2}), named("weight", Dtype::fp32, {2}, {1, 1 + 0x1p-20}),
                  named("bias", Dtype::fp32, {2})},
                 Dtype::bf16),
            "layer_norm(x=bf16[1,2],weight=fp32");
}

TEST(FileTensors, WhatTheOpDoesNotTakeIsRefused) {
  const auto refused = [](const std::string& got, const std::string& why) {
    EXPECT_TRUE(contains(got, why) && got.starts_with("[inputs 'file'] ")) << got;
  };
  refused(bind("softmax", {named("y", Dtype::bf16, {3, 4})}), "got 'y', want 'x', an input of softmax");
  refused(bind("softmax", {named("x", Dtype::bf16, {3})}), "got shape [3], want 2 dimensions");
  refused(bind("softmax", {named("x", Dtype::fp64, {3, 4})}),
          "got fp64, want one that softmax is declared for: fp32, fp16, bf16 (--dtype T");
  refused(bind("softmax", {named("x", Dtype::i64, {3, 4}, std::vector<double>(12, 1))}),
          "got i64, want one that softmax");
  refused(bind("softmax", {named("x", Dtype::i64, {3, 4}, std::vector<double>(12, 1))}, Dtype::fp32),
          "got i64, want floating");
  refused(bind("add", {named("x", Dtype::bf16, {3, 4}), named("y", Dtype::fp32, {3, 4})}),
          "tensor 'y', got fp32, want bf16, as 'x' has");
  refused(bind("add", {named("x", Dtype::bf16, {3, 4}), named("y", Dtype::bf16, {3, 5})}), "want D=4");
  refused(bind("layer_norm", {named("x", Dtype::bf16, {3, 4}), named("weight", Dtype::fp16, {4})}),
          "got fp16, want bf16 or fp32");
  refused(bind("layer_norm", {named("x", Dtype::fp32, {3, 4}), named("weight", Dtype::bf16, {4})}),
          "got bf16, want fp32");
  refused(bind("softmax", {named("x", Dtype::fp32, {1, 2}, {1, 1 + 0x1p-20})}, Dtype::bf16),
          "got 1.0000009536743164 at [0,1], want a value that is exact in bf16");
  refused(bind("cross_entropy", {named("x", Dtype::bf16, {2, 3}), named("target", Dtype::i64, {2}, {0, 3})}),
          "got the index 3, want 0 to 2");
  refused(bind("cross_entropy", {named("x", Dtype::bf16, {2, 3}), named("target", Dtype::i64, {2}, {0, -1})}),
          "got the index -1");
  refused(bind("cross_entropy", {named("x", Dtype::bf16, {2, 3}), named("target", Dtype::fp32, {2}, {0, 1})}),
          "got fp32, want integers");
  refused(bind("softmax", {named("x", Dtype::bf16, {3, 4}), named("dy", Dtype::bf16, {4, 3})}),
          "tensor 'dy', got [4,3], want [3,4], the shape of 'y'");
  refused(bind("softmax", {named("x", Dtype::bf16, {1, 1}), named("dy", Dtype::fp32, {1, 1}, {0x1.00002p0})}),
          "tensor 'dy', got");
}

TEST(FileTensors, ACaseHasTheFilesBitsAndCotangentsFirst) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const auto data = data_of_file({"file",
                                  {named("x", Dtype::fp16, {1, 4}, {0x1p-24, -0.0, infinity, nan}),
                                   named("dy", Dtype::fp16, {1, 4}, {1, 2, 3, 4})}});
  const OpDef& op = *find_op("relu");
  OpCall call = file_call(op, data, {});
  require_file_call(op, call);
  const std::vector<double> x = input_values(op.signature, call, op.signature.inputs.front());
  EXPECT_EQ(x[0], 0x1p-24);
  EXPECT_TRUE(std::signbit(x[1]));
  EXPECT_EQ(x[2], infinity);
  EXPECT_TRUE(std::isnan(x[3]));
  EXPECT_EQ(cotangent_values(call, "y", {1, 4}, Dtype::fp16, 0), (std::vector<double>{1, 2, 3, 4}));
  const int probes = probe_count(call);
  EXPECT_NE(cotangent_values(call, "y", {1, 4}, Dtype::fp16, 1), (std::vector<double>{1, 2, 3, 4}));
  OpCall without = file_call(op, data_of_file({"file", {named("x", Dtype::fp16, {1, 4})}}), {});
  require_file_call(op, without);
  EXPECT_EQ(probe_count(without), probes - 1);
  call.data = without.data;
  EXPECT_THROW(require_file_call(op, call), Error);  // other contents
  call.data = nullptr;
  EXPECT_THROW(require_file_call(op, call), Error);
}

/// A kernel that is wrong only where the file's values are.
TEST(FileTensorsCli, FindsAndReRuns) {
  const std::string file = kData + "softmax.npz";
  const ProgramResult right = ampcheck("check softmax --dtype bf16 --inputs " + file);
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
  EXPECT_TRUE(contains(right.out, "not used of '" + file + "': 'y', 'dx'")) << right.out;
  const ProgramResult wrong = ampcheck("check softmax.sign --dtype bf16 --inputs " + file);
  ASSERT_EQ(wrong.exit_code, 1) << wrong.out << wrong.err;
  const std::size_t from = wrong.out.find("ampcheck replay '");
  ASSERT_NE(from, std::string::npos) << wrong.out;
  const std::string line = wrong.out.substr(from + 9, wrong.out.find('\n', from) - from - 9);
  EXPECT_TRUE(line.ends_with(" --inputs " + file)) << line;
  const TemporaryFolder folder;
  const ProgramResult again = ampcheck(line + " --save " + folder.path());
  EXPECT_EQ(again.exit_code, 1) << again.out << again.err;
  const TensorFile saved = read_tensors(folder.path()), given = read_tensors(file);
  EXPECT_EQ(to_doubles(saved.find("x")->view()), to_doubles(given.find("x")->view()));
  EXPECT_EQ(to_doubles(saved.find("dy")->view()), to_doubles(given.find("dy")->view()));
  EXPECT_NE(saved.find("dx.got"), nullptr);
}

TEST(FileTensorsCli, AttributesSeedsAndErrors) {
  const std::string file = " --inputs " + kData + "rms_norm.safetensors";
  const ProgramResult run = ampcheck("check 'rms_norm(eps=0.25,layout=padded)' --seeds 2 --json" + file);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.out, ",eps=0.25,range=inputs.")) << run.out.substr(0, 2000);
  EXPECT_TRUE(contains(run.out, ",layout=padded,seed=2)"));
  for (const auto& [arguments, code, words] :
       {std::tuple{"check" + file, 2, "want one op"},
        {"check 'soft*' rms_norm" + file, 2, "want one op"},
        {"check softmx" + file, 2, "did you mean 'softmax'"},
        {"check 'rms_norm(eps=x)'" + file, 2, "want a number"},
        {"check 'rms_norm(eps=1'" + file, 2, "want op(key=value,...)"},
        {"check cross_entropy" + file, 2, "want 'target'"},
        {std::string("check softmax --shapes first --inputs /nonexistent"), 2, "want none of them"},
        {std::string("check softmax --inputs /nonexistent"), 2, "got '/nonexistent', which is not there"},
        {"check softmax --inputs " + kData + "object.npy", 2, "'|O'"},
        {std::string("replay 'softmax(x=bf16[8,33],range=inputs.0123456789abcdef,seed=1)'"), 2, "--inputs FILE"},
        {"replay 'rms_norm(x=bf16[12,48],weight=fp32,range=inputs.0123456789abcdef,seed=1)'" + file, 2,
         "those of the case"}}) {
    const ProgramResult wrong = ampcheck(arguments);
    EXPECT_EQ(wrong.exit_code, code) << arguments << wrong.out;
    EXPECT_TRUE(contains(wrong.err, words)) << arguments << "\n" << wrong.err;
  }
}

/// A plug-in's kernel gets the file's tensors in its worker process.
TEST(FileTensorsCli, PluginsThroughTheirWorkers) {
  const std::string library = tests::in_build("/custom_ops/my_rms_norm.so");
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/x.safetensors";
  std::ofstream(file, std::ios::binary) << safetensors_bytes(
      std::vector<NamedTensor>{named("x", Dtype::bf16, {3, 5}), named("weight", Dtype::bf16, {5})});
  for (const char* isolation : {"", " --isolation none"}) {
    const ProgramResult run = ampcheck("check " + library + " my_rms_norm --json --inputs " + file + isolation);
    EXPECT_EQ(run.exit_code, 0) << run.out.substr(0, 2000) << run.err;
    EXPECT_TRUE(contains(run.out, "range=inputs.")) << run.out.substr(0, 2000);
  }
}

}  // namespace
}  // namespace ampcheck::checks
