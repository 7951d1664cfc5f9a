// SPDX-License-Identifier: Apache-2.0
// `ampcheck diagnose` of two stacks and of other people's data, as a user calls it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/safetensors.h"
#include "tests/support/paths.h"
#include "tests/support/planted_stacks.h"
#include "tests/support/run_program.h"

namespace ampcheck::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

const StackOp& op_named(const std::string& name) { return *std::ranges::find(stack_ops(), name, &StackOp::name); }
const StackWay& way_named(const StackOp& op, const std::string& name) {
  return *std::ranges::find(op.ways, name, &StackWay::name);
}

std::string bytes_of(const TensorFile& file) { return safetensors_bytes(file.tensors); }

/// Two dumps of a small net: norm, gate, norm; the second norm of B rounds before its weight.
struct Folders {
  TemporaryFolder folder;
  fs::path a, b;
  Folders() : a(fs::path(folder.path()) / "a"), b(fs::path(folder.path()) / "b") {
    const StackOp &norm = op_named("rms_norm"), &gate = op_named("gated");
    const StackData data = stack_data(21);
    for (const bool of_b : {false, true}) {
      const fs::path to = of_b ? b : a;
      write(to / "2_gate.safetensors", bytes_of(stack_dump(gate, gate.ways.front(), data)));
      write(to / "1_norm.safetensors",
            bytes_of(stack_dump(norm, way_named(norm, of_b ? "other_order" : "fused"), data)));
      write(to / "10_norm.safetensors",
            bytes_of(stack_dump(norm, way_named(norm, of_b ? "before_weight" : "fused"), data)));
    }
  }
  std::string formulas() const {
    return " --formula '*norm: " + op_named("rms_norm").formula + "' --formula '*gate: " + op_named("gated").formula +
           "'";
  }
};

TEST(DiagnoseStacks, FoldersOfTwoStacksNameTheFirstOpThatMakesADifference) {
  const Folders folders;
  const ProgramResult text = ampcheck("diagnose " + folders.a.string() + " " + folders.b.string() + folders.formulas());
  EXPECT_EQ(text.exit_code, 1) << text.err;
  EXPECT_TRUE(contains(text.out, "MADE: 3 ops")) << text.out;
  EXPECT_TRUE(contains(text.out,
                       "made in 10_norm y: A rounds after weight, B before; A follows the declared contract; B "
                       "does not"))
      << text.out;
  const ProgramResult got =
      ampcheck("diagnose " + folders.a.string() + " " + folders.b.string() + folders.formulas() + " --json");
  const json answer = json::parse(got.out);
  EXPECT_EQ(answer["schema"], "ampcheck.diagnose_stacks/1");
  EXPECT_EQ(answer["first_made"], "10_norm");
  ASSERT_EQ(answer["ops"].size(), 3u);
  EXPECT_EQ(answer["ops"][0]["op"], "1_norm") << "2 before 10";
  EXPECT_EQ(answer["ops"][2]["op"], "10_norm");
  EXPECT_EQ(answer["ops"][1]["origin"], "EQUAL");
  EXPECT_EQ(answer["ops"][2]["tensors"][0]["boundary"], "A rounds after weight, B before");
}

TEST(DiagnoseStacks, TwinsPassAndCallsOfOneSideAreSaid) {
  const Folders folders;
  const ProgramResult twin = ampcheck("diagnose " + folders.a.string() + " " + folders.a.string() + folders.formulas());
  EXPECT_EQ(twin.exit_code, 0) << twin.out << twin.err;
  EXPECT_TRUE(contains(twin.out, "EQUAL: 3 ops, all bits the same.")) << twin.out;
  fs::remove(folders.b / "10_norm.safetensors");
  const ProgramResult lacks =
      ampcheck("diagnose " + folders.a.string() + " " + folders.b.string() + folders.formulas());
  EXPECT_EQ(lacks.exit_code, 5) << lacks.out;
  EXPECT_TRUE(contains(lacks.out, "only in A  10_norm")) << lacks.out;
  const ProgramResult none = ampcheck("diagnose " + folders.a.string() + " " + folders.b.string());
  EXPECT_EQ(none.exit_code, 4);
  EXPECT_TRUE(contains(none.err, "no formula; give one with --formula '1_norm: F'")) << none.err;
}

