// SPDX-License-Identifier: Apache-2.0
// Parts of a check on several machines, and a check that goes on where it ended: the reports are those of one run.
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tools/runs/base64.h"
#include "tools/runs/run_file.h"

namespace ampcheck::testing {
namespace {

class Shards : public ::testing::Test {
 protected:
  ProgramResult run(const std::string& arguments) {
    return shell("cd '" + folder_.path() + "'; OPS='" + tests::in_build("/custom_ops") + "'; \"$AMPCHECK\" " +
                 arguments);
  }
  std::string read(const std::string& name) { return read_text(folder_.path() + "/" + name); }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path() + "/" + name, std::ios::binary) << text;
  }
  /// Runs all parts, and merges them into NAME.json and NAME.xml.
  ProgramResult merged(const std::string& check, int parts, const std::string& name) {
    std::string files;
    for (int part = 1; part <= parts; ++part) {
      const std::string file = name + std::to_string(part) + ".run";
      const ProgramResult one =
          run(check + " --shard " + std::to_string(part) + "/" + std::to_string(parts) + " --run-file " + file);
      EXPECT_LE(one.exit_code, 2) << one.out << one.err;
      files += " " + file;
    }
    return run("merge" + files + " --no-times -o json:" + name + ".json -o junit:" + name + ".xml");
  }

  TemporaryFolder folder_;
};

/// Right and wrong kernels, with explanations, smallest cases, aimed cases and notes: all of it is of whole ops.
/// mpirun binds each of two ranks to one core.
TEST_F(Shards, BytesDoNotTellOnHowManyThreads) {
  const std::string check = "check relu --regimes quick --shapes first --no-times --json";
  const ProgramResult all = ampcheck(check), one = ampcheck(check + " -j 1"),
                      bound = shell("taskset -c 0 \"$AMPCHECK\" " + check);
  EXPECT_EQ(all.exit_code, 0) << all.err;
  EXPECT_EQ(one.out, all.out);
  EXPECT_EQ(bound.out, all.out);
}

TEST_F(Shards, MergedIsByteForByteTheWholeRun) {
  for (const std::string& check :
       {std::string("check softmax relu softmax.dropped_tail softmax.bf16_accumulation --regimes quick"),
        std::string("check $OPS/log_sigmoid.so --regimes quick")}) {
    const ProgramResult whole = run(check + " --no-times -o json:whole.json -o junit:whole.xml");
    for (const int parts : {1, 2, 3, 7}) {
      const std::string name = "p" + std::to_string(parts);
      const ProgramResult all = merged(check, parts, name);
      EXPECT_EQ(all.exit_code, whole.exit_code) << all.err;
      EXPECT_EQ(all.out, whole.out) << parts;
      EXPECT_TRUE(read(name + ".json") == read("whole.json")) << check << " in " << parts << " parts";
      EXPECT_TRUE(read(name + ".xml") == read("whole.xml")) << check << " in " << parts << " parts";
    }
    shell("cd '" + folder_.path() + "'; rm -f *.run");
  }
}

TEST_F(Shards, AMissingPartIsFive) {
  const std::string check = "check softmax --regimes quick ";
  for (const char* part : {"1", "3"}) run(check + "--shard " + part + "/3 --run-file part" + part + ".run");
  const ProgramResult part = run("merge part1.run part3.run");
  EXPECT_EQ(part.exit_code, 5) << part.out << part.err;
  EXPECT_TRUE(contains(part.out, "are in none of the files")) << part.out;
}

TEST_F(Shards, AFindingOfAPartIsOne) {
  const std::string check = "check softmax.sign --regimes quick --dtype fp32 ";
  EXPECT_EQ(run(check + "--shard 1/2 --run-file a.run").exit_code, 1);
  EXPECT_EQ(run("merge a.run").exit_code, 1) << "graver than a missing part";
}

