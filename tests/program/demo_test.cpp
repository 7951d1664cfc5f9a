// SPDX-License-Identifier: Apache-2.0
// A repository with a kernel, its plug-in, its baseline and its jobs (tests/demo), from an unchanged kernel to each
// kind of red build. What runs are the lines of the jobs themselves.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kWorkflow = ".github/workflows/kernels.yml", kGitLab = ".gitlab-ci.yml",
                  kHook = ".pre-commit-config.yaml";

std::size_t indent_of(const std::string& line) { return std::min(line.find_first_not_of(' '), line.size()); }

/// Without a comment behind it.
std::string command_of(const std::string& text) {
  const std::size_t comment = text.find("  #");
  return text.substr(0, text.find_last_not_of(' ', comment) + 1);
}

/// The commands of a job's file in their order: `run:` of GitHub, one line or a block, and the lines of a job's
/// `script:` of GitLab. Of `job` alone, if it is named.
std::vector<std::string> commands_in(const std::string& file, const std::string& job = "") {
  std::vector<std::string> out;
  std::istringstream lines(file);
  std::string now;
  bool script = false;
  std::size_t block = 0;  // indent of the key whose block this is
  for (std::string line; std::getline(lines, line);) {
    const std::size_t indent = indent_of(line);
    if (block > 0 && indent > block) {
      out.back() += line.substr(indent) + "\n";
      continue;
    }
    block = 0;
    if (indent == 0 && line.ends_with(":")) now = line.substr(0, line.size() - 1);
    const std::size_t run = line.find("run: ");
    if (run != std::string::npos && line.substr(run + 5) == "|") {
      block = run;
      out.emplace_back();
    } else if (run != std::string::npos)
      out.push_back(command_of(line.substr(run + 5)));
    else if (line == "  script:")
      script = job.empty() || now == job;
    else if (script && line.starts_with("    - "))
      out.push_back(command_of(line.substr(6)));
    else
      script = false;
  }
  return out;
}

class Demo : public ::testing::Test {
 protected:
  /// A clone of the repository, with ampcheck where its jobs have it.
  void SetUp() override {
    fs::copy(tests::in_source("/tests/demo"), repository_, fs::copy_options::recursive);
    const ProgramResult made = here(
        "git init -q . && git add -A && git -c user.name=a -c user.email=a@b commit -qm 'the first version' && "
        "mkdir -p ampcheck/bin ampcheck-source/build ampcheck-source/src && ln -s \"$AMPCHECK\" ampcheck/bin/ampcheck "
        "&& ln -s \"$AMPCHECK\" ampcheck-source/build/ampcheck && ln -s '" +
        tests::in_source("/src/api") + "' ampcheck/include && ln -s '" + tests::in_source("/src/api") +
        "' ampcheck-source/src/api");
    ASSERT_EQ(made.exit_code, 0) << made.err;
  }

  ProgramResult here(const std::string& script) {
    return shell("cd '" + repository_ + "'; export NVCC= GITHUB_STEP_SUMMARY=summary.md; unset CI\n" + script);
  }
  /// What the job does once it has ampcheck: builds the library, and judges it. In CI, if not said otherwise.
  ProgramResult job(const std::string& before = "export CI=true") {
    std::string script = "set -e\n" + before + "\n";
    int commands = 0;
    for (const std::string& command : commands_in(read(kWorkflow)))
      if (!contains(command, "ampcheck-source")) {
        script += command + "\n";
        ++commands;
      }
    EXPECT_EQ(commands, 2) << script;
    return here(script);
  }
  void change(const std::string& name) {
    ASSERT_EQ(here("patch -s -p1 <changes/" + name + ".patch").exit_code, 0) << name;
  }
  /// A person, who gates on a machine of their own and accepts.
  ProgramResult accept(const std::string& words) {
    job("");
    return here("\"$AMPCHECK\" accept --baseline baselines " + words);
  }
  ProgramResult gate(const std::string& more) {
    return here("CI=true \"$AMPCHECK\" gate ./librow_mean.so --regimes quick --baseline baselines " + more);
  }
  std::string read(const std::string& name) { return read_text(repository_ + "/" + name); }
  void write(const std::string& name, const std::string& text) { std::ofstream(repository_ + "/" + name) << text; }

