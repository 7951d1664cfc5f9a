// SPDX-License-Identifier: Apache-2.0
// Libraries that misbehave outside of their kernels: a wrong op never ends with exit code 0, and a right one with a
// note or a finding of the library. And outputs that cannot be written as asked.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <thread>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck::testing {
namespace {

namespace fs = std::filesystem;

const std::string kUnruly = tests::in_build("/custom_ops/unruly.so");
const std::string kHostile = tests::in_build("/custom_ops/hostile.so");

struct LibraryDeed {
  const char* deed;
  int right_ends;     ///< exit code of a check of the right op
  const char* words;  ///< on standard output or error
};
void PrintTo(const LibraryDeed& deed, std::ostream* out) { *out << deed.deed; }
constexpr LibraryDeed kDeeds[] = {
    {"nothing", 0, ""},
    {"load-exit", 1, "ended its process by itself with exit code 0 as it was loaded"},
    {"load-crash", 1, "ended its process by signal 11 (Segmentation fault) as it was loaded"},
    {"load-hang", 1, "was not loaded in 1 s (--timeout)"},
    {"load-rounds", 0, "left the rounding mode upward; it was put back"},
    {"describe-exit", 1, "ended its process by itself with exit code 0 as it was loaded"},
    {"describe-crash", 1, "ended its process by signal 11 (Segmentation fault) as it was loaded"},
    {"describe-hang", 1, "was not loaded in 1 s (--timeout)"},
    {"load-patches", 0, ""},
    {"describe-patches", 0, ""},
    {"unload-exit", 0, ""},
    {"unload-crash", 1, "ended its process by signal 11 (Segmentation fault) as it was unloaded"},
    {"unload-hang", 1, "was not unloaded in 1 s (--timeout)"},
    {"atexit-exit", 0, ""},
};

class Unruly : public ::testing::TestWithParam<LibraryDeed> {};
INSTANTIATE_TEST_SUITE_P(All, Unruly, ::testing::ValuesIn(kDeeds), [](const auto& info) {
  std::string name = info.param.deed;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST_P(Unruly, NeverMakesAWrongOpPass) {
  const std::string before = std::string("AMPCHECK_TEST_DEED=") + GetParam().deed;
  for (const char* const op : {"right", "wrong"}) {
    const ProgramResult run =
        ampcheck("check " + kUnruly + " " + op + " --regimes quick --shapes first --timeout 1", before);
    EXPECT_EQ(run.exit_code, std::string_view(op) == "wrong" ? 1 : GetParam().right_ends) << run.out << run.err;
    if (std::string_view(op) == "right") {
      EXPECT_TRUE(contains(run.out + run.err, GetParam().words)) << run.out << run.err;
    }
  }
}

/// A net whose second layer is an op of the library, which takes fp32 alone.
std::string net_with(const std::string& op, const std::string& library) {
  return "[[layers]]\ntype = 'linear'\noutputs = 16\n[[layers]]\ntype = 'op'\nop = '" + op + "'\nlibrary = '" +
         library + "'\ncast_inputs = 'fp32'\n[[layers]]\ntype = 'linear'\n";
}

struct LibraryCommand {
  const char* words;    ///< UNRULY.so is the library, BASE.so another one, net.toml a net with its op `wrong`
  bool runs = true;     ///< kernels
  bool judges = false;  ///< the op, which is wrong: exit code 1
};

/// What the library runs lies apart from what judges and reports, in whatever command.
TEST(UnrulyLibraries, RunInNoProcessThatJudgesOrReports) {
  const LibraryCommand commands[] = {
      {"check ./UNRULY.so wrong --regimes quick", true, true},
      {"replay ./UNRULY.so 'wrong(x=fp32[5,7],seed=1)'", true, true},
      {"gate ./UNRULY.so wrong --regimes quick --record r", true, true},
      {"gate ./UNRULY.so wrong --regimes quick --base ./BASE.so", true, true},
      {"gate ./BASE.so wrong --regimes quick --base ./UNRULY.so", true, true},
      {"contract ./UNRULY.so wrong"},
      {"audit gate ./UNRULY.so wrong"},
      {"list ./UNRULY.so", false},
      {"certify ./UNRULY.so", false},
      {"compare ./BASE.so ./UNRULY.so wrong --regimes quick", true, true},
      {"diagnose ./BASE.so ./UNRULY.so"},
      {"train net.toml --steps 2 --dtype fp32 --batch 8", true, true},
      {"memory net.toml"},
      {"diagnose net.toml --steps 2 --dtype fp32 --batch 8"},
      {"audit autocast net.toml --batches 1", true, true},
  };
  const TemporaryFolder folder;
  const std::string mark = folder.path() + "/marks", in = "cd '" + folder.path() + "'; ";
  shell(in + "ln -s " + kUnruly + " UNRULY.so; cp " + kUnruly + " BASE.so");
  std::ofstream(folder.path() + "/net.toml") << net_with("wrong", "UNRULY.so");
  for (const auto& [command, runs, judges] : commands) {
    fs::remove(mark);
    const ProgramResult run =
        shell(in + "AMPCHECK_TEST_MARK=" + mark + " AMPCHECK_TEST_DEED=load-patches \"$AMPCHECK\" " + command);
    EXPECT_LE(run.exit_code, 1) << command << run.err;
    if (judges) {
      EXPECT_EQ(run.exit_code, 1) << command << run.out << run.err;
    }
    const std::string marks = read_text(mark);
    std::istringstream lines(marks);
    for (std::string line; std::getline(lines, line);)
      EXPECT_TRUE(contains(line, ":ampcheck --runner ")) << command << ": " << line;
    EXPECT_TRUE(contains(marks, "patched in ")) << command << run.err;
    EXPECT_EQ(contains(marks, "kernel in "), runs) << command << run.err;
  }
  // Without isolation all is one process: the same deed shows that it would work.
  const ProgramResult one =
      ampcheck("check " + kUnruly + " wrong --regimes quick --isolation none", "AMPCHECK_TEST_DEED=load-patches");
  EXPECT_EQ(one.exit_code, 0) << one.out << one.err;
  EXPECT_TRUE(contains(one.out, "BUG  AC101  wrong")) << one.out;
}

/// A library or kernel that ends its process with exit code 0 ends no command so, and is named.
TEST(UnrulyLibraries, EndNoCommandWithZero) {
  const TemporaryFolder folder;
  const std::string in = "cd '" + folder.path() + "'; ";
  shell(in + "ln -s " + kUnruly + " UNRULY.so; ln -s " + kHostile + " HOSTILE.so");
  std::ofstream(folder.path() + "/net.toml") << net_with("right", "UNRULY.so");
  std::ofstream(folder.path() + "/exits.toml") << net_with("exits", "HOSTILE.so");
  for (const std::string command :
       {"compare ./UNRULY.so ./UNRULY.so", "compare ./HOSTILE.so ./UNRULY.so", "diagnose ./UNRULY.so ./UNRULY.so",
        "gate ./UNRULY.so --regimes quick --base ./UNRULY.so", "train net.toml --steps 2 --dtype fp32",
        "memory net.toml", "diagnose net.toml --steps 2 --dtype fp32", "audit autocast net.toml --batches 1"})
    for (const char* const deed : {"load-exit", "describe-exit"}) {
      const ProgramResult run = shell(in + "AMPCHECK_TEST_DEED=" + deed + " \"$AMPCHECK\" " + command);
      EXPECT_EQ(run.exit_code, 1) << command << run.out << run.err;
      EXPECT_TRUE(contains(run.err, "CRASH (AC501): './UNRULY.so' ended its process by itself with exit code 0"))
          << command << run.err;
    }
  for (const std::string command :
       {"train exits.toml --steps 2 --dtype fp32 --batch 17", "memory exits.toml --batch 17",
        "diagnose exits.toml --steps 2 --dtype fp32 --batch 17", "diagnose ./HOSTILE.so ./HOSTILE.so",
        "compare ./HOSTILE.so ./HOSTILE.so exits --regimes quick",
        "gate ./HOSTILE.so exits --regimes quick --base ./HOSTILE.so"}) {
    const ProgramResult run = shell(in + "\"$AMPCHECK\" " + command);
    EXPECT_EQ(run.exit_code, 1) << command << run.out << run.err;
    EXPECT_TRUE(contains(run.out + run.err, "AC501")) << command << run.out << run.err;
  }
}

TEST(UnrulyReports, SayWhatTheLibraryDid) {
  const TemporaryFolder folder;
  const ProgramResult run =
      ampcheck("check " + kUnruly + " --json -o junit:" + folder.path() + "/check.xml", "AMPCHECK_TEST_DEED=load-exit");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  const nlohmann::json report = nlohmann::json::parse(run.out);
  EXPECT_EQ(report.at("cases").at(0).at("code"), "AC501") << report;
  EXPECT_TRUE(contains(read_text(folder.path() + "/check.xml"), "<error type=\"CRASH AC501\""))
      << read_text(folder.path() + "/check.xml");
  // What is known once a check is done stays, whatever unloading does.
  const ProgramResult late =
      ampcheck("check " + kUnruly + " wrong --regimes quick -o lines:" + folder.path() + "/lines",
               "AMPCHECK_TEST_DEED=unload-crash");
  EXPECT_EQ(late.exit_code, 1) << late.err;
  EXPECT_TRUE(contains(read_text(folder.path() + "/lines"), "fail\tBUG\tAC101\twrong(")) << late.out;
}

TEST(UnrulyReports, OfOtherCommandsToo) {
  for (const std::string command : {"list ", "certify ", "contract ", "audit gate "}) {
    const ProgramResult run = ampcheck(command + kUnruly, "AMPCHECK_TEST_DEED=describe-exit");
    EXPECT_EQ(run.exit_code, 1) << command << run.out << run.err;
    EXPECT_TRUE(contains(run.err, "CRASH (AC501)")) << command << run.err;
  }
}

TEST(UnrulyKernels, WhatTheyStartEndsWithThem) {
  const TemporaryFolder folder;
  const std::string mark = folder.path() + "/pids";
  const ProgramResult run =
      ampcheck("check " + kHostile + " 'leaves_a_session(x=fp32[17,7],seed=1)'", "AMPCHECK_TEST_MARK=" + mark);
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  std::istringstream pids(read_text(mark));
  int seen = 0;
  for (pid_t pid = 0; pids >> pid; ++seen) EXPECT_NE(::kill(pid, 0), 0) << pid << " lives on";
  EXPECT_GT(seen, 0);
}

TEST(UnrulyKernels, WhatTheShellStartedLivesOn) {
  const ProgramResult run = shell("sleep 30 & pid=$!; (sleep 30 & echo $! >&3; exec \"$AMPCHECK\" check " + kUnruly +
                                  " right --regimes quick >&2) 3>&1; kill $pid");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const pid_t started = std::stoi(run.out);
  EXPECT_EQ(::kill(started, 0), 0) << started << " was no kernel's";
  ::kill(started, SIGKILL);
}

TEST(UnrulyKernels, LeaveTheirStateBehindInThisProcessToo) {
  for (const char* const isolation : {"worker", "none"}) {
    const ProgramResult run = ampcheck("check " + kHostile + " leaves_state --regimes quick --isolation " + isolation);
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
    EXPECT_TRUE(contains(run.out,
                         "leaves_state: left the state of its thread changed in 1 case; in "
                         "'leaves_state(x=fp32[17,7],seed=1)' forward left the rounding mode toward zero"))
        << isolation << run.out;
  }
}

TEST(UnrulyOutputs, AFileThatMayNotGrowIsEight) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/report.json";
  const ProgramResult run =
      shell("ulimit -f 1; $AMPCHECK check softmax --regimes quick --dtype fp32 -o json:" + path + " >/dev/null");
  EXPECT_EQ(run.exit_code, 8) << run.err;
  EXPECT_TRUE(contains(run.err, "File too large")) << run.err;
  EXPECT_TRUE(fs::is_empty(folder.path())) << "nothing is left of it";
}

TEST(UnrulyOutputs, ATemporaryFileIsANewOne) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/report.txt", victim = folder.path() + "/victim";
  std::ofstream(victim) << "precious";
  // The shell becomes the program: the number of its process is known before.
  const ProgramResult run =
      shell("ln -s " + victim + " " + path + ".tmp$$; exec $AMPCHECK check relu --regimes quick " +
            "--shapes first -o lines:" + path + " >/dev/null");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(read_text(victim), "precious");
  EXPECT_TRUE(contains(read_text(path), "pass\t"));
}

TEST(UnrulyOutputs, APipeThatNobodyReadsEndsWithTheProgram) {
  const TemporaryFolder folder;
  const ProgramResult run =
      shell("mkfifo " + folder.path() + "/pipe; $AMPCHECK check relu --regimes quick --shapes first -o json:" +
            folder.path() + "/pipe >/dev/null & pid=$!; sleep 1; kill -TERM $pid; wait $pid");
  EXPECT_EQ(run.exit_code, 128 + SIGTERM) << run.err;
  EXPECT_LT(run.seconds, 20);
}

TEST(UnrulyOutputs, OtherSignalsLeaveAReportToo) {
  for (const char* const signal : {"HUP", "USR1"}) {
    const TemporaryFolder folder;
    const ProgramResult run =
        shell("$AMPCHECK check " + kHostile + " 'loops(x=fp32[17,7],seed=1)' -o lines:" + folder.path() +
              "/lines & pid=$!; sleep 2; kill -" + signal + " $pid; wait $pid");
    EXPECT_GT(run.exit_code, 128) << signal << run.out << run.err;
    EXPECT_TRUE(contains(run.out, "Interrupted after 0 of 1 cases")) << signal << run.out;
    EXPECT_TRUE(fs::exists(folder.path() + "/lines")) << signal;
  }
}

TEST(UnrulyOutputs, AFileHasOneWriter) {
  const TemporaryFolder folder;
  const std::string x = folder.path() + "/x";
  for (const std::string& files : {" -o json:" + x + " --journal " + x, " -o json:" + x + " -o csv:" + x,
                                   " -o json:" + x + " --run-file " + folder.path() + "/./x"}) {
    const ProgramResult run = ampcheck("check relu --regimes quick" + files);
    EXPECT_EQ(run.exit_code, 2) << files << run.err;
    EXPECT_TRUE(contains(run.err, "want a file of its own for each")) << run.err;
  }
  ASSERT_EQ(ampcheck("check relu --regimes quick --shapes first --run-file " + x).exit_code, 0);
  const ProgramResult both = shell("exec 9>>" + x + "; flock 9; $AMPCHECK check relu --regimes quick --shapes first " +
                                   "--run-file " + x + " 9>&-");
  EXPECT_EQ(both.exit_code, 8) << both.err;
  EXPECT_TRUE(contains(both.err, "which another run is writing")) << both.err;
}

TEST(UnrulyInputs, WhatIsNoFileIsWrongUse) {
  const TemporaryFolder folder;
  for (const std::string& file : {std::string("/dev/zero"), folder.path() + "/pipe.toml"}) {
    const ProgramResult run = shell("mkfifo " + folder.path() + "/pipe.toml 2>/dev/null; $AMPCHECK train " + file);
    EXPECT_EQ(run.exit_code, 2) << file << run.err;
    EXPECT_TRUE(contains(run.err, "is no regular file")) << run.err;
  }
}

TEST(UnrulyInputs, MessagesHoldNoControls) {
  const TemporaryFolder folder;
  const std::string toml = folder.path() + "/op.toml";
  std::ofstream(toml) << "\"\\u001b[31mkey\\n::error::x\" = 1\n";
  const ProgramResult run = ampcheck("check " + toml);
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_FALSE(contains(run.err, "\x1b")) << run.err;
  EXPECT_FALSE(contains(run.err, "\n::error::")) << run.err;
  EXPECT_TRUE(contains(run.err, "key?::error::x")) << run.err;
}

/// A trace of one step, in which a tensor says that it is of `step`.
std::string trace_with_tensor_of(const std::string& step) {
  return R"({"schema":"ampcheck.trace/1","model":"tutorial","dtype":"fp16","autocast":"cuda","autocast_tables":"torch 2.15.0",)"
         R"("scaler":"torch","seed":1,"steps":1,"local":true,"carried":true})"
         "\n{\"step\":" +
         step +
         R"(,"seq":0,"phase":"forward","cast":true,"op":"linear_1","layer":"layer0","tensor":"x","dtype":"fp16",)"
         R"("from":"fp32","source":0,"scale":1,"elements":4,"zero":0,"subnormal":0,"inf":0,"nan":0,"amax":1.7998046875,)"
         R"("amin":0.59228515625,"exponents":[-1,[2,2]],"nonzero":4,"flushed":0,"overflowed":0,"local_error":0.0002,)"
         R"("subnormal_loss":0,"saturated":0,"bias":0.28125,"bias_z":4.5,"ulps":[0,4],"carried_error":0.0002,)"
         R"("intended":0,"stagnant":0,"role":"none"})"
         "\n"
         R"({"step":0,"loss":0.99,"fp64_loss":0.99,"spread":0.7,"apart":0,"rounding":0,"scale":65536,"scale_after":65536,)"
         R"("tracker":1,"found_inf":false,"stepped":true,"stagnant_share":0,"loss_drift":0})"
         "\n";
}

TEST(UnrulyInputs, ATraceWhoseTensorsAreOfNoStepIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/run.trace",
                    command = "trace " + path + " -o html:" + folder.path() + "/x.html";
  std::ofstream(path) << trace_with_tensor_of("0");
  const ProgramResult right = ampcheck(command);
  EXPECT_EQ(right.exit_code, 0) << right.err;
  for (const std::string step : {"1000000", "5", "1"}) {
    std::ofstream(path) << trace_with_tensor_of(step);
    const ProgramResult run = ampcheck(command);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_TRUE(contains(
        run.err, "line 3, got numbers of step " + std::to_string(std::stoi(step) + 1) + " before the line of step 1"))
        << run.err;
  }
}

}  // namespace
}  // namespace ampcheck::testing
