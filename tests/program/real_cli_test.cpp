// SPDX-License-Identifier: Apache-2.0
// The program at the tensors of real runs: flags, names that re-run, missing data.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::testing {
namespace {

using nlohmann::json;

std::vector<std::string> cases(const std::string& arguments, const std::string& environment = "") {
  const ProgramResult run = ampcheck("list --cases --json " + arguments, environment);
  EXPECT_TRUE(run.exit_code == 0 || run.exit_code == 4) << run.err;
  return json::parse(run.out).at("cases").get<std::vector<std::string>>();
}

std::size_t real(const std::vector<std::string>& names) {
  return static_cast<std::size_t>(std::count_if(names.begin(), names.end(), [](const std::string& name) {
    return contains(name, "range=digits.") || contains(name, "range=text.");
  }));
}

TEST(RealCli, OnWhereTheDataIsFoundAndNamedWhereNot) {
  const std::vector<std::string> found = cases("softmax"), off = cases("softmax --real off"),
                                 only = cases("softmax --real only");
  EXPECT_EQ(real(off), 0u);
  EXPECT_GT(real(only), 0u);
  EXPECT_EQ(real(only), only.size());
  EXPECT_EQ(found.size(), off.size() + only.size());
  EXPECT_EQ(real(cases("softmax --shapes first")), 0u);
  const ProgramResult without = ampcheck("check add --regimes quick --dtype bf16", "AMPCHECK_DATA=/nonexistent");
  EXPECT_EQ(without.exit_code, 0);
  EXPECT_TRUE(contains(without.out, "no tensors of real runs")) << without.out;
  EXPECT_TRUE(contains(without.out, "/nonexistent")) << without.out;
}

TEST(RealCli, DataAskedForThatIsNotThereIsSix) {
  for (const char* arguments :
       {"check softmax --real on --data /nonexistent", "check softmax --real only --data /nonexistent",
        "check softmax --data /nonexistent",
        "replay 'softmax(x=bf16[8,16],range=digits.step1.softmax_1,seed=1)' --data /nonexistent"}) {
    const ProgramResult run = ampcheck(arguments);
    EXPECT_EQ(run.exit_code, 6) << arguments << "\n" << run.out;
    EXPECT_TRUE(contains(run.err, "--data")) << run.err;
  }
}

TEST(RealCli, NamesSelectAndReRun) {
  const std::vector<std::string> names = cases("'softmax(x=bf16*range=digits.*'");
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(cases("'" + names.front() + "'"), std::vector<std::string>{names.front()});
  const ProgramResult replayed = ampcheck("replay '" + names.front() + "'");
  EXPECT_EQ(replayed.exit_code, 0) << replayed.err;
  const ProgramResult broken = ampcheck("check softmax.sign --real only --dtype bf16");
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_TRUE(contains(broken.out, "range=digits.step1.softmax_1")) << broken.out;
}

/// The line that re-runs a failure at real tensors names the folder that they came from.
TEST(RealCli, AgainRepeatsTheDataFolder) {
  const TemporaryFolder folder;
  const std::string data = folder.path() + "/it's data", quoted = "\"" + data + "\"";
  ASSERT_EQ(shell("mkdir " + quoted + " && cp " + tests::in_data_root("/tests/data/*.*") + " " + quoted).exit_code, 0);
  const auto again = [](const std::string& out) {
    const std::size_t at = out.find("ampcheck replay '");
    if (at == std::string::npos) return std::string();
    return out.substr(at + 9, out.find('\n', at) - at - 9);
  };
  const std::string nowhere = "AMPCHECK_DATA=/nonexistent", broken = "check softmax.sign --dtype bf16 --regimes quick ";
  const ProgramResult real_only = ampcheck(broken + "--real only --data " + quoted, nowhere);
  ASSERT_EQ(real_only.exit_code, 1) << real_only.err;
  const std::string line = again(real_only.out);
  EXPECT_TRUE(line.ends_with(" --data '" + folder.path() + "/it'\\''s data'")) << line;
  const ProgramResult replayed = ampcheck(line, nowhere);
  EXPECT_EQ(replayed.exit_code, 1) << line << replayed.err;
  EXPECT_EQ(again(replayed.out), line);
  // Named only where it is needed: not for generated tensors, nor where the usual places serve.
  const ProgramResult generated = ampcheck(broken + "--shapes first --real off --data " + quoted);
  ASSERT_EQ(generated.exit_code, 1);
  EXPECT_FALSE(contains(generated.out, "--data")) << generated.out;
  EXPECT_FALSE(contains(ampcheck(broken + "--real only").out, "--data"));
}

TEST(RealCli, UnknownCallsAreUsageErrors) {
  for (const auto& [name, wanted] :
       {std::pair{"softmax(x=bf16[8,16],range=digits.step5.softmax_1,seed=1)", "digits.step4"},
        std::pair{"softmax(x=bf16[8,16],range=digits.step1.sofmax_1,seed=1)", "did you mean 'softmax_1'"},
        std::pair{"softmax(x=bf16[8,17],range=digits.step1.softmax_1,seed=1)", "D=16 N=8"}}) {
    const ProgramResult run = ampcheck("replay '" + std::string(name) + "'");
    EXPECT_EQ(run.exit_code, 2) << name;
    EXPECT_TRUE(contains(run.err, wanted)) << run.err;
  }
  EXPECT_EQ(ampcheck("check --real onyl").exit_code, 2);
}

/// A word after the value of an option is a selector, not one more value.
TEST(RealCli, OptionsTakeOneValue) {
  EXPECT_EQ(cases("--real only --dtype bf16 softmax"), cases("softmax --dtype bf16 --real only"));
  EXPECT_EQ(cases("--dtype bf16 --dtype fp32 --real only relu").size(),
            2 * cases("relu --dtype bf16 --real only").size());
}

}  // namespace
}  // namespace ampcheck::testing
