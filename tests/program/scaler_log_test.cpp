// SPDX-License-Identifier: Apache-2.0
// `ampcheck audit scaler --log` as a user calls it, and on logs of the public reports (../shared/cases/reports/logs).
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::testing {
namespace {

struct ReportedLog {
  const char* file;
  int exit_code;
  const char* verdict;
  std::vector<std::string> kinds;  ///< "question=kind"
};

void PrintTo(const ReportedLog& one, std::ostream* out) { *out << one.file; }

class ReportedLogs : public ::testing::TestWithParam<ReportedLog> {};

TEST_P(ReportedLogs, GetTheAnswerThatItsAuthorNeeded) {
  const std::string log = tests::in_data_root("/../shared/cases/reports/logs/") + GetParam().file;
  if (!std::filesystem::exists(log)) GTEST_SKIP() << "there is no ../shared/cases/reports/logs here";
  const ProgramResult got = ampcheck("audit scaler --log " + log + " --json");
  EXPECT_EQ(got.exit_code, GetParam().exit_code) << got.out << got.err;
  const auto answer = nlohmann::json::parse(got.out);
  EXPECT_EQ(answer["verdict"], GetParam().verdict);
  std::string kinds;
  for (const auto& one : answer["answers"])
    kinds += one["question"].get<std::string>() + "=" + one["kind"].get<std::string>() + "\n";
  for (const std::string& kind : GetParam().kinds) EXPECT_TRUE(contains(kinds, kind + "\n")) << kind << "\n" << kinds;
}

const ReportedLog kLogs[] = {
    {"apex_denormal.log", 1, "BROKEN", {"nan=nan_at_any_scale", "skips=floor_reached", "updates=none"}},
    {"deepspeed_nan_from_start.log", 1, "BROKEN", {"nan=nan_for_good", "skips=floor_reached", "updates=none"}},
    {"deepspeed_startup_then_probe.log", 0, "HARMLESS", {"skips=start_up_and_probes"}},
    {"hf_trainer_bf16.log", 1, "BROKEN", {"nan=nan_for_good", "missing=lacks"}},
    {"megatron_bf16_nan.log", 1, "BROKEN", {"nan=nan_for_good", "scaler=counters_lie"}},
    {"mmengine.log", 4, "CANNOT TELL", {"nan=norm_not_finite", "missing=lacks"}},
    {"paddlenlp.log", 0, "HARMLESS", {"skips=no_skips", "nan=none"}},
};
INSTANTIATE_TEST_SUITE_P(All, ReportedLogs, ::testing::ValuesIn(kLogs), [](const auto& one) {
  std::string name = one.param.file;
  for (char& c : name)
    if (c == '.') c = '_';
  return name;
});

TEST(ScalerLog, StandardInputAndColumnsOfOnesOwn) {
  const ProgramResult got = shell(
      "printf 'it,s\\n1,65536\\n2,32768\\n3,32768\\n4,32768\\n' | \"$AMPCHECK\" audit scaler --log - --columns "
      "step=it,scale=s");
  EXPECT_EQ(got.exit_code, 0) << got.err;
  EXPECT_TRUE(got.out.starts_with("HARMLESS  standard input\n")) << got.out;
  EXPECT_TRUE(contains(got.out, "1 skip at step 2, scale 65536 (2^16) to 32768 (2^15)")) << got.out;
}

TEST(ScalerLog, WrongUseIsSaid) {
  const ProgramResult nothing = shell("echo hello | \"$AMPCHECK\" audit scaler --log -");
  EXPECT_EQ(nothing.exit_code, 4);
  EXPECT_TRUE(contains(nothing.err, "none of its 1 lines says a loss scale")) << nothing.err;
  const ProgramResult rule = shell("echo step=1 loss_scale=2 | \"$AMPCHECK\" audit scaler --log - --rule torhc");
  EXPECT_EQ(rule.exit_code, 2);
  EXPECT_TRUE(contains(rule.err, "did you mean 'torch'?")) << rule.err;
  EXPECT_EQ(ampcheck("audit scaler --log no_such_file.log").exit_code, 2);
  EXPECT_EQ(ampcheck("audit scaler --log - --columns scale </dev/null").exit_code, 2);
}

TEST(ScalerLog, ALogMayBeAnErrorAlone) {
  const ProgramResult got =
      shell("echo 'ValueError: Attempting to unscale FP16 gradients.' | \"$AMPCHECK\" audit scaler --log -");
  EXPECT_EQ(got.exit_code, 1) << got.err;
  EXPECT_TRUE(contains(got.out, "1 lines: none of a known kind")) << got.out;
  EXPECT_TRUE(contains(got.out, "the scaler ended the run: the parameters are fp16")) << got.out;
}

TEST(ScalerLog, ATraceOfOnesOwnFollowsItsRule) {
  const ProgramResult got = shell(
      "cd $(mktemp -d) && \"$AMPCHECK\" train --steps 30 --growth-interval 5 --shadow off --record run.trace >trained; "
      "\"$AMPCHECK\" audit scaler --log run.trace --json; code=$?; \"$AMPCHECK\" audit scaler --log run.trace --rule "
      "deepspeed >other; echo $? >>codes; cat codes >&2; rm -rf \"$PWD\"; exit $code");
  EXPECT_EQ(got.exit_code, 0) << got.out << got.err;
  const auto answer = nlohmann::json::parse(got.out);
  EXPECT_EQ(answer["answers"][0]["kind"], "follows") << got.out;
  EXPECT_EQ(got.err, "1\n") << "another rule differs";
}

}  // namespace
}  // namespace ampcheck::testing