TEST(DiagnoseStacks, OneFileWithPrefixesIsManyCalls) {
  const TemporaryFolder folder;
  const StackOp& norm = op_named("rms_norm");
  for (const bool of_b : {false, true}) {
    std::vector<NamedTensor> all;
    for (const char* layer : {"layers.0.norm", "layers.1.norm"})
      for (const NamedTensor& tensor :
           stack_dump(norm, way_named(norm, of_b && std::string(layer) == "layers.1.norm" ? "inv_rounded" : "fused"),
                      stack_data(4))
               .tensors)
        all.push_back({std::string(layer) + "." + tensor.name, tensor.tensor});
    write(fs::path(folder.path()) / (of_b ? "b.safetensors" : "a.safetensors"), safetensors_bytes(all));
  }
  const ProgramResult got = shell("cd '" + folder.path() +
                                  "' && \"$AMPCHECK\" diagnose a.safetensors b.safetensors "
                                  "--formula '" +
                                  norm.formula + "' --json");
  EXPECT_EQ(got.exit_code, 1) << got.err;
  EXPECT_EQ(json::parse(got.out)["first_made"], "layers.1.norm");
}

/// A call as FlashInfer's flight recorder leaves it.
void record_call(const fs::path& root, const std::string& folder, const TensorFile& dump, const char* suffix) {
  std::vector<NamedTensor> inputs, outputs;
  for (const NamedTensor& tensor : dump.tensors) {
    if (tensor.name == "x") inputs.push_back({"arg_0", tensor.tensor});
    if (tensor.name == "weight") inputs.push_back({"arg_1", tensor.tensor});
    if (tensor.name == "y") outputs.push_back({"result", tensor.tensor});
  }
  write(root / folder / (std::string("inputs.") + suffix), safetensors_bytes(inputs));
  write(root / folder / (std::string("outputs.") + suffix), safetensors_bytes(outputs));
  write(root / folder / "metadata.jsonl",
        "{\"function_name\": \"rmsnorm\", \"execution_status\": \"inputs_saved\"}\n"
        "{\"function_name\": \"rmsnorm\", \"input_metadata\": {\"arg_2\": 0.015625}, \"execution_status\": "
        "\"completed\"}\n");
}

TEST(DiagnoseStacks, FlashInferFoldersAreReadAndPicklesRefused) {
  const TemporaryFolder folder;
  const fs::path root(folder.path());
  const StackOp& norm = op_named("rms_norm");
  record_call(root / "a", "20260801_101010_123_pid77_rmsnorm_call0001",
              stack_dump(norm, norm.ways.front(), stack_data(1)), "safetensors");
  record_call(root / "b", "20260802_111111_456_pid99_rmsnorm_call0001",
              stack_dump(norm, way_named(norm, "before_weight"), stack_data(1)), "safetensors");
  const ProgramResult got = ampcheck("diagnose " + (root / "a").string() + " " + (root / "b").string());
  EXPECT_EQ(got.exit_code, 1) << got.err;
  EXPECT_TRUE(contains(got.out, "rmsnorm_call0001 result: A rounds after arg_1, B before")) << got.out;
  EXPECT_EQ(ampcheck("diagnose " + (root / "a").string()).exit_code, 0) << "one dump with nothing wrong";
  record_call(root / "c", "20260801_101010_123_pid77_rmsnorm_call0001",
              stack_dump(norm, norm.ways.front(), stack_data(1)), "pt");
  const ProgramResult refused = ampcheck("diagnose " + (root / "c").string());
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(contains(refused.err, "want safetensors: python -c")) << refused.err;
  EXPECT_TRUE(contains(refused.err, "FLASHINFER_DUMP_SAFETENSORS=1"));
}

TEST(DiagnoseStacks, OpsByNameAndLibraries) {
  const ProgramResult order = ampcheck("diagnose mean mean.pairwise --dtype bf16");
  EXPECT_EQ(order.exit_code, 0) << order.out << order.err;
  const ProgramResult algebra = ampcheck("diagnose silu silu.by_exp --dtype bf16");
  EXPECT_EQ(algebra.exit_code, 0) << algebra.out << algebra.err;
  EXPECT_TRUE(algebra.out.starts_with("ORDER: ")) << algebra.out;
  const std::string none = tests::in_build("/custom_ops/gated_sum_none.so"),
                    low_sum = tests::in_build("/custom_ops/gated_sum_bf16_sum.so"),
                    other = tests::in_build("/custom_ops/gated_sum_reassociated.so");
  EXPECT_EQ(ampcheck("diagnose " + none + " " + none).exit_code, 0);
  EXPECT_EQ(ampcheck("diagnose " + none + " " + other).exit_code, 0);
  const ProgramResult low = ampcheck("diagnose " + none + " " + low_sum + " --dtype bf16");
  EXPECT_EQ(low.exit_code, 1);
  EXPECT_TRUE(contains(low.out, "A sums in fp32, B accumulates in bf16")) << low.out;
}