TEST_F(Shards, PartsOfAnotherCheckAreSeven) {
  run("check softmax --regimes quick --shard 1/2 --run-file a.run");
  run("check relu --regimes quick --shard 2/2 --run-file b.run");
  run("check softmax --regimes quick --shard 2/3 --run-file c.run");
  for (const char* files : {"a.run b.run", "a.run c.run"}) {
    const ProgramResult foreign = run(std::string("merge ") + files);
    EXPECT_EQ(foreign.exit_code, 7) << files << foreign.out;
    EXPECT_TRUE(contains(foreign.err, "which differ in")) << foreign.err;
  }
  write("text.run", "hello\n");
  EXPECT_EQ(run("merge text.run").exit_code, 7);
  EXPECT_EQ(run("merge none.run").exit_code, 2);
  EXPECT_EQ(run("check relu --regimes quick --run-file a.run").exit_code, 7) << "goes on from another check";
  for (const char* shard : {"0/2", "3/2", "1", "a/b", "1/0", "1/2/3"})
    EXPECT_EQ(run(std::string("check relu --shard ") + shard).exit_code, 2) << shard;
}

/// Wherever a run is cut off, in a line or between two, it goes on to the same report.
TEST_F(Shards, ACutRunGoesOnToTheSameReport) {
  const std::string check = "check softmax.dropped_tail relu --regimes quick --dtype bf16 --no-times ";
  const ProgramResult whole = run(check + "--run-file whole.run -o json:whole.json");
  EXPECT_EQ(whole.exit_code, 1);
  const std::string file = read("whole.run");
  ASSERT_GT(file.size(), 10'000u);
  for (const double share : {0.1, 0.37, 0.5, 0.93}) {
    write("cut.run", file.substr(0, static_cast<std::size_t>(share * static_cast<double>(file.size()))));
    const ProgramResult rest = run(check + "--run-file cut.run -o json:cut.json");
    EXPECT_EQ(rest.exit_code, 1) << rest.err;
    EXPECT_TRUE(contains(rest.err, "going on from 'cut.run'")) << rest.err;
    EXPECT_EQ(rest.out, whole.out);
    EXPECT_TRUE(read("cut.json") == read("whole.json")) << share;
    EXPECT_EQ(run(check + "--run-file cut.run -o json:again.json").out, whole.out) << "and once more, from all of it";
  }
}

TEST_F(Shards, AChangedByteIsNoResult) {
  const std::string check = "check relu --regimes quick --dtype fp32 --no-times ";
  const ProgramResult whole = run(check + "--run-file a.run");
  std::string file = read("a.run");
  const std::size_t in_case = file.find("\"result\":\"", file.size() / 2) + 20;
  file[in_case] = file[in_case] == 'A' ? 'B' : 'A';
  write("a.run", file);
  EXPECT_EQ(run(check + "--run-file a.run").out, whole.out) << "the case runs again";
}

/// Frozen: a part of the cases of today is the same part tomorrow.
TEST_F(Shards, TheHashIsFrozen) {
  EXPECT_EQ(tools::shard_of("softmax(x=bf16[5,7],seed=1)", 4), 3);
  EXPECT_EQ(tools::shard_of("relu(x=fp32[2,3],seed=1)", 4), 3);
  EXPECT_EQ(tools::shard_of("", 10'000), 1);
  std::vector<int> counts(8);
  for (int seed = 0; seed < 8000; ++seed)
    ++counts[static_cast<std::size_t>(tools::shard_of("relu(x=fp32[2,3],seed=" + std::to_string(seed) + ")", 8) - 1)];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 6 * std::sqrt(1000 * 7.0 / 8));
}

TEST_F(Shards, EachLineOfARunFileIsJsonWithItsLength) {
  run("check 'relu(x=fp32[2,3],seed=1)' --run-file a.run");
  std::istringstream lines(read("a.run"));
  std::set<std::string> events;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    EXPECT_EQ(json.at("length").get<std::size_t>(), line.size() - line.find("\"record\":") - 10) << line;
    events.insert(json.at("record").at("event"));
  }
  EXPECT_EQ(events, (std::set<std::string>{"begin", "case", "end"}));
}

TEST(Base64, ThereAndBack) {
  for (const auto& [bytes, text] :
       {std::pair{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}}) {
    EXPECT_EQ(tools::to_base64(bytes), text);
    EXPECT_EQ(tools::from_base64(text), bytes);
  }
  for (const char* bad : {"Z", "Zg=", "=g==", "Zg==Zg==", "Z===", "Zm9\n"})
    EXPECT_FALSE(tools::from_base64(bad)) << bad;
}

/// Variables of runners and clusters, and what is to be said on standard error; empty: wrong use.
struct SaidByVariables {
  const char* variables;
  const char* says;
};

TEST_F(Shards, AutoIsWhatTheEnvironmentSays) {
  const SaidByVariables cases[] = {
      {"GTEST_SHARD_INDEX=0 GTEST_TOTAL_SHARDS=3", "part 1 of 3 (GTEST_SHARD_INDEX=0, GTEST_TOTAL_SHARDS=3)"},
      {"TEST_SHARD_INDEX=2 TEST_TOTAL_SHARDS=3", "part 3 of 3 (TEST_SHARD_INDEX=2, TEST_TOTAL_SHARDS=3)"},
      {"CI_NODE_INDEX=1 CI_NODE_TOTAL=3", "part 1 of 3 (CI_NODE_INDEX=1, CI_NODE_TOTAL=3)"},
      {"SLURM_ARRAY_TASK_ID=14 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=10 SLURM_ARRAY_TASK_STEP=2",
       "part 3 of 3 (SLURM_ARRAY_TASK_ID=14, SLURM_ARRAY_TASK_COUNT=3)"},
      {"SLURM_PROCID=1 SLURM_NTASKS=3 SLURM_STEP_ID=0", "part 2 of 3 (SLURM_PROCID=1, SLURM_NTASKS=3)"},
      {"SLURM_PROCID=0 SLURM_NTASKS=3", "part 1 of 1 (no variable says another)"},
      {"", "part 1 of 1 (no variable says another)"},
      {"CI_NODE_INDEX=0 CI_NODE_TOTAL=3", ""},
      {"TEST_SHARD_INDEX=3 TEST_TOTAL_SHARDS=3", ""},
      {"TEST_TOTAL_SHARDS=3", ""},
      {"TEST_SHARD_INDEX=x TEST_TOTAL_SHARDS=3", ""},
      {"SLURM_ARRAY_TASK_ID=11 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=10 SLURM_ARRAY_TASK_STEP=2", ""}};
  for (const auto& [variables, says] : cases) {
    const ProgramResult one = shell(std::string("env -u CI_NODE_INDEX -u CI_NODE_TOTAL -u SLURM_STEP_ID ") + variables +
                                    " $AMPCHECK check relu --regimes quick --shapes first --shard auto");
    EXPECT_EQ(one.exit_code, *says == '\0' ? 2 : 0) << variables << one.err;
    EXPECT_TRUE(contains(one.err, *says == '\0' ? "[environment]" : says)) << variables << one.err;
  }
  const ProgramResult touched =
      shell("cd '" + folder_.path() + "'; TEST_SHARD_INDEX=0 TEST_TOTAL_SHARDS=2 TEST_SHARD_STATUS_FILE=status " +
            "$AMPCHECK check relu --regimes quick --shapes first --shard auto");
  EXPECT_EQ(touched.exit_code, 0) << touched.err;
  EXPECT_TRUE(std::filesystem::exists(folder_.path() + "/status"));
}

/// Ranks of one job, as mpirun starts them; $OPTIONS are those of check.
const std::string kRanks =
    "ranks() { n=$1; for r in $(seq 1 $((n - 1))); do OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=$n \"$AMPCHECK\" "
    "check "
    "$OPTIONS --engine mpi --run-file job$n >out$r 2>err$r & done; OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=$n "
    "\"$AMPCHECK\" check $OPTIONS --engine mpi --run-file job$n --no-times -o json:ranks$n.json; code=$?; wait; return "
    "$code; }\n";

TEST_F(Shards, RanksGiveTheBytesOfOneRun) {
  const std::string check = "softmax relu softmax.dropped_tail --regimes quick --dtype fp32";
  const ProgramResult whole = run("check " + check + " --no-times -o json:whole.json");
  for (const int n : {1, 2, 4}) {
    const ProgramResult all = shell("cd '" + folder_.path() + "'; OPTIONS='" + check + "'\n" + kRanks + "ranks " +
                                    std::to_string(n) + "; code=$?; cat out* 2>/dev/null; exit $code");
    EXPECT_EQ(all.exit_code, whole.exit_code) << all.err;
    EXPECT_EQ(all.out, whole.out) << "rank 0 alone reports";
    EXPECT_TRUE(read("ranks" + std::to_string(n) + ".json") == read("whole.json")) << n << " ranks";
    EXPECT_TRUE(contains(all.err, std::to_string(n) + " rank")) << all.err;
  }
}

/// An op that may not be judged ends no rank.
TEST_F(Shards, RanksLeaveOutARefusedOpAsOneRunDoes) {
  const std::string check = tests::in_build("/custom_ops/log_sigmoid.so") + " --regimes quick --dtype fp32";
  const ProgramResult whole = run("check " + check + " --no-times -o json:whole.json");
  EXPECT_TRUE(contains(whole.out, "not judged, exit code 2")) << whole.out;
  const ProgramResult all = shell("cd '" + folder_.path() + "'; OPTIONS='" + check + "'\n" + kRanks + "ranks 2");
  EXPECT_EQ(all.exit_code, whole.exit_code) << all.err;
  EXPECT_EQ(all.out, whole.out);
  EXPECT_TRUE(read("ranks2.json") == read("whole.json"));
}

/// mpirun binds each rank to cores of its own; behind the last part all of them are rank 0's.
TEST_F(Shards, RankZeroReportsOnTheCoresOfAllRanksOfItsMachine) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::vector<std::string> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) cores.push_back(std::to_string(core));
  if (cores.size() < 2) GTEST_SKIP() << "one core alone, and two ranks want one each";
  for (const int n : {1, 2}) {
    std::string job =
        "export OMPI_COMM_WORLD_SIZE=" + std::to_string(n) + " OMPI_COMM_WORLD_LOCAL_SIZE=" + std::to_string(n) +
        "; check='relu softmax --regimes quick --engine mpi -j 1 --run-file job" + std::to_string(n) + "'\n";
    if (n == 2) job += "OMPI_COMM_WORLD_RANK=1 taskset -c " + cores[1] + " \"$AMPCHECK\" check $check 2>err1 &\n";
    job += "OMPI_COMM_WORLD_RANK=0 taskset -c " + cores[0] +
           " \"$AMPCHECK\" check $check --json; code=$?; wait; exit $code";
    const ProgramResult all = shell("cd '" + folder_.path() + "'; " + job);
    ASSERT_EQ(all.exit_code, 0) << all.err;
    const int threads = nlohmann::json::parse(all.out).at("environment").at("threads");
    const std::string claims = shell("cat '" + folder_.path() + "'/job" + std::to_string(n) + "/*.claim").out;
    EXPECT_EQ(threads, contains(claims, "begun by rank 1") ? 2 : 1) << claims;
    EXPECT_TRUE(contains(claims, "with 1 of cores " + cores[0] + "\n")) << claims;
  }
}