  TemporaryFolder folder_;
  std::string repository_ = folder_.path() + "/row_mean";
};

/// The page shows the files as they are.
TEST_F(Demo, ItsJobsAreThoseOfTheManual) {
  const std::string page = read_text(tests::in_source("/tools/manual/ci.md"));
  for (const std::string& file : {kWorkflow, kGitLab, kHook})
    EXPECT_TRUE(contains(page, "\n```yaml\n" + read(file) + "```\n")) << file << " is another one in ci.md";
}

TEST_F(Demo, UnchangedIsZero) {
  const ProgramResult same = job();
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  EXPECT_TRUE(contains(same.out, "row_mean      48             0           -    UNCHANGED")) << same.out;
  EXPECT_FALSE(contains(same.out, "::error")) << same.out;
  EXPECT_EQ(here("git status --porcelain baselines").out, "") << "in CI nothing is written";
}

TEST_F(Demo, AReassociatedSumIsZeroAndItsAcceptanceAReadableDiff) {
  change("reassociated");
  const ProgramResult changed = job();
  EXPECT_EQ(changed.exit_code, 0) << changed.out << changed.err;
  EXPECT_TRUE(contains(changed.out, "BITS CHANGED")) << changed.out;
  const ProgramResult accepted = accept("--reason 'the butterfly from its near end'");
  EXPECT_EQ(accepted.exit_code, 0) << accepted.out << accepted.err;
  const std::string diff = here("git diff -U0 baselines").out;
  EXPECT_TRUE(contains(diff, "\n+    \"reason\": \"the butterfly from its near end\",\n")) << diff;
  EXPECT_LE(std::count(diff.begin(), diff.end(), '\n'), 50) << diff;
  EXPECT_EQ(here("git status --porcelain baselines").out, " M baselines/row_mean.json\n") << "nothing pending is left";
  const ProgramResult merged = job();
  EXPECT_EQ(merged.exit_code, 0) << merged.out;
  EXPECT_TRUE(contains(merged.out, "UNCHANGED")) << merged.out;
}

TEST_F(Demo, ADroppedTailIsOneInEveryReport) {
  change("dropped_tail");
  const ProgramResult broken = job();
  EXPECT_EQ(broken.exit_code, 1) << broken.out << broken.err;
  const char* const cause = "a sum leaves out what follows the last full vector of 4";
  EXPECT_TRUE(contains(broken.out, cause)) << broken.out;
  EXPECT_TRUE(contains(broken.out, "\n::error file=row_mean_op.cu,line=")) << "at AMPCHECK_OP: " << broken.out;
  EXPECT_TRUE(contains(read("gate.xml"), "type=\"BUG AC101\"") && contains(read("gate.xml"), cause));
  const json results = json::parse(read("gate.sarif"))["runs"][0]["results"];
  EXPECT_TRUE(std::ranges::any_of(results, [](const json& r) { return r["ruleId"] == "AC101"; })) << results.dump();
  EXPECT_TRUE(contains(read("gate.html"), "BUG AC101") && contains(read("gate.html"), cause));
  EXPECT_TRUE(contains(read("summary.md"), "AC101")) << read("summary.md");
  EXPECT_EQ(accept("--reason 'it will do'").exit_code, 1) << "a finding cannot be accepted";
}

TEST_F(Demo, AShortAccumulatorIsOneAndAWaiverEnds) {
  change("bf16_accumulator");
  const ProgramResult broken = job();
  EXPECT_EQ(broken.exit_code, 1) << broken.out << broken.err;
  EXPECT_TRUE(contains(broken.out, "PRECISION_CONTRACT AC301")) << broken.out;
  EXPECT_EQ(accept("--waive AC301 --until 2099-06-30 --reason 'issue 7'").exit_code, 1) << "AC203 is left";
  EXPECT_EQ(accept("--waive AC203,AC301 --until 2099-06-30 --reason 'issue 7'").exit_code, 0);
  const ProgramResult waived = gate("--today 2099-06-30");
  EXPECT_EQ(waived.exit_code, 0) << waived.out;
  const ProgramResult expired = gate("--today 2099-07-01");
  EXPECT_EQ(expired.exit_code, 7) << expired.out;
  EXPECT_TRUE(contains(expired.out, "the waiver of AC301 expired on 2099-06-30")) << expired.out;
}