TEST(DiagnoseStacks, WrongUseIsSaid) {
  EXPECT_EQ(ampcheck("diagnose").exit_code, 2);
  EXPECT_EQ(ampcheck("diagnose softmax tanh").exit_code, 2) << "other signatures";
  EXPECT_EQ(ampcheck("diagnose no_such_file").exit_code, 2);
  const ProgramResult nothing = shell("echo hello | \"$AMPCHECK\" diagnose -");
  EXPECT_EQ(nothing.exit_code, 4);
  EXPECT_TRUE(contains(nothing.err, "no line says a loss")) << nothing.err;
}

struct ReportedLog {
  const char* file;
  int exit_code;
  const char* verdict;
  const char* kind;
  std::int64_t line;  ///< of the first bad step; 0: none
};
void PrintTo(const ReportedLog& one, std::ostream* out) { *out << one.file; }
class DiagnosedLogs : public ::testing::TestWithParam<ReportedLog> {};

TEST_P(DiagnosedLogs, HaveTheirFirstBadStep) {
  const std::string log = tests::in_data_root("/../shared/cases/reports/logs/") + GetParam().file;
  if (!fs::exists(log)) GTEST_SKIP() << "there is no ../shared/cases/reports/logs here";
  const ProgramResult got = ampcheck("diagnose " + log + " --json");
  EXPECT_EQ(got.exit_code, GetParam().exit_code) << got.out << got.err;
  const json answer = json::parse(got.out);
  EXPECT_EQ(answer["verdict"], GetParam().verdict);
  EXPECT_EQ(answer["kind"], GetParam().kind);
  EXPECT_EQ(answer["first_bad"].is_null() ? 0 : answer["first_bad"]["line"].get<std::int64_t>(), GetParam().line);
}

const ReportedLog kLogs[] = {
    {"apex_denormal.log", 1, "NOTHING FOUND", "", 0},
    {"deepspeed_nan_from_start.log", 1, "NOT FINITE", "loss_not_finite", 1},
    {"deepspeed_startup_then_probe.log", 0, "NOTHING FOUND", "", 0},
    {"hf_trainer_bf16.log", 1, "NOT FINITE", "loss_not_finite", 4},
    {"megatron_bf16_nan.log", 1, "NOT FINITE", "norm_not_finite", 6},
    {"mmengine.log", 4, "CANNOT TELL", "norm_not_finite_at_the_end", 5},
    {"paddlenlp.log", 0, "NOTHING FOUND", "", 0},
};
INSTANTIATE_TEST_SUITE_P(All, DiagnosedLogs, ::testing::ValuesIn(kLogs), [](const auto& one) {
  std::string name = one.param.file;
  for (char& c : name)
    if (c == '.') c = '_';
  return name;
});

/// A trace of our own is more than a log: its tensors say which op it was, and that gradients vanished where no loss
/// does.
TEST(DiagnoseTrace, TensorsSayWhatLossesDoNot) {
  const TemporaryFolder folder;
  const std::string in = "cd '" + folder.path() + "' && \"$AMPCHECK\" ";
  const auto record = [&](const char* name, const std::string& options) {
    return shell(in + "train mlp --steps 4 --record " + name + " " + options + " > /dev/null");
  };
  record("nan.trace", "--lr 1000");
  record("zero.trace", "--scaler none --loss-weight 1e-8 --optimizer adam --lr 0.003");
  record("fine.trace", "");
  const ProgramResult broken = shell(in + "diagnose nan.trace");
  EXPECT_EQ(broken.exit_code, 1) << broken.err;
  EXPECT_TRUE(contains(broken.out, "step 1: linear_3 (layer2) forward y made finite values non-finite")) << broken.out;
  EXPECT_TRUE(contains(broken.out, "ampcheck diagnose mlp --dtype fp16 --scaler torch --seed 1")) << broken.out;
  const ProgramResult zero = shell(in + "diagnose zero.trace --json");
  EXPECT_EQ(zero.exit_code, 1) << zero.err;
  EXPECT_EQ(json::parse(zero.out)["kind"], "gradients_vanish");
  EXPECT_EQ(json::parse(zero.out)["verdict"], "NO GRADIENT");
  const ProgramResult fine = shell(in + "diagnose fine.trace");
  EXPECT_EQ(fine.exit_code, 0) << fine.out << fine.err;
  EXPECT_TRUE(fine.out.starts_with("NOTHING FOUND")) << fine.out;
}

}  // namespace
}  // namespace ampcheck::testing