TEST_F(Shards, ARankThatIsKilledLosesItsPartAlone) {
  const std::string check = tests::in_build("/custom_ops/hostile.so") + " loops --regimes quick --timeout 1 --jobs 1";
  const ProgramResult whole = run("check " + check + " --no-times -o json:whole.json");
  const ProgramResult all =
      shell("cd '" + folder_.path() + "'; OPTIONS='" + check + "'\n" + kRanks +
            "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 \"$AMPCHECK\" check $OPTIONS --engine mpi --run-file job1 "
            "2>none & lost=$!; sleep 1; ranks 1 & rest=$!; sleep 0.5; kill -9 $lost; wait $rest");
  EXPECT_EQ(all.exit_code, 1) << all.out << all.err;
  EXPECT_LT(all.seconds, 40);
  EXPECT_TRUE(read("ranks1.json") == read("whole.json")) << all.out << all.err;
}

/// What starts the ranks may go on without rank 0: a job without a report is not green, and goes on later.
TEST_F(Shards, AKilledRankZeroMakesTheOthersIncomplete) {
  const std::string check = tests::in_build("/custom_ops/hostile.so") + " loops --regimes quick --timeout 1 --jobs 1";
  const ProgramResult whole = run("check " + check + " --no-times -o json:whole.json");
  const ProgramResult all =
      shell("cd '" + folder_.path() + "'; export OMPI_COMM_WORLD_SIZE=2; job='check " + check +
            " --engine mpi --run-file job'\n"
            "OMPI_COMM_WORLD_RANK=0 \"$AMPCHECK\" $job >none 2>&1 & zero=$!\n"
            "until grep -qs 'rank 0' job/*.claim; do sleep 0.01; done\n"
            "OMPI_COMM_WORLD_RANK=1 \"$AMPCHECK\" $job & one=$!; sleep 0.3; kill -9 $zero; wait $one");
  EXPECT_EQ(all.exit_code, 5) << all.out << all.err;
  EXPECT_LT(all.seconds, 40);
  EXPECT_EQ(all.out, "");
  EXPECT_TRUE(contains(all.err, "rank 0, which reports, ended before it did; the same command, with --run-file job"))
      << all.err;
  const std::string later = "cd '" + folder_.path() + "'; OPTIONS='" + check + "'; mv job job2\n" + kRanks + "ranks 2";
  const ProgramResult resumed = shell(later);
  EXPECT_EQ(resumed.exit_code, whole.exit_code) << resumed.err;
  EXPECT_TRUE(read("ranks2.json") == read("whole.json")) << resumed.err;
  EXPECT_FALSE(contains(read("err1"), "ended before it did")) << read("err1");
}

