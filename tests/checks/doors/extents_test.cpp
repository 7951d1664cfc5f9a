// SPDX-License-Identifier: Apache-2.0
// Extents that follow from another extent or from an attribute, and a symbol twice in a tensor: what descriptions and
// cases are refused, and the doors beside AMPCHECK_OP, whose ops are in tests/support/custom_op_list.h.
#include <gtest/gtest.h>

#include <fstream>

#include <ampcheck/op.h>
#include "checks/define/rows.h"
#include "checks/doors/plugin.h"
#include "src/op_call.h"
#include "src/safetensors.h"
#include "src/tensor_file.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::contains;
using testing::ProgramResult;

const std::string kLibrary = tests::in_build("/custom_ops/extents.so");

/// Why the description of an op is refused; empty: it is not.
std::string refusal_of(op::Op& op) {
  op.forward([](const op::Call&) {});
  op.backward([](const op::Call&) {});
  const ac_op described = op.finish();
  const ac_plugin plugin = {sizeof(ac_plugin), AMPCHECK_OP_ABI, "test", nullptr, 1, 0, &described};
  try {
    ops_of(&plugin, "libx.so");
  } catch (const PluginError& error) {
    return error.what();
  }
  return "";
}

/// An op of x and w, described but for w's extents and an attribute.
std::string refusal(const char* of_x, const char* of_w, double k = 2, bool optional = false) {
  op::Op op("described");
  op::Input x = op.input("x", of_x);
  if (optional) x.optional();
  op.input("w", of_w);
  op.output("y").dims("N");
  op.attribute("k", k, {3});
  op.dim("N", 5, 64, 2);
  op.dim("D", 7, 129, 1025);
  return refusal_of(op);
}

TEST(Extents, DescriptionsOfWhatNoCaseStatesAreRefused) {
  const std::string place = "[libx.so: op 1 'described', input 2 'w'] dims, ";
  EXPECT_EQ(refusal("N D", "D/2 k"), "");
  EXPECT_EQ(refusal("N D", "D/"),
            place + "'D/', got the end, want a symbol, an attribute or a whole number, behind 'D/'");
  EXPECT_EQ(refusal("N D", "E/2"), place + "got 'E', want one of the dims N, D");
  EXPECT_EQ(refusal("N", "2*D"),
            place + "got '2*D', want 'D' by itself in an input that is not optional: its extent is read there");
  EXPECT_TRUE(contains(refusal("N D", "N D/2", 2, true), "want 'D' by itself"));
  EXPECT_EQ(refusal("N D", "k", 2.5),
            place + "got 2.5 for the attribute 'k', want whole numbers: the extent 'k' follows from it");
  EXPECT_EQ(refusal("N D", "D-7"),
            "");  // empty at the first sample shape
  EXPECT_EQ(refusal("N D", "N-D"), place + "got no extent of 0 or more for N-D of N=5, D=7, at sample shape 1");
  EXPECT_EQ(refusal("N D", "D/(k-2)"), place + "got no extent of 0 or more for D/(k-2) of D=7, k=2, at sample shape 1");
}

/// Of each form values are computed there: what such a description asks for fits into no memory.
TEST(Extents, SampleShapesOfAFormulaAreSmall) {
  const auto refused = [](const char* of_x, std::int64_t extent) {
    op::Op op("described");
    op.input("x", of_x);
    op.output("y");
    op.formula("y = 2 * x");
    op.dim("N", extent, 64, 2);
    return refusal_of(op);
  };
  EXPECT_EQ(refused("N 4096", 4096), "");
  EXPECT_TRUE(contains(refused("N 4097", 4096), "sample shape of 'x', got [4096,4097], want at most 2^24 elements"));
  EXPECT_TRUE(contains(refused("N 9223372036", 2), ",9223372036], want at most 2^24 elements"));
  EXPECT_TRUE(contains(refused("N N N N N N N N", 1 << 24), "want at most 2^24 elements"));
}

