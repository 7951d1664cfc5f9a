// SPDX-License-Identifier: Apache-2.0
// Kernels that a stranger would bring, through each door: the right ones pass, the broken ones are convicted for what
// is wrong with them. tests/custom_ops/ is built as a stranger would: with the headers of src/api and nothing else.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>

#include "checks/data/regimes.h"
#include "checks/run/runner.h"
#include "src/safetensors.h"
#include "tests/support/custom_op_list.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::contains;
using testing::ProgramResult;

const std::string kFolder = custom_op_folder();

/// Number of cases by code; "" for those that pass. `causes`: all that the findings say.
std::map<std::string, int> codes(const OpDef& op, CaseSet set, const std::vector<Dtype>& types, std::uint64_t seed,
                                 std::string& causes) {
  std::map<std::string, int> out;
  for (const Dtype storage : types)
    for (const OpCall& call : cases_of(op.signature, storage, set, seed)) {
      const CaseResult result = run_case(op, call, {});
      ++out[convicts(result.verdict) ? ampcheck::name(result.code) : ""];
      for (const CheckResult& check : result.checks)
        if (!check.cause.empty()) causes += check.cause + "\n";
    }
  return out;
}

class CustomOp : public ::testing::TestWithParam<CustomOpCase> {};
INSTANTIATE_TEST_SUITE_P(All, CustomOp, ::testing::ValuesIn(kCustomOps),
                         [](const auto& info) { return std::string(info.param.op); });

TEST_P(CustomOp, IsJudgedAsWhatItIs) {
  const OpDef& op = custom_op(GetParam());
  const std::string due = GetParam().code;
  const std::vector<Dtype>& storage = op.signature.precision.storage;
  const Dtype usually = due == "AC404"                                                ? Dtype::fp32
                        : std::count(storage.begin(), storage.end(), Dtype::bf16) > 0 ? Dtype::bf16
                                                                                      : storage.front();
  for (std::uint64_t seed = 1; seed <= (due.empty() ? 5 : 1); ++seed) {
    // Strides that only one tensor has are in the standard set; bf16 has no case above 2^16 elements, and is quick. The
    // order of a sum of bf16 numbers hardly shows in bf16.
    std::string causes;
    const auto seen = due.empty()
                          ? codes(op, CaseSet::quick, storage, seed, causes)
                          : codes(op, GetParam().quick ? CaseSet::quick : CaseSet::standard, {usually}, seed, causes);
    std::string usual;
    int most = 0;
    for (const auto& [code, cases] : seen)
      if (!code.empty() && cases > most) {
        usual = code;
        most = cases;
      }
    EXPECT_TRUE(due.empty() ? usual.empty() : usual.starts_with(due)) << usual << ", want " << due << ", seed " << seed;
    EXPECT_TRUE(contains(causes, GetParam().cause)) << "want '" << GetParam().cause << "' in\n"
                                                    << causes.substr(0, 2000);
  }
}

TEST(CustomOps, RmsNormWithBackwardFitsAScreen) {
  std::ifstream file(tests::in_data_root("/tests/custom_ops/rms_norm.cpp"));
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) EXPECT_LE(line.size(), 120u);
  EXPECT_GT(lines, 10);
  EXPECT_LE(lines, 45);
}

/// A logistic function by tanh is off by an ulp or two near 0; a sum without a term is off by more, and no form helps
/// there.
TEST(CustomOps, AForwardThatIsOffByLittleIsToldOfForms) {
  const ProgramResult little =
      testing::ampcheck("check " + kFolder + "regrouped.so logistic_by_tanh_undeclared --dtype fp32");
  EXPECT_EQ(little.exit_code, 1) << little.out;
  EXPECT_TRUE(contains(little.out, "another algebra than the formula")) << little.out;
  const ProgramResult much = testing::ampcheck("check " + kFolder + "windows.so window_sum_one_further --dtype fp32");
  EXPECT_EQ(much.exit_code, 1) << much.out;
  EXPECT_FALSE(contains(much.out, "another algebra")) << much.out;
  EXPECT_TRUE(contains(much.out, "the condition (arange(T) - 4) < arange(S)")) << much.out;
}

