// SPDX-License-Identifier: Apache-2.0
// Whose list of ops a run follows: the built-in ops are torch's operators, graphs ask the list of their device, and
// `ampcheck train` says which.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <fstream>
#include <map>
#include <set>

#include "checks/define/op_def.h"
#include "checks/train/graph.h"
#include "src/amp/autocast.h"
#include "tests/support/goldens.h"
#include "tests/support/run_program.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::testing {
namespace {

using nlohmann::json;
using tests::Golden;

/// What torch was seen to do in a region on the CPU, and where it is said: by op, the dtype of its output on inputs in
/// 16 bits.
std::map<std::string, std::string> seen_on_the_cpu(const Golden& golden, Dtype low) {
  std::map<std::string, std::string> out;
  for (const Golden& row : golden.at("ops")) {
    const Golden* const seen = row.at("in_region").find("low");
    if (tests::dtype_of(row.at("autocast_dtype").text) != low || seen == nullptr || !seen->is_text() ||
        seen->text == "int64")
      continue;
    out[row.at("op").text] = seen->text;
    for (const Golden& registered : row.at("registered")) out.try_emplace(registered.text, seen->text);
  }
  return out;
}

/// The dtype in which an op of one input in 16 bits answers in a graph.
Dtype answers_in(const std::string& op, AutocastDevice list, Dtype low) {
  checks::train::ParameterSet parameters("lists", 1);
  checks::models::Recordings recordings;
  checks::train::Graph graph(parameters, recordings, {.autocast = list});
  const Autocast region(list, autocast_in(low));
  const auto x = graph.to(graph.data({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}), low);
  std::vector<std::pair<std::string, checks::models::Var>> inputs;
  for (const TensorSpec& spec : checks::find_op(op)->signature.inputs) {
    if (spec.optional) continue;
    if (inputs.empty())
      inputs.emplace_back(spec.name, x);
    else if (spec.role == Role::target)
      inputs.emplace_back(spec.name, graph.data({2}, {1, 2}));
    else if (op == "linear")
      inputs.emplace_back(spec.name, graph.parameter("w", {3, 4}, 0, 1));
    else if (spec.role == Role::weight || spec.role == Role::bias)
      inputs.emplace_back(spec.name, graph.parameter(spec.name, {4}, 1, 0));
    else
      inputs.emplace_back(spec.name, x);
  }
  return graph.dtype(graph.call(op, inputs));
}

const std::vector<std::string> kOfRows = {
    "linear", "layer_norm", "rms_norm", "softmax", "log_softmax", "exp", "log", "sum", "mean",     "relu",
    "gelu",   "gelu_tanh",  "silu",     "sigmoid", "tanh",        "add", "mul", "div", "mse_loss", "cross_entropy"};

TEST(AutocastLists, BuiltInOpsAreOperatorsOfTorch) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "autocast_cpu.json");
  AMPCHECK_GOLDEN_OR_SKIP(tables, "autocast_cuda_tables.json");
  std::set<std::string> known;
  for (const auto& [op, dtype] : seen_on_the_cpu(golden, Dtype::bf16)) known.insert(op.substr(0, op.find('.')));
  for (const std::string& op : tables.at("cuda").keys) known.insert(op.substr(0, op.find('.')));
  std::set<std::string> own, unknown;
  for (const checks::OpDef& op : checks::all_ops()) {
    const std::string& name_of = op.signature.torch_op;
    if (name_of.empty())
      own.insert(op.signature.name);
    else if (!known.contains(name_of))
      unknown.insert(name_of);
  }
  EXPECT_TRUE(own.contains("swiglu"));
  for (const std::string& op : own) EXPECT_FALSE(known.contains(op)) << op << " is an operator of torch: say .torch_op";
  EXPECT_FALSE(unknown.contains("softmax"));
  for (const std::string& op : unknown)
    EXPECT_NE(checks::find_op(op), nullptr) << op << ": in no list of torch's and no built-in op, so it is misspelt";
}