TEST_F(Shards, APartOfWhichRanksDieIsLeftToALaterJob) {
  const std::string job = "check " + tests::in_build("/custom_ops/hostile.so") +
                          " loops --regimes quick --timeout 2 --jobs 1 --engine mpi --run-file job";
  const ProgramResult lost =
      shell("cd '" + folder_.path() + "'; \"$AMPCHECK\" " + job +
            " & pid=$!; for i in $(seq 600); do ls job/*.claim >none 2>none && break; sleep 0.05; done; "
            "for p in 15 16; do printf 'begun by rank 1\\nbegun by rank 2\\n' "
            ">job/part$p.claim; done; wait $pid");
  EXPECT_TRUE(contains(lost.err, "the same command, with --run-file job, goes on")) << lost.err;
  EXPECT_TRUE(contains(lost.out, "are in none of the files")) << lost.out;
  const ProgramResult later = run(job);
  EXPECT_EQ(later.exit_code, 1) << later.out << later.err;
  EXPECT_FALSE(contains(later.out, "are in none of the files")) << later.out;
  EXPECT_FALSE(contains(later.err, "not all parts are done")) << later.err;
  for (const char* const wrong : {"check relu --engine mpi", "check relu --engine mpi --run-file j --shard 1/2",
                                  "check relu --engine mip --run-file j"})
    EXPECT_EQ(run(wrong).exit_code, 2) << wrong;
}