/// In every layout: a run with all tensors dense is wrong in the same way, so that strides are not to blame.
TEST(CustomOps, InPlaceReadsAreNotBlamedOnStrides) {
  const OpDef& op = custom_op({"in_place.so", "softmax_in_place_rereads", "AC401"});
  int strided = 0;
  for (const OpCall& call : cases_of(op.signature, Dtype::bf16, CaseSet::standard, 1)) {
    const CaseResult result = run_case(op, call, {});
    if (!convicts(result.verdict)) continue;
    EXPECT_EQ(result.code, Code::ac401) << result.name;
    strided += call.layout != "dense";
  }
  EXPECT_GT(strided, 0);
}

TEST(CustomOps, TheOnlyOpOfALibraryNeedsNoName) {
  const ProgramResult contract = testing::ampcheck("contract " + kFolder + "rms_norm_launchers.toml --dtype fp32");
  EXPECT_EQ(contract.exit_code, 0) << contract.err;
  EXPECT_TRUE(contains(contract.out, "launched_rms_norm in fp32")) << contract.out;
  const ProgramResult several = testing::ampcheck("contract " + kFolder + "rope.so");
  EXPECT_EQ(several.exit_code, 2);
  EXPECT_TRUE(contains(several.err, "[contract] got no op, want one of rope, rope_")) << several.err;
  const testing::TemporaryFolder folder;
  Tensor x(Dtype::fp32, {3, 4}), weight(Dtype::fp32, {4});
  for (std::size_t i = 0; i < 12; ++i) x.span<float>()[i] = static_cast<float>(i) - 5;
  for (float& w : weight.span<float>()) w = 2;
  std::ofstream(folder.path() + "/in.safetensors", std::ios::binary)
      << safetensors_bytes(std::vector<NamedTensor>{{"x", x}, {"weight", weight}});
  const std::string inputs = " --inputs " + folder.path() + "/in.safetensors";
  const ProgramResult check = testing::ampcheck("check " + kFolder + "rms_norm_launchers.toml" + inputs);
  EXPECT_EQ(check.exit_code, 0) << check.out << check.err;
  EXPECT_EQ(testing::ampcheck("check " + kFolder + "rope.so" + inputs).exit_code, 2);
}

TEST(CustomOps, TheProgramTakesALibrary) {
  const std::string rope = kFolder + "rope.so";
  const ProgramResult list = testing::ampcheck("list " + rope);
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_TRUE(contains(list.out, "rope_strides_of_x")) << list.out;
  EXPECT_FALSE(contains(list.out, "softmax"));
  const ProgramResult right = testing::ampcheck("check " + rope + " rope --regimes quick");
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
  EXPECT_TRUE(contains(right.out, "All clear"));
  const ProgramResult certify = testing::ampcheck("certify " + rope + " rope");
  EXPECT_EQ(certify.exit_code, 0) << certify.out << certify.err;
  const ProgramResult unknown = testing::ampcheck("check " + rope + " softmax");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_TRUE(contains(unknown.err, "got unknown op 'softmax'")) << unknown.err;
  EXPECT_EQ(testing::ampcheck("check nowhere/libx.so").exit_code, 6);
  EXPECT_EQ(testing::ampcheck("check " + rope + " " + rope).exit_code, 2);
}

TEST(CustomOps, TheLineThatRunsACaseAgainNamesTheLibrary) {
  // From its own folder and under a name that a shell would split.
  const ProgramResult run = testing::shell(
      "mkdir 'a folder' && cd 'a folder' && cp " + kFolder +
      "rope.so 'my rope.so'\n"
      "out=$($AMPCHECK check './my rope.so' rope_rotates_forward --regimes quick --shapes first); echo \"code $?\"\n"
      "line=$(echo \"$out\" | grep -m1 '^  again' | sed 's/^  again   ampcheck //'); echo \"$line\"\n"
      "eval \"$AMPCHECK $line\"; echo \"code $?\"; cd ..; rm -r 'a folder'");
  EXPECT_TRUE(contains(run.out, "code 1\nreplay './my rope.so' 'rope_rotates_forward(")) << run.out << run.err;
  EXPECT_TRUE(contains(run.out, "BUG  AC101")) << run.out << run.err;
  EXPECT_TRUE(contains(run.out.substr(run.out.size() - 8), "code 1")) << run.out;
}