TEST(AutocastLists, AnOpOfOnesOwnHasThePolicyThatItDeclares) {
  OpSignature op;
  op.name = "softmax";
  for (const CastPolicy policy : {CastPolicy::lower_precision_fp, CastPolicy::promote, CastPolicy::fp32}) {
    op.cast = policy;
    EXPECT_EQ(cast_policy(AutocastDevice::cuda, op), policy) << "its name may be that of torch's";
  }
  op.torch_op = "softmax";
  EXPECT_EQ(cast_policy(AutocastDevice::cuda, op), CastPolicy::fp32_set_opt_dtype);
  EXPECT_EQ(cast_policy(AutocastDevice::cpu, op), CastPolicy::unlisted);
  op.torch_op = "cross_entropy_loss";
  EXPECT_EQ(cast_policy(AutocastDevice::cuda, op), CastPolicy::fp32) << "of nll_loss, which it ends with";
  EXPECT_EQ(cast_policy(AutocastDevice::cpu, op), CastPolicy::fp32);
}

TEST(AutocastLists, AGraphRunsOpsInTheDtypesOfItsList) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "autocast_cpu.json");
  for (const Dtype low : {Dtype::bf16, Dtype::fp16}) {
    const std::map<std::string, std::string> seen = seen_on_the_cpu(golden, low);
    std::set<std::string> differ, compared;
    for (const std::string& op : kOfRows) {
      const Dtype on_cpu = answers_in(op, AutocastDevice::cpu, low),
                  on_cuda = answers_in(op, AutocastDevice::cuda, low);
      const auto real = seen.find(checks::find_op(op)->signature.torch_op);
      if (real != seen.end()) {
        compared.insert(op);
        EXPECT_EQ(on_cpu, tests::dtype_of(real->second)) << op << " on the CPU";
      }
      if (on_cpu == on_cuda) continue;
      differ.insert(op);
      EXPECT_TRUE(on_cpu == low && on_cuda == Dtype::fp32) << op;
    }
    EXPECT_EQ(differ, (std::set<std::string>{"layer_norm", "rms_norm", "softmax", "log_softmax", "exp", "log", "sum"}))
        << "what following CUDA's list on the CPU would do to them";
    for (const char* op : {"linear", "layer_norm", "softmax", "log_softmax", "exp", "log", "relu", "add", "mse_loss"})
      EXPECT_TRUE(compared.contains(op)) << op;
  }
}

class AutocastOfTrain : public ::testing::Test {
 protected:
  /// 64 inputs, a layer_norm, 10 classes.
  std::string net(const std::string& more = "") {
    const std::string path = folder_.path() + "/net.toml";
    std::ofstream(path) << "[[layers]]\ntype = 'layer_norm'\nname = 'n'\n[[layers]]\ntype = 'linear'\noutputs = "
                           "16\n[[layers]]\ntype = 'softmax'\n[[layers]]\ntype = 'linear'\n"
                        << more;
    return path;
  }
  std::string dtype_of(const tools::Trace& trace, const std::string& op) {
    for (const tools::TracedTensor& t : trace.tensors)
      if (t.op == op && t.phase == "forward" && !t.cast) return name(t.dtype);
    return "";
  }
  TemporaryFolder folder_;
};

