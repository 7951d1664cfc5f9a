// SPDX-License-Identifier: Apache-2.0
#include "tests/support/killed_run.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <random>
#include <sstream>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

extern char** environ;

namespace ampcheck::testing {

namespace {

using Clock = std::chrono::steady_clock;

/// Starts the program with these words, in a folder; its words go nowhere.
pid_t start(const std::string& folder, const std::string& words) {
  std::vector<std::string> all{tests::in_build("/ampcheck")};
  std::istringstream in(words);
  for (std::string word; in >> word;) all.push_back(word);
  std::vector<char*> argv;
  for (std::string& word : all) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  pid_t child = 0;
  const int failed = posix_spawn(&child, all.front().c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0)
    throw std::system_error(failed, std::generic_category(), all.front());  // a kill of 0 would be of all
  return child;
}

/// A command, and what it must leave.
struct Killed {
  std::string before, words;       ///< what makes the folder, and the command
  std::vector<std::string> files;  ///< that one which was never killed leaves
};

int expect_goes_on(const Killed& command, int kills) {
  const TemporaryFolder first, whole, killed;
  if (!command.before.empty()) shell("cd '" + first.path() + "'; { " + command.before + "; } >/dev/null 2>&1");
  const auto begin_anew = [&first](const TemporaryFolder& folder) {
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      std::filesystem::remove_all(entry.path());
    std::filesystem::copy(first.path(), folder.path(), std::filesystem::copy_options::recursive);
  };
  for (const TemporaryFolder* const folder : {&whole, &killed}) begin_anew(*folder);
  const ProgramResult clean = shell("cd '" + whole.path() + "'; \"$AMPCHECK\" " + command.words);
  std::mt19937_64 random(1);
  int met = 0, ended = 0;
  for (int starts = 0; met < kills && starts < 100 * kills; ++starts) {
    const auto begun = Clock::now();
    const pid_t child = start(killed.path(), command.words);
    // Anywhere in the time that it takes, and often near its end.
    const double share = std::sqrt(static_cast<double>(random() % 1000) / 1000);
    std::this_thread::sleep_until(begun + std::chrono::duration_cast<Clock::duration>(
                                              std::chrono::duration<double>(share * 1.2 * clean.seconds)));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) {
      ++met;
      continue;
    }
    ++ended;
    EXPECT_EQ(WEXITSTATUS(status), clean.exit_code) << met << " kills";
    for (const std::string& file : command.files)
      EXPECT_TRUE(read_text(killed.path() + "/" + file) == read_text(whole.path() + "/" + file))
          << file << " after " << met << " kills";
    begin_anew(killed);
  }
  EXPECT_EQ(met, kills);
  // What the last one left is gone on from, whatever it is.
  EXPECT_EQ(shell("cd '" + killed.path() + "'; \"$AMPCHECK\" " + command.words).exit_code, clean.exit_code);
  for (const std::string& file : command.files)
    EXPECT_TRUE(read_text(killed.path() + "/" + file) == read_text(whole.path() + "/" + file)) << file << " at the end";
  return ended + 1;
}

}  // namespace

int expect_checks_go_on(int kills) {
  return expect_goes_on({"",
                         "check softmax.dropped_tail relu --regimes quick --shapes first --no-times --jobs 1 "
                         "--run-file a.run -o json:a.json -o junit:a.xml",
                         {"a.json", "a.xml"}},
                        kills);
}

int expect_trainings_go_on(int kills) {
  const std::string train =
      "train --model tutorial --width 8 --batch 4 --spread-seeds 1 --jobs 1 --record t.trace --every 1 ";
  return expect_goes_on({"$AMPCHECK " + train + "--steps 4 --save from.st",
                         train + "--steps 20 --resume from.st --save t.st",
                         {"t.st", "t.trace", "t.trace.bin"}},
                        kills);
}

}  // namespace ampcheck::testing