TEST(CustomOps, AnOpOfOtherMathematicsKeepsNoOtherFromItsVerdict) {
  const std::string library = kFolder + "log_sigmoid.so";
  const ProgramResult run =
      testing::ampcheck("check " + library + " log_sigmoid square_of_another_form --regimes quick");
  EXPECT_EQ(run.exit_code, 2) << run.out << run.err;
  EXPECT_TRUE(contains(run.out, "\n  log_sigmoid ")) << run.out;
  EXPECT_TRUE(contains(run.out, "note: not judged, exit code 2: [" + library +
                                    ": op 'square_of_another_form'] form 'other mathematics' is not the formula"))
      << run.out;
  const ProgramResult alone = testing::ampcheck("check " + library + " square_of_another_form");
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_TRUE(alone.out.empty() && contains(alone.err, "form 'other mathematics' is not the formula"))
      << alone.out << alone.err;
}

TEST(CustomOps, AFewBadTiesAmongManyGoodOnesAreFound) {
  const std::string library = kFolder + "ties.so";
  const ProgramResult run =
      testing::ampcheck("check " + library + " 'row_maximum_all_at_times(x=bf16[1030,40],range=integers9,seed=1)'");
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  EXPECT_TRUE(contains(run.out, "NON_SMOOTH  AC204") &&
              contains(run.out, "no subgradient: the elements of dx along axis 1 through [96,"))
      << run.out;
  EXPECT_EQ(
      testing::ampcheck("check " + library + " 'row_maximum_last(x=bf16[1030,40],range=integers9,seed=1)'").exit_code,
      0);
}

TEST(CustomOps, TheFormulaLanguageIsExplained) {
  const ProgramResult run = testing::ampcheck("explain formula");
  EXPECT_EQ(run.exit_code, 0);
  for (const char* word :
       {"with dx =", "stored(name, x)", "matmul(a, b, transpose_a=0, transpose_b=0)", "size(x, axis)"})
    EXPECT_TRUE(contains(run.out, word)) << word << run.out;
}

TEST(CustomOps, ReportsNameTheLibrary) {
  const ProgramResult json =
      testing::ampcheck("check " + kFolder + "rope.so rope --regimes quick --shapes first --json");
  EXPECT_TRUE(contains(json.out, "\"plugin\":\"" + kFolder + "rope.so\"")) << json.out.substr(0, 2000);
}

TEST(CustomOps, NewWritesAnExampleThatPasses) {
  const testing::TemporaryFolder folder;
  for (const char* door : {"c", "cpp", "toml"}) {
    const std::string name = std::string("fresh_") + door;
    const ProgramResult made =
        testing::shell("cd " + folder.path() + " && $AMPCHECK new op " + name + " --door " + door);
    ASSERT_EQ(made.exit_code, 0) << made.err;
    // The lines that it prints are those that build and check it.
    const std::string lines = made.out.substr(made.out.find("\n  cd ") + 1);
    const ProgramResult run =
        testing::shell("ampcheck() { $AMPCHECK \"$@\" --regimes quick; }\nset -e\ncd " + folder.path() + "\n" + lines);
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
    EXPECT_TRUE(contains(run.out, "All clear")) << run.out;
    EXPECT_TRUE(contains(run.out, name));
  }
  EXPECT_EQ(testing::ampcheck("new op 'no name'").exit_code, 2);
  EXPECT_EQ(testing::ampcheck("new thing x").exit_code, 2);
  const ProgramResult again = testing::shell("cd " + folder.path() + " && $AMPCHECK new op fresh_c");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_TRUE(contains(again.err, "which is there already")) << again.err;
}

}  // namespace
}  // namespace ampcheck::checks