/// The fence of the manual's CI page that begins with this line, without the fence itself.
std::string fence_of_ci_page(const std::string& first) {
  const std::string page = read_text(tests::in_source("/tools/manual/ci.md"));
  const std::size_t begin = page.find("\n" + first) + 1, end = page.find("\n```", begin);
  return begin == 0 || end == std::string::npos ? "" : page.substr(begin, end - begin + 1);
}

/// As the page says, with a srun that starts two ranks here.
TEST_F(Shards, TheSlurmScriptOfTheManualRuns) {
  std::filesystem::copy_file(tests::in_build("/custom_ops/unruly.so"), folder_.path() + "/libmy_norm.so");
  const ProgramResult whole = run("check ./libmy_norm.so --regimes quick --no-times -o junit:whole.xml");
  ASSERT_EQ(whole.exit_code, 1) << whole.err;
  write("job.sh", fence_of_ci_page("#!/bin/bash"));
  write("srun",
        "#!/bin/sh\nexport SLURM_STEP_ID=0\nSLURM_PROCID=1 \"$@\" >rank1 2>err1 &\nSLURM_PROCID=0 \"$@\"\ncode=$?\n"
        "wait\nexit $code\n");
  const ProgramResult job =
      shell("cd '" + folder_.path() +
            "'; chmod +x srun; ln -s \"$AMPCHECK\" ampcheck; AMPCHECK_REGIMES=quick PATH=\"$PWD:$PATH\" SLURM_JOB_ID=7 "
            "SLURM_NTASKS=2 bash job.sh");
  EXPECT_EQ(job.exit_code, 1) << job.out << job.err;
  EXPECT_TRUE(contains(job.err, "2 ranks (SLURM_PROCID=0, SLURM_NTASKS=2)")) << job.err;
  EXPECT_EQ(job.out, whole.out);
  EXPECT_TRUE(read("check.xml") == read("whole.xml"));
  EXPECT_EQ(read("rank1"), "");
}