TEST_F(AutocastOfTrain, TheListIsChosenShownAndRecorded) {
  const std::string trace = folder_.path() + "/run.trace";
  for (const std::string list : {"cuda", "cpu"}) {
    const std::string flag = list == "cpu" ? " --autocast cpu" : "", softmax = list == "cpu" ? "bf16" : "fp32";
    const ProgramResult run = ampcheck("train " + net() + " --dtype bf16 --steps 1 --record " + trace + flag);
    EXPECT_LE(run.exit_code, 1) << run.err;
    EXPECT_TRUE(contains(run.out, "net in bf16, autocast " + list + " (torch 2.15.0), scaler none")) << run.out;
    const tools::Trace read = tools::read_trace(trace);
    EXPECT_EQ(read.autocast, list);
    EXPECT_EQ(read.autocast_tables, kAutocastTablesVersion);
    EXPECT_EQ(dtype_of(read, "softmax_1"), softmax);
    EXPECT_EQ(dtype_of(read, "linear_1"), "bf16");
    const ProgramResult shown = ampcheck("trace " + trace);
    EXPECT_TRUE(contains(shown.out, "autocast " + list + " (torch 2.15.0)")) << shown.out;
    EXPECT_EQ(contains(shown.out, "runs in fp32 between ops of 16 bits: 'x' widened, linear_2"), list == "cuda")
        << shown.out;
    for (const std::string& json_of :
         {"train " + net() + " --dtype bf16 --steps 1 --json" + flag, "trace --json " + trace}) {
      const json out = json::parse(ampcheck(json_of).out);
      EXPECT_EQ(out["autocast"], list) << json_of;
      EXPECT_EQ(out["autocast_tables"], kAutocastTablesVersion) << json_of;
    }
  }
}

TEST_F(AutocastOfTrain, ItIsASettingOfANetAndRefusedWhereNothingUsesIt) {
  EXPECT_TRUE(
      contains(ampcheck("train --steps 1 --dtype bf16 " + net("[train]\nautocast = 'cpu'\n")).out, "autocast cpu"));
  EXPECT_TRUE(contains(refused_training("--dtype fp32 --autocast cpu"), "[--autocast] got it where nothing uses it"));
  EXPECT_TRUE(contains(refused_training("--autocast xpu"), "[--autocast] got 'xpu'"));
  EXPECT_TRUE(contains(ampcheck("train --steps 1 --dtype fp32").out, "mlp in fp32, no autocast"));
  const std::string with_region = net();
  std::ofstream(with_region, std::ios::app) << "autocast = 'fp16'\n";
  EXPECT_TRUE(
      contains(ampcheck("train --steps 1 --dtype fp32 --autocast cpu " + with_region).out, "net in fp32, autocast cpu"))
      << "a layer's own region follows it";
}

TEST_F(AutocastOfTrain, ACheckpointGoesOnUnderItsListAlone) {
  const std::string saved = folder_.path() + "/a.safetensors", run = "train --dtype bf16 " + net() + " --steps ";
  ASSERT_LE(ampcheck(run + "2 --autocast cpu --save " + saved).exit_code, 1);
  EXPECT_LE(ampcheck(run + "3 --autocast cpu --resume " + saved).exit_code, 1);
  const ProgramResult other = ampcheck(run + "3 --resume " + saved);
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_TRUE(contains(other.err, "got a run with 'autocast cpu', want 'default autocast'")) << other.err;
  ASSERT_LE(ampcheck(run + "2 --save " + saved).exit_code, 1);
  EXPECT_TRUE(contains(ampcheck(run + "3 --autocast cpu --resume " + saved).err,
                       "got a run with 'default autocast', want 'autocast cpu'"));
  const std::string another = read_text(net());
  std::ofstream(net()) << std::string(another).replace(another.find("16"), 2, "24");
  EXPECT_TRUE(contains(
      ampcheck(run.substr(0, run.find(folder_.path())) + folder_.path() + "/net.toml --steps 3 --resume " + saved).err,
      "got a run with 'layers linear:layer1::16:1', want 'layers linear:layer1::24:1'"));
}

/// A trace of before the list was written followed CUDA's.
TEST_F(AutocastOfTrain, AnOlderTraceIsRead) {
  const std::string path = folder_.path() + "/run.trace";
  ASSERT_LE(ampcheck("train --steps 1 --record " + path).exit_code, 1);
  std::string text = read_text(path);
  const std::string fields = ",\"autocast\":\"cuda\",\"autocast_tables\":\"torch 2.15.0\"";
  ASSERT_TRUE(contains(text, fields));
  std::ofstream(path) << text.erase(text.find(fields), fields.size());
  EXPECT_EQ(tools::read_trace(path).autocast, "cuda");
}

}  // namespace
}  // namespace ampcheck::testing
