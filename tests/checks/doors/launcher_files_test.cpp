// SPDX-License-Identifier: Apache-2.0
// Files of launchers as the program takes them.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/launcher_files.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::contains;
using testing::ProgramResult;

TEST(Launchers, TheProgramTakesAFile) {
  const std::string file = kFolder + "rms_norm_launchers.toml";
  const ProgramResult list = testing::ampcheck("list " + file);
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_TRUE(contains(list.out, "launched_rms_norm")) << list.out;
  const ProgramResult certify = testing::ampcheck("certify " + file);
  EXPECT_EQ(certify.exit_code, 0) << certify.out << certify.err;
  const ProgramResult right = testing::ampcheck("check " + file + " --regimes quick");
  EXPECT_EQ(right.exit_code, 0) << right.out << right.err;
  EXPECT_TRUE(contains(right.out, "All clear")) << right.out;
}

/// Files in a folder of their own, whose library lies elsewhere.
class LauncherFiles : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.path() + "/" + name) << text;
  }
  /// A file with something changed.
  static std::string beside(const std::string& from, const std::string& to) {
    std::string text = changed(from, to);
    return text.replace(text.find(kLibrary), kLibrary.size(), kFolder + "rms_norm_launchers.so");
  }
  /// The program called there.
  ProgramResult program(const std::string& arguments) const {
    return testing::shell("cd " + folder_.path() + " && $AMPCHECK " + arguments);
  }

 private:
  testing::TemporaryFolder folder_;
};

TEST_F(LauncherFiles, AWrongLauncherIsFoundAndReplayed) {
  write("broken.toml", beside("rms_norm_backward", "rms_norm_forgets_norm"));
  const ProgramResult broken = program("check broken.toml --regimes quick --shapes first");
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_TRUE(contains(broken.out, "AC101  launched_rms_norm backward dx")) << broken.out;
  EXPECT_TRUE(contains(broken.out, "again   ampcheck replay broken.toml 'launched_rms_norm(")) << broken.out;
  const ProgramResult replay = program("replay broken.toml 'launched_rms_norm(x=fp32[5,7],seed=1)'");
  EXPECT_EQ(replay.exit_code, 1) << replay.out << replay.err;
}

TEST_F(LauncherFiles, ACrashAndAWrongWorkspaceAreFindings) {
  write("crash.toml", beside("launch_rms_norm\"", "crashing_launcher\""));
  const ProgramResult crash = program("check crash.toml --regimes quick --shapes first --dtype fp32");
  EXPECT_EQ(crash.exit_code, 1) << crash.out << crash.err;
  EXPECT_TRUE(contains(crash.out, "CRASH")) << crash.out;
  // A workspace that is too small: the launcher says so by its status.
  write("small.toml", beside("workspace = \"4 * D\"", "workspace = \"4 * D - 4\""));
  const ProgramResult small = program("check small.toml --regimes quick --shapes first --dtype fp32");
  EXPECT_EQ(small.exit_code, 1);
  EXPECT_TRUE(contains(small.out, "backward returned 2: status of 'rms_norm_backward_fp32'")) << small.out;
  // One that does not ask, and writes beyond.
  std::string text = beside("\"size_t workspace_bytes\"", "\"size_t 4 * D\"");
  text.replace(text.find("workspace = \"4 * D\""), 19, "workspace = \"4 * D - 4\"");
  write("overrun.toml", text);
  const ProgramResult overrun = program("check overrun.toml --regimes quick --shapes first --dtype fp32");
  EXPECT_EQ(overrun.exit_code, 1);
  EXPECT_TRUE(contains(overrun.out, "wrote outside its workspace of 24 bytes")) << overrun.out;
}

TEST_F(LauncherFiles, WhatIsNotThereIsSaid) {
  write("no_symbol.toml", beside("launch_rms_norm\"", "launch_nothing\""));
  const ProgramResult no_symbol = program("check no_symbol.toml");
  EXPECT_EQ(no_symbol.exit_code, 2);
  EXPECT_TRUE(contains(no_symbol.err, "[no_symbol.toml] symbol 'launch_nothing', got none in")) << no_symbol.err;
  write("no_library.toml", changed(kLibrary, "./nowhere.so"));
  const ProgramResult no_library = program("check no_library.toml");
  EXPECT_EQ(no_library.exit_code, 6);
  EXPECT_EQ(program("list no_library.toml").exit_code, 0) << "describing opens no library";
  EXPECT_EQ(testing::ampcheck("check nowhere.toml").exit_code, 6);
  write("bad.toml", changed("inputs =", "inputz ="));
  const ProgramResult bad = program("list bad.toml");
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_TRUE(contains(bad.err, "[bad.toml:7:1] file, got unknown key 'inputz' (did you mean 'inputs'?")) << bad.err;
}

}  // namespace
}  // namespace ampcheck::checks