TEST_F(Demo, AStaleBaselineIsSevenAndNothingSelectedIsFour) {
  ASSERT_EQ(job().exit_code, 0);
  EXPECT_EQ(gate("--dtype e5m2").exit_code, 4);
  json state = json::parse(read("baselines/row_mean.json"));
  const std::string first = state["cases"].begin().key();
  state["cases"]["row_mean(x=fp32[2,2],seed=1)"] = state["cases"][first];  // nothing runs that any more
  std::ofstream(repository_ + "/baselines/row_mean.json") << state.dump(2);
  const ProgramResult stale = job();
  EXPECT_EQ(stale.exit_code, 7) << stale.out << stale.err;
}

/// The two parts of GitLab's job, and ranks, each with the bytes of one run; also where a part was killed.
TEST_F(Demo, PartsAndRanksGiveTheBytesOfOneRun) {
  change("dropped_tail");
  std::string part, report;
  for (const std::string& command : commands_in(read(kGitLab), "kernels"))
    if (!contains(command, "tools/setup")) part += command + "\n";
  for (const std::string& command : commands_in(read(kGitLab), "report"))
    if (!contains(command, "tools/setup")) report += command + "\n";
  for (const int node : {1, 2}) {
    const ProgramResult one =
        here("export CI_NODE_INDEX=" + std::to_string(node) + " CI_NODE_TOTAL=2\nset -e\n" + part);
    EXPECT_EQ(one.exit_code, 1) << one.out << one.err;
  }
  const ProgramResult merged = here(report);
  EXPECT_EQ(merged.exit_code, 1) << merged.out << merged.err;
  const std::string check = "\"$AMPCHECK\" check ./librow_mean.so --regimes quick --no-times -o junit:";
  const ProgramResult whole = here(check + "whole.xml");
  EXPECT_EQ(merged.out, whole.out);
  EXPECT_TRUE(read("check.xml") == read("whole.xml"));
  EXPECT_TRUE(json::parse(read("quality.json")).is_array());

  const std::string ranks =
      shell("command -v mpirun").exit_code == 0
          ? "mpirun --allow-run-as-root --oversubscribe -n 2 " + check + "ranks.xml --engine mpi --run-file job"
          : "export OMPI_COMM_WORLD_SIZE=2; OMPI_COMM_WORLD_RANK=1 " + check +
                "none.xml --engine mpi --run-file job >rank1 & OMPI_COMM_WORLD_RANK=0 " + check +
                "ranks.xml --engine mpi --run-file job; wait";
  const ProgramResult two = here(ranks);
  EXPECT_TRUE(read("ranks.xml") == read("whole.xml")) << two.out << two.err;

  const ProgramResult killed =
      here(check +
           "lost.xml --run-file a.run >lost 2>&1 & pid=$!; until [ -s a.run ]; do sleep 0.01; done; "
           "kill -9 $pid; wait $pid");
  EXPECT_EQ(killed.exit_code, 137) << read("lost");
  EXPECT_EQ(here(check + "again.xml --run-file a.run").exit_code, 1);
  EXPECT_TRUE(read("again.xml") == read("whole.xml"));
}