TEST(Extents, CasesAreHeldToThem) {
  const OpSignature& gate = load_plugin(kLibrary).ops.at(0).signature;
  const auto printed = [&](const std::string& text) { return parse_call(text, gate).str(gate); };
  const auto refused = [&](const std::string& text) {
    try {
      return printed(text);
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(printed("gated_halves(x=bf16[5,9],weight=bf16[4],seed=2)"), "gated_halves(x=bf16[5,9],seed=2)");
  EXPECT_TRUE(contains(refused("gated_halves(x=bf16[5,9],weight=bf16[5])"), "got 5 in 'weight', want 4, D/2 of D=9"));
  const OpSignature& thin = load_plugin(kLibrary).ops.at(2).signature;
  const OpCall call = parse_call("thin_factors(x=fp32[3,7],rank=4)", thin);
  EXPECT_EQ(call.shape(thin.inputs[1]).str(), "[7,4]");
  EXPECT_FALSE(thin.valid(call.dims, parse_call("thin_factors(x=fp32[3,7],rank=-1)", thin).attributes));
}

/// Rows cannot be given or taken where another extent follows from their number.
TEST(Extents, RowsThatOtherExtentsFollowFrom) {
  OpSignature signature = load_plugin(kLibrary).ops.at(0).signature;
  const OpCall call = default_call(signature, Dtype::fp32);
  EXPECT_EQ(misplaced_rows(signature, call), "");
  signature.inputs[0].dims = "N N";
  EXPECT_EQ(misplaced_rows(signature, call), "an extent of 'x' follows from the number of rows");
  signature.inputs[0].dims = "N D";
  signature.inputs[1].dims = "N/2";
  EXPECT_EQ(misplaced_rows(signature, call), "an extent of 'weight' follows from the number of rows");
}

TEST(Extents, FilesOfInputsAreHeldToThem) {
  const testing::TemporaryFolder folder;
  const auto check = [&](std::int64_t weight, const std::string& op) {
    Tensor x(Dtype::fp32, {3, 8}), w(Dtype::fp32, {weight});
    for (std::size_t i = 0; i < 24; ++i) x.span<float>()[i] = static_cast<float>(i % 5) - 2;
    for (float& v : w.span<float>()) v = 1.5F;
    std::ofstream(folder.path() + "/in.safetensors", std::ios::binary)
        << safetensors_bytes(std::vector<NamedTensor>{{"x", x}, {"weight", w}});
    return testing::ampcheck("check " + kLibrary + " " + op + " --inputs " + folder.path() + "/in.safetensors");
  };
  EXPECT_EQ(check(4, "gated_halves").exit_code, 0);
  const ProgramResult by_itself = check(4, "gated_by_itself");
  EXPECT_EQ(by_itself.exit_code, 1);
  EXPECT_TRUE(contains(by_itself.out, "with x[.., 0:4] for x[.., 4:8]")) << by_itself.out;
  const ProgramResult wrong = check(5, "gated_halves");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_TRUE(contains(wrong.err, "tensor 'weight', got shape [5], want 4, D/2 of D=8, in [D/2]")) << wrong.err;
}

TEST(Extents, ListPrintsThem) {
  EXPECT_TRUE(contains(testing::ampcheck("list " + kLibrary).out, "x[N,D] weight[D/2]"));
  EXPECT_TRUE(contains(testing::ampcheck("list --json " + kLibrary).out, "\"D/2\""));
}

/// Launchers of tests/custom_ops/extents.cpp by a TOML file.
TEST(Extents, LaunchersMayHaveThem) {
  const testing::TemporaryFolder folder;
  const auto check = [&](const std::string& symbol, const std::string& of_weight) {
    std::ofstream(folder.path() + "/gate.toml")
        << "library = \"" << kLibrary << "\"\nname = \"gate\"\ndims = { N = [5, 64, 2], D = [6, 130, 67] }\n"
        << "inputs = { x = { dims = \"N D\", gradient = false }, weight = { dims = \"" << of_weight
        << "\", gradient = false } }\noutputs = { y = \"N D/2\" }\ncontract = { storage = [\"fp32\"] }\n"
        << "formula = \"h = floor(D/2); y = slice(x, -1, 0, h) * sigmoid(slice(x, -1, h, 2*h)) * weight\"\n"
        << "[forward]\nsymbol = \"" << symbol << "\"\narguments = [\"const float* x\", \"const float* weight\", "
        << "\"float* y\", \"int64_t N\", \"int64_t D\"]\n";
    return testing::ampcheck("check " + folder.path() + "/gate.toml --regimes quick");
  };
  const ProgramResult right = check("launch_gate", "D / 2");
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
  const ProgramResult wrong = check("launch_gate_by_itself", "D/2");
  EXPECT_EQ(wrong.exit_code, 1) << wrong.out << wrong.err;
  EXPECT_TRUE(contains(wrong.out, "AC101  gate forward y")) << wrong.out;
  const ProgramResult refused = check("launch_gate", "E/2");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(contains(refused.err, "dims, got 'E', want one of the dims N, D")) << refused.err;
}

}  // namespace
}  // namespace ampcheck::checks