TEST_F(Shards, ThePodsOfTheManualRun) {
  std::filesystem::copy_file(tests::in_build("/custom_ops/unruly.so"), folder_.path() + "/libmy_norm.so");
  const ProgramResult whole = run("check ./libmy_norm.so --regimes quick --no-times -o junit:whole.xml");
  const std::string job = fence_of_ci_page("apiVersion: batch/v1");
  const std::size_t begin = job.find("            - |\n");
  ASSERT_NE(begin, std::string::npos) << job;
  write("pod.sh", job.substr(begin + 16));
  const ProgramResult pods =
      shell("cd '" + folder_.path() +
            "'; ln -s \"$AMPCHECK\" ampcheck; for i in 0 1 2 3; do AMPCHECK_REGIMES=quick PATH=\"$PWD:$PATH\" "
            "JOB_COMPLETION_INDEX=$i sh pod.sh >out 2>&1 || echo pod $i failed; done");
  EXPECT_EQ(pods.out, "");
  const ProgramResult merged = run("merge part*.run --no-times -o junit:check.xml");
  EXPECT_EQ(merged.exit_code, 1) << merged.err;
  EXPECT_TRUE(read("check.xml") == read("whole.xml"));
}

TEST_F(Shards, AFolderThatCannotBeMadeIsEight) {
  write("file", "");
  const ProgramResult refused = run("check relu --regimes quick --engine mpi --run-file file/job");
  EXPECT_EQ(refused.exit_code, 8) << refused.err;
  EXPECT_TRUE(contains(refused.err, "cannot make the folder 'file/job': Not a directory")) << refused.err;
  EXPECT_EQ(run("check relu --regimes quick --engine mpi --run-file file").exit_code, 2);
}

TEST_F(Shards, ALargerJobHasMorePartsAndKeepsThem) {
  const ProgramResult whole = run("check relu --regimes quick --no-times");
  const std::string job = "\"$AMPCHECK\" check relu --regimes quick --no-times --engine mpi --run-file job";
  const ProgramResult many =
      shell("cd '" + folder_.path() + "'; export OMPI_COMM_WORLD_SIZE=8; for r in 1 2 3 4 5 6 7; do " +
            "OMPI_COMM_WORLD_RANK=$r " + job + " 2>err$r & done; OMPI_COMM_WORLD_RANK=0 " + job + "; wait");
  EXPECT_EQ(many.out, whole.out) << many.err;
  EXPECT_EQ(read("job/parts"), "32\n");
  EXPECT_EQ(run("check relu --regimes quick --no-times --engine mpi --run-file job").out, whole.out)
      << "one rank goes on with 32 parts";
  write("job/parts", "many\n");
  const ProgramResult foreign = run("check relu --regimes quick --engine mpi --run-file job");
  EXPECT_EQ(foreign.exit_code, 7) << foreign.err;
  EXPECT_TRUE(contains(foreign.err, "got 'many', want a number of parts")) << foreign.err;
}