/// The hook as git runs it: a wrong kernel is not committed, one with other bits is.
TEST_F(Demo, TheHookRefusesAWrongKernel) {
  const std::string text = read(kHook), key = "entry: ";
  const std::size_t begin = text.find(key) + key.size();
  ASSERT_GT(begin, key.size()) << text;
  std::ofstream(repository_ + "/.git/hooks/pre-commit")
      << "#!/bin/sh\nexport HEADERS=ampcheck/include PATH=\"$PWD/ampcheck/bin:$PATH\"\n"
      << text.substr(begin, text.find('\n', begin) - begin) << "\n";
  ASSERT_EQ(here("chmod +x .git/hooks/pre-commit").exit_code, 0);
  const std::string commit = "git -c user.name=a -c user.email=a@b commit -qam change";
  change("dropped_tail");
  const ProgramResult refused = here(commit);
  EXPECT_EQ(refused.exit_code, 1) << refused.out << refused.err;
  EXPECT_TRUE(contains(refused.out + refused.err, "BUG AC101")) << refused.out << refused.err;
  EXPECT_EQ(here("git checkout -q .").exit_code, 0);
  change("reassociated");
  const ProgramResult committed = here(commit);
  EXPECT_EQ(committed.exit_code, 0) << committed.out << committed.err;
  EXPECT_EQ(here("git log --oneline | wc -l").out, "2\n");
}

/// The commands of the action, where GitHub would put its source beside the repository; what it is built with is there.
TEST_F(Demo, TheActionJudgesAsTheJobDoes) {
  const std::string action = read_text(tests::in_source("/tools/action/action.yml"));
  std::string script = "set -e\n";
  for (const std::string& command : commands_in(action)) script += "( " + command + ")\n";
  const std::string around =
      "mkdir -p act/tools/action act/build stand && ln -sf \"$AMPCHECK\" act/build/ampcheck\n"
      "printf '#!/bin/sh\\necho \"$(basename $0) $*\" >>\"$CALLS\"\\n' >act/tools/setup && cp act/tools/setup "
      "act/tools/build\n"
      "printf '#!/bin/sh\\nmkdir -p \"$4/bin\" && ln -sf \"$2/ampcheck\" \"$4/bin\" && ln -sfn \"$API\" "
      "\"$4/include\"\\n' "
      ">stand/cmake\nchmod +x act/tools/setup act/tools/build stand/cmake\n"
      "export GITHUB_ACTION_PATH=$PWD/act/tools/action GITHUB_OUTPUT=$PWD/output CALLS=$PWD/calls CI=true "
      "PATH=\"$PWD/stand:$PATH\" API='" +
      tests::in_source("/src/api") +
      "' LIBRARY=./librow_mean.so BUILD='sh build.sh' ARGUMENTS='--regimes quick --dtype fp32'\n";
  write("action.sh", script);
  const auto act = [&](const std::string& baseline) {
    return here(around + "export BASELINE=" + baseline + "; bash action.sh");
  };
  const ProgramResult same = act("baselines");
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  EXPECT_TRUE(contains(same.out, "UNCHANGED")) << same.out;
  EXPECT_EQ(read("calls"), "setup \nbuild release --target ampcheck\n");
  EXPECT_EQ(read("output").find("hash="), 0u);
  EXPECT_EQ(read("output").size(), std::string("hash=\n").size() + 32) << read("output");
  change("dropped_tail");
  for (const char* const baseline : {"baselines", "''"}) {
    const ProgramResult broken = act(baseline);
    EXPECT_EQ(broken.exit_code, 1) << broken.out << broken.err;
    EXPECT_TRUE(contains(broken.out, "\n::error file=row_mean_op.cu,line=")) << broken.out;
    EXPECT_TRUE(contains(read("ampcheck.xml"), "type=\"BUG AC101\"")) << baseline;
  }
}

/// Where nvcc is, the kernel itself is in the library, and its CPU twin is judged as before.
TEST_F(Demo, TheCudaKernelIsBuilt) {
  const std::string nvcc =
      shell("command -v nvcc || { test -x /usr/local/cuda/bin/nvcc && echo /usr/local/cuda/bin/nvcc; }").out;
  if (nvcc.empty()) GTEST_SKIP() << "no nvcc";
  const ProgramResult built = job("export CI=true NVCC=" + nvcc.substr(0, nvcc.find('\n')));
  EXPECT_EQ(built.exit_code, 0) << built.out << built.err;
  EXPECT_TRUE(contains(built.out, "UNCHANGED")) << built.out;
  EXPECT_TRUE(contains(read("librow_mean.so"), "row_mean_kernel")) << "the kernel is not in it";
}

}  // namespace
}  // namespace ampcheck::testing
