// SPDX-License-Identifier: Apache-2.0
// Cases from outside on which a verdict was once wrong (../shared/cases): ops in one file, dumps and inputs, each with
// what is due. Ops are compiled as their authors would do it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::testing {
namespace {

namespace fs = std::filesystem;

struct SharedCase {
  const char* name;
  const char* source;     ///< C++ file of the op, below ../shared/cases; empty: none
  const char* arguments;  ///< of ampcheck; LIB is the op's library, CASES the folder of the cases
  int exit_code;
  std::vector<std::string> says, says_not = {};
};

void PrintTo(const SharedCase& one, std::ostream* out) { *out << one.name; }

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

class SharedCases : public ::testing::TestWithParam<SharedCase> {};

TEST_P(SharedCases, GetWhatIsDue) {
  const std::string cases = tests::in_data_root("/../shared/cases");
  if (!fs::exists(cases)) GTEST_SKIP() << "there is no ../shared/cases here";
  const TemporaryFolder folder;
  const std::string library = folder.path() + "/libcase.so";
  if (*GetParam().source != '\0') {
    const ProgramResult built =
        shell("c++ -std=c++20 -O1 -ffp-contract=off -shared -fPIC -I " + tests::in_source("/src/api") + " " + cases +
              "/" + GetParam().source + " -o " + library);
    if (built.exit_code == 127) GTEST_SKIP() << "there is no c++ here";
    ASSERT_EQ(built.exit_code, 0) << built.err;
  }
  const ProgramResult got =
      ampcheck(replaced(replaced(GetParam().arguments, "LIB", library), "CASES", cases), "NO_COLOR=1");
  EXPECT_EQ(got.exit_code, GetParam().exit_code) << got.out << got.err;
  for (const std::string& words : GetParam().says) EXPECT_TRUE(contains(got.out, words)) << words << "\n" << got.out;
  for (const std::string& words : GetParam().says_not)
    EXPECT_FALSE(contains(got.out, words)) << words << "\n" << got.out;
}

const SharedCase kCases[] = {
    // A grouping may not cancel where the formula does not.
    {"OnePassNormAtInputs",
     "reports/ln_onepass.cpp",
     "check LIB fused_layer_norm --inputs CASES/reports/ln_rows.npz",
     1,
     {"AC"},
     {"All clear"}},
    {"OnePassNormDumped",
     "",
     "check --dump CASES/reports/ln_dump_row100.npz --formula "
     "'c = x - mean(x, -1); y = c * rsqrt(mean(c * c, -1) + 0.00001) * gamma'",
     1,
     {"AC"},
     {"All clear"}},
    // What nobody judged is never green.
    {"NothingJudgedInADump",
     "",
     "check --dump CASES/reports/guard_equal_dump.npz --formula "
     "'y = (s - min(s, -1)) / (max(s, -1) - min(s, -1) + 1e-8)'",
     4,
     {"Nothing was judged"},
     {"All clear", "ROUNDING"}},
    {"NothingJudgedAtInputs",
     "reports/fp16_guard.cpp",
     "check LIB minmax_fp16 --inputs CASES/reports/guard_equal.npz",
     4,
     {"Nothing was judged"},
     {"All clear"}},
    // An infinite input opens what it reaches in the formula's own arithmetic, and no more.
    {"InfinityInASoftmax",
     "",
     "check --dump CASES/reports/softmax_inf.safetensors --formula "
     "'e = exp(x - stop_gradient(max(x,-1))); y = e / sum(e,-1)'",
     1,
     {"BUG"},
     {"All clear"}},
    {"InfinityInANorm",
     "",
     "check --dump CASES/reports/norm_inf.safetensors --formula 'y = x * rsqrt(mean(x^2,-1) + 1e-6)'",
     1,
     {"BUG"},
     {"All clear"}},
    // Causes that were of another kind: each names what the author has to mend.
    {"CountOfOneTerm",
     "outside/01_bf16_cause_for_a_formula_error.cpp",
     "check LIB --regimes quick",
     1,
     {"the count is off by one", "an eps of 0.1 added to sqrt"},
     {"accumulates in", "AC101  norm_right"}},
    {"AddingIsExplainedAsSetting",
     "outside/02_accumulating_hides_the_class.cpp",
     "check LIB --regimes quick",
     1,
     {"AC101  adds_wrong_sign", "with the other sign of the term", "off by a constant factor of 1.0001"},
     {"AC408", "adds_right backward"}},
    {"ASubnormalNumberIsNotFlushed",
     "outside/03_subnormal_for_zero.cpp",
     "check LIB exp_never_zero",
     1,
     {"AC101"},
     {"AC303"}},
    {"AVectorHasNoDiagonal",
     "outside/04_upper_triangle_of_a_vector.cpp",
     "check LIB",
     1,
     {"only in full vectors of 4: the tail behind them is right",
      "subnormal numbers taken as the smallest normal number"},
     {"diagonal"}},
    {"CancellationIsNoFastFunction",
     "outside/05_cancellation_called_fast_exp.cpp",
     "check LIB",
     1,
     {"tanh as 2 sigmoid(2x) - 1: it cancels", "(exp(v) - 1) + 1"},
     {"AC304", "fast-math"}},
    {"DerivativeAtTheOutput",
     "outside/06_derivative_at_the_output.cpp",
     "check LIB --regimes quick",
     1,
     {"right for y in place of x: the derivative is taken at the output"}},
    {"NoDerivativeButOneSidedOnes",
     "outside/07_nan_at_equal_pair.cpp",
     "check LIB",
     1,
     {"AC102  distance_nan", "AC101  distance_1e30", "its one-sided ones lie between -1 and 1"},
     {"distance_zero backward"}},
    {"RowsFarBelowZero",
     "outside/08_softmax_max_from_minus_10000.cpp",
     "check LIB",
     1,
     {"softmax_from_minus_10000 ", "softmax_from_0 "},
     {"softmax_from_minus_1e30 forward"}},
    {"AnotherKinkThanTheDeclaredOne",
     "outside/09_kink_not_declared_turns_bug.cpp",
     "check LIB",
     0,
     {"NON_SMOOTH AC205"}},
    {"NaNForInfinity",
     "outside/11_ac103_words.cpp",
     "check LIB",
     1,
     {"not the NaN or infinity that is due", "NaN where infinity is due"},
     {"finite where"}},
    {"DenormalsAreZero", "outside/12_denormals_are_zero.cpp", "check LIB", 1, {"flushes subnormals"}, {"AC101"}},
    {"DoublesAreJudged", "outside/14_fp64_storage.cpp", "check LIB", 0, {"All clear", "fp64"}},
    {"AttributesMeetSubnormalNumbers", "outside/23_branch_below_1e-10.cpp", "check LIB sq_s1", 1, {"AC101", "s=3"}},
    {"AttributesMeetSubnormalNumbersOfAForm", "outside/23_branch_below_1e-10.cpp", "check LIB sq_s1_form", 1, {"AC"}},
    {"ProductsInFp16Too",
     "",
     "check --dump CASES/reports/acc16_1024.npz --formula 'y = a @ b'",
     1,
     {"accumulates in fp16, and rounds each product to it"},
     {"bf16"}},
    {"ContractOfAnFp16Accumulator",
     "reports/mm_fp16acc.cpp",
     "contract LIB",
     0,
     {"fp16", "one after the other"},
     {"no contract explains it", "Something else is wrong"}},
    {"SaturationIsCounted",
     "",
     "check --dump CASES/reports/fp8_encode.safetensors --formula 'q = x * s'",
     0,
     {"saturated"}},
    // Whatever a library does to its process, a wrong op never passes and a right one says what its library does.
    {"ALibraryThatEndsAsItIsLoaded", "reliability/ctor_exit0.cpp", "check LIB", 1, {"CRASH AC501"}, {"All clear"}},
    {"ALibraryThatEndsAsItIsDescribed", "reliability/desc_exit0.cpp", "check LIB", 1, {"CRASH AC501"}, {"All clear"}},
    {"ALibraryThatEndsAsItIsUnloaded", "reliability/dtor_exit0.cpp", "check LIB --regimes quick", 1, {"BUG"}},
    {"ALibraryThatEndsAtExit", "reliability/atexit0.cpp", "check LIB --regimes quick", 1, {"BUG"}},
    {"ADescriptionThatNeverReturns", "reliability/desc_loop.cpp", "check LIB --timeout 1", 1, {"TIMEOUT AC502"}},
    {"ARoundingModeThatIsLeft",
     "reliability/leave_zero.cpp",
     "check LIB --regimes quick",
     0,
     {"left the rounding mode toward zero", "All clear"}},
    {"AnotherRoundingModeThatIsLeft",
     "reliability/leave_up.cpp",
     "check LIB --regimes quick",
     0,
     {"left the rounding mode upward", "All clear"}},
    {"ATraceOfAStepThatNeverEnded", "", "trace CASES/reliability/v2z -o html:/dev/null", 2, {}},
    {"ATraceOfStepAMillion", "", "trace CASES/reliability/big1000000.trace -o html:/dev/null", 2, {}},
    {"ATraceOfStepsInDisorder", "", "trace CASES/reliability/trace_heat_map_min.trace -o html:/dev/null", 2, {}},
    {"ANameWithControls", "", "check relu --inputs CASES/reliability/st_c1_name.safetensors", 2, {}},
    {"ACrashShowsItsAssertion",
     "outside/15_crash_text.cpp",
     "check LIB --regimes quick",
     1,
     {"LIB_ASSERT(same_shape(a, b)) failed", "signal 6"}},
};

/// Launchers in C, as a library and a TOML file have them.
class SharedLaunchers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(cases)) GTEST_SKIP() << "there is no ../shared/cases here";
    if (shell("cc --version").exit_code != 0) GTEST_SKIP() << "there is no cc here";
  }
  /// Builds a case's C file into the folder and writes a TOML file beside it.
  void build(const std::string& source, const std::string& toml) {
    const ProgramResult built = shell("cc -std=c11 -O1 -ffp-contract=off -shared -fPIC " + cases + "/outside/" +
                                      source + ".c -o " + folder.path() + "/lib" + source + ".so -lm");
    ASSERT_EQ(built.exit_code, 0) << built.err;
    std::ofstream(folder.path() + "/op.toml") << toml;
  }
  std::string text(const std::string& file) const {
    std::ifstream in(cases + "/outside/" + file);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  ProgramResult check() const { return ampcheck("check " + folder.path() + "/op.toml", "NO_COLOR=1"); }

  const std::string cases = tests::in_data_root("/../shared/cases");
  const TemporaryFolder folder;
};

