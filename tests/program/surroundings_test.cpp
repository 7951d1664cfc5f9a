// SPDX-License-Identifier: Apache-2.0
// Surroundings that are against it: full disks, pipes that nobody reads, closed files, folders that may not be written,
// a wall clock that jumps, and two people who accept at once. Each command ends by itself, says what it could not do
// with the exit code that is due, and leaves no torn file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/sanitized.h"

namespace ampcheck::testing {
namespace {

namespace fs = std::filesystem;

struct Writing {
  const char* name;
  std::string words;                 ///< of the command
  std::string report;                ///< an option that writes a file of results, without its path
  std::vector<std::string> growing;  ///< files that are appended to: they may end after any whole line
};
void PrintTo(const Writing& command, std::ostream* out) { *out << command.name; }

std::vector<Writing> commands() {
  const std::string few = " --regimes quick --shapes first --dtype fp32 --jobs 1 --no-times";
  return {
      {"check", "check softmax.dropped_tail --verbose" + few, "-o json:", {}},
      {"gate",
       "gate ./gated_sum.so --regimes quick --shapes first --dtype fp32 --jobs 1 --baseline base",
       "-o json:",
       {}},
      {"accept", "accept --baseline base --reason measured", "", {}},
      {"merge", "merge 1.run 2.run --no-times", "-o json:", {}},
      {"train",
       "train --model tutorial --width 4 --batch 4 --steps 4 --spread-seeds 1 --jobs 1 --record t.trace",
       "--save ",
       {"t.trace", "t.trace.bin"}},
      {"trace", "trace old.trace", "-o html:", {}},
  };
}

class Surroundings : public ::testing::TestWithParam<Writing> {
 protected:
  /// A folder with a library, parts of a run, a trace, and a state that nobody accepted yet.
  static void SetUpTestSuite() {
    before_ = new TemporaryFolder;
    const std::string few = "--regimes quick --shapes first --dtype fp32 --jobs 1 ";
    shell("cd '" + before_->path() + "'; cp '" + tests::in_build("/custom_ops/gated_sum_none.so") +
          "' gated_sum.so; { $AMPCHECK gate ./gated_sum.so " + few + "--baseline base; for i in 1 2; do $AMPCHECK " +
          "check relu softmax --no-times " + few + "--shard $i/2 --run-file $i.run; done; $AMPCHECK train --model " +
          "tutorial --width 4 --batch 4 --steps 4 --spread-seeds 1 --jobs 1 --record old.trace; } >/dev/null 2>&1; "
          "chmod -R a+rX .");
  }
  static void TearDownTestSuite() {
    delete before_;
    before_ = nullptr;
  }
  void SetUp() override {
    fs::copy(before_->path(), work_, fs::copy_options::recursive);
    fs::permissions(folder_.path(), fs::perms::others_exec | fs::perms::others_read, fs::perm_options::add);
  }

  /// Runs the command in the folder. `before` and `after` stand around it in the shell's line.
  ProgramResult run(const std::string& more, const std::string& before = "", const std::string& after = "") {
    return shell("cd '" + work_ + "'; " + before + " \"$AMPCHECK\" " + GetParam().words + " " + more + " " + after);
  }
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(work_))
      if (entry.is_regular_file()) out[fs::relative(entry.path(), work_).string()] = read_text(entry.path().string());
    return out;
  }
  /// Each file is as before, as a run in good surroundings leaves it, or only grows.
  void expect_whole(const std::map<std::string, std::string>& before,
                    const std::map<std::string, std::string>& good) const {
    const std::vector<std::string>& growing = GetParam().growing;
    for (const auto& [name, bytes] : files()) {
      if (std::ranges::find(growing, name) != growing.end()) continue;
      const auto old = before.find(name), whole = good.find(name);
      EXPECT_TRUE((old != before.end() && old->second == bytes) || (whole != good.end() && whole->second == bytes))
          << name << " is torn or left over, " << bytes.size() << " bytes";
    }
  }
  /// What a run in good surroundings leaves; the folder is as before again.
  std::map<std::string, std::string> good_files(const std::string& more) {
    const ProgramResult good = run(more);
    EXPECT_TRUE(good.exit_code == 0 || good.exit_code == 1 || good.exit_code == 7) << good.err;
    good_code_ = good.exit_code;
    good_out_ = good.out;
    std::map<std::string, std::string> out = files();
    fs::remove_all(work_);
    SetUp();
    return out;
  }