/// Ranks of `audit zoo`; $OPTIONS are its words and options.
const std::string kZooRanks =
    "zoo() { \"$AMPCHECK\" audit zoo $OPTIONS --no-times --json --engine mpi --run-file \"$@\"; }\n"
    "ranks() { n=$1; export OMPI_COMM_WORLD_SIZE=$n; for r in $(seq 1 $((n - 1))); do OMPI_COMM_WORLD_RANK=$r zoo "
    "job$n >out$r 2>err$r & done; OMPI_COMM_WORLD_RANK=0 zoo job$n >ranks$n.json; code=$?; wait; return $code; }\n";

TEST_F(Shards, RanksGiveTheZooOfOneRun) {
  const std::string words = "relu mul 'relu.fmax' --dtype bf16 --regimes quick";
  const ProgramResult whole = run("audit zoo " + words + " --no-times --json >whole.json");
  for (const int n : {1, 2, 4}) {
    const ProgramResult all =
        shell("cd '" + folder_.path() + "'; OPTIONS='relu mul relu.fmax --dtype bf16 --regimes quick'\n" + kZooRanks +
              "ranks " + std::to_string(n) + "; code=$?; cat out* 2>/dev/null; exit $code");
    EXPECT_EQ(all.exit_code, whole.exit_code) << all.err;
    EXPECT_EQ(all.out, "") << "rank 0 alone reports";
    EXPECT_TRUE(read("ranks" + std::to_string(n) + ".json") == read("whole.json")) << n << " ranks";
    EXPECT_TRUE(contains(all.err, std::to_string(n) + " rank")) << all.err;
  }
  const ProgramResult text = run("audit zoo " + words + " --no-times"),
                      again = run("audit zoo " + words + " --no-times --engine mpi --run-file job2");
  EXPECT_EQ(again.out, text.out) << "the same command again runs nothing anew";
  const ProgramResult other = run("audit zoo relu --dtype bf16 --engine mpi --run-file job2");
  EXPECT_EQ(other.exit_code, 7) << other.out << other.err;
  EXPECT_TRUE(contains(other.err, "got a part with other options")) << other.err;
  write("job2/part01.zoo", read("job2/part01.zoo").substr(0, 100));
  EXPECT_EQ(run("audit zoo " + words + " --engine mpi --run-file job2").exit_code, 7) << "a torn file";
  std::filesystem::remove(folder_.path() + "/job2/part01.zoo");
  const ProgramResult less = run("audit zoo " + words + " --engine mpi --run-file job2");
  EXPECT_TRUE(contains(less.err, "incomplete: 1 of 16 parts are missing")) << less.err;
  for (const char* const wrong :
       {"audit zoo relu --engine mpi", "audit zoo relu --run-file j", "audit gate relu --engine mpi --run-file j"})
    EXPECT_EQ(run(wrong).exit_code, 2) << wrong;
}

TEST_F(Shards, ARankOfTheZooThatIsKilledLosesItsPartAlone) {
  const std::string words = "log_softmax cross_entropy --dtype bf16 --regimes quick";
  run("audit zoo " + words + " --no-times --json >whole.json");
  const ProgramResult all =
      shell("cd '" + folder_.path() + "'; export OMPI_COMM_WORLD_SIZE=2; OPTIONS='" + words + "'\n" + kZooRanks +
            "OMPI_COMM_WORLD_RANK=0 zoo job >ranks.json & rest=$!\n"
            "OMPI_COMM_WORLD_RANK=1 \"$AMPCHECK\" audit zoo $OPTIONS --engine mpi --run-file job >lost 2>&1 & lost=$!\n"
            "until grep -L done job/*.claim 2>none | xargs grep -q 'rank 1' 2>none; do sleep 0.01; done\n"
            "kill -9 $lost; wait $rest");
  EXPECT_TRUE(contains(all.err, "goes on in rank 0: the rank that had it ended")) << all.err;
  EXPECT_TRUE(read("ranks.json") == read("whole.json")) << all.out << all.err;
}

}  // namespace
}  // namespace ampcheck::testing