TEST_F(SharedLaunchers, AGradientMayOverwriteItsCotangent) {
  const std::string toml = text("19_in_place_backward.toml");
  build("19_in_place", toml);
  const ProgramResult right = check();
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
  build("19_in_place", replaced(toml, "x * sigmoid(x)", "x * tanh(x)"));
  EXPECT_EQ(check().exit_code, 1);
}

TEST_F(SharedLaunchers, AGradientThatNothingWritesIsRefused) {
  const std::string toml = text("19_y_in_backward.toml");
  build("19_in_place", toml);
  const ProgramResult refused = check();  // nothing passes dx
  EXPECT_EQ(refused.exit_code, 2) << refused.out;
  EXPECT_TRUE(contains(refused.err, "got no 'dx'")) << refused.err;
}

TEST_F(SharedLaunchers, MatmulBroadcastsItsBatch) {
  const std::string toml = text("22_matmul_batch.toml");
  build("22_matmul_batch", replaced(toml, "formula =", "accumulates = [\"dinp\", \"dweight\"]\nformula ="));
  const ProgramResult right = check();
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
  build("22_matmul_batch", toml);  // it adds, and does not say so
  EXPECT_EQ(check().exit_code, 1);
}

INSTANTIATE_TEST_SUITE_P(All, SharedCases, ::testing::ValuesIn(kCases),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace ampcheck::testing