  static TemporaryFolder* before_;
  TemporaryFolder folder_;
  std::string work_ = folder_.path() + "/work";
  int good_code_ = -1;
  std::string good_out_;
};
TemporaryFolder* Surroundings::before_ = nullptr;

INSTANTIATE_TEST_SUITE_P(All, Surroundings, ::testing::ValuesIn(commands()),
                         [](const auto& info) { return info.param.name; });

TEST_P(Surroundings, WhatCannotBePrintedIsEight) {
  const auto before = files(), good = good_files("");
  // `| true` reads nothing, `>&-` has no standard output at all: no other file may take its place.
  for (const auto& [after, words] : {std::pair{">/dev/full", "No space left on device"},
                                     {"| true; exit ${PIPESTATUS[0]}", "Broken pipe"},
                                     {">&-", "Bad file descriptor"}}) {
    const ProgramResult failed = run("", "", after);
    EXPECT_EQ(failed.exit_code, 8) << after << failed.err;
    EXPECT_TRUE(contains(failed.err, words)) << after << failed.err;
    expect_whole(before, good);
    for (const std::string& name : GetParam().growing)  // it ended at the first line that could not be printed
      EXPECT_TRUE(good.at(name).starts_with(read_text(work_ + "/" + name))) << after << ": " << name;
    fs::remove_all(work_);
    SetUp();
  }
}

TEST_P(Surroundings, AReportThatFindsNoRoomIsEight) {
  if (GetParam().report.empty()) GTEST_SKIP() << "it writes no report";
  const auto before = files(), good = good_files(GetParam().report + "report");
  const ProgramResult full = run(GetParam().report + "/dev/full", "", ">/dev/null");
  EXPECT_EQ(full.exit_code, 8) << full.err;
  EXPECT_TRUE(contains(full.err, "No space left on device")) << full.err;
  const ProgramResult limited = run(GetParam().report + "report", "ulimit -f 1;", "| cat; exit ${PIPESTATUS[0]}");
  // What is shared with kernels of a library is a file too, of all the length there is: where there may be none, memory
  // is missing.
  EXPECT_EQ(limited.exit_code, std::string(GetParam().name) == "gate" ? 6 : 8) << limited.out << limited.err;
  EXPECT_TRUE(contains(limited.err, "File too large")) << limited.err;
  expect_whole(before, good);
}

/// A small file system of its own, where this user may make one.
TEST_P(Surroundings, AFullDiskIsEight) {
  const std::string more = GetParam().report.empty() ? "" : GetParam().report + "report";
  const auto before = files(), good = good_files(more);
  // All that is there, and 4 KiB more, which the rest of the script fills.
  const ProgramResult full =
      shell("cd '" + folder_.path() + "'; size=$(($(du -sk work | cut -f1) + 64)); unshare -m sh -c \"mkdir small && " +
            "mount -t tmpfs -o size=${size}k none small && cp -r work/. small && cd small && { head -c 10m /dev/zero " +
            ">filler 2>/dev/null; true; } && " + "'$AMPCHECK' " + GetParam().words + " " + more +
            " >/dev/null; code=\\$?; rm -f filler; rm -rf ../work && cp -r . ../work; exit \\$code\" || exit $?");
  if (full.exit_code == 1 && contains(full.err, "unshare")) GTEST_SKIP() << full.err;
  if (contains(full.err, "mount")) GTEST_SKIP() << full.err;
  const bool writes = !more.empty() || GetParam().words.starts_with("accept");
  if (writes) {
    EXPECT_EQ(full.exit_code, 8) << full.err;
    EXPECT_TRUE(contains(full.err, "No space left on device")) << full.err;
  }
  expect_whole(before, good);
}

/// As a user who may not write there. Root may write anywhere, and becomes another one.
TEST_P(Surroundings, AFolderThatMayNotBeWrittenIsEight) {
  const std::string more = GetParam().report.empty() ? "" : GetParam().report + "report";
  const auto before = files(), good = good_files(more);
  const std::string other = geteuid() == 0 ? "setpriv --reuid=65534 --regid=65534 --clear-groups" : "";
  if (shell("chmod a+rx '" + folder_.path() + "'; cd '" + work_ + "' && " + other + " test -x \"$AMPCHECK\" && " +
            other + " \"$AMPCHECK\" version")
          .exit_code != 0)
    GTEST_SKIP() << "no other user who may run the program";
  shell("chmod -R a-w '" + work_ + "'");
  const ProgramResult refused = run(more, other, ">/dev/null");
  shell("chmod -R u+w '" + work_ + "'");
  const bool writes = !more.empty() || GetParam().words.starts_with("accept");
  if (writes) {
    EXPECT_EQ(refused.exit_code, 8) << refused.err;
    EXPECT_TRUE(contains(refused.err, "Permission denied")) << refused.err;
  }
  EXPECT_TRUE(files() == before);
}

TEST_P(Surroundings, AWallClockThatJumpsChangesNothing) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer takes the place of the library whose clock jumps";
  const std::string more = GetParam().report.empty() ? "" : GetParam().report + "report";
  const auto good = good_files(more);
  const std::regex times("\"(seconds|on)\": ?\"?[0-9.e-]+\"?|[0-9.]+ m?s\\b");
  const auto timeless = [&](const std::string& text) { return std::regex_replace(text, times, "T"); };
  for (const char* const jump : {"315360000", "-315360000"}) {
    const ProgramResult there =
        run(more, std::string("env CLOCK_JUMP=") + jump + " LD_PRELOAD=" + tests::in_build("/tests/clock.so"));
    EXPECT_EQ(there.exit_code, good_code_) << jump << there.err;
    EXPECT_EQ(timeless(there.out), timeless(good_out_)) << jump;
    for (const auto& [name, bytes] : files())
      EXPECT_TRUE(good.contains(name) && timeless(bytes) == timeless(good.at(name))) << jump << " " << name;
    fs::remove_all(work_);
    SetUp();
  }
}

/// One of them is told that there is nothing left to accept; no reason is lost behind another.
TEST(TwoWhoAccept, OneOfThemDoes) {
  const TemporaryFolder folder;
  shell("cd '" + folder.path() + "'; $AMPCHECK gate '" + tests::in_build("/custom_ops/gated_sum_none.so") +
        "' --regimes quick --shapes first --dtype fp32 --baseline first >/dev/null 2>&1");
  for (int i = 0; i < 20; ++i) {
    const ProgramResult both =
        shell("cd '" + folder.path() +
              "'; rm -rf base; cp -r first base; $AMPCHECK accept --baseline base --reason one"
              " >one 2>&1 & $AMPCHECK accept --baseline base --reason two >two 2>&1; two=$?; wait $!; one=$?; " +
              "echo $one $two; cat one two >&2");
    EXPECT_TRUE(both.out == "0 4\n" || both.out == "4 0\n") << both.out << both.err;
    const nlohmann::json state = nlohmann::json::parse(read_text(folder.path() + "/base/gated_sum.json"));
    EXPECT_EQ(state["accepted"]["reason"], both.out == "0 4\n" ? "one" : "two");
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path() + "/base"), fs::directory_iterator()), 1);
  }
}

}  // namespace
}  // namespace ampcheck::testing
