// SPDX-License-Identifier: Apache-2.0
/// @file
/// One GoogleTest test for each case of an op, so that gtest's filters, shards and reports work on a kernel's checks.
///
///     # CMakeLists.txt: the plug-in my_op, the test program my_op_test and its tests
///     find_package(ampcheck REQUIRED)
///     find_package(GTest REQUIRED)
///     ampcheck_add_gtest(my_op my_op.cpp)                      # [SHARDS n] [ARGS --regimes quick]
///
/// or by hand, beside a library that is built already:
///
///     #include <ampcheck/gtest.h>                              // c++ -std=c++17 my_op_test.cpp -lgtest -pthread
///     AMPCHECK_GTEST_MAIN("./libmy_op.so")                     // a TOML file does as well; more tests may stand
///     beside
///
/// The cases are judged by the program `ampcheck` in one go before the first test runs: only those that the filter and
/// the shard select. Test names are case names in which everything but letters, digits and '.' is '_'; a failure prints
/// the case itself and the line that runs it again. The program is, in this order: the environment variable AMPCHECK,
/// the macro AMPCHECK_PROGRAM, the word ampcheck.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

/// The environment of the process (POSIX).
extern char** environ;

namespace ampcheck {
/// What stands behind AMPCHECK_GTEST_MAIN.
namespace gtest {

/// The program, unless the environment variable AMPCHECK names one.
#ifndef AMPCHECK_PROGRAM
#define AMPCHECK_PROGRAM "ampcheck"
#endif

/// The program that judges.
inline std::string program() {
  const char* named = std::getenv("AMPCHECK");
  return named != nullptr && *named != '\0' ? named : AMPCHECK_PROGRAM;
}

/// A file that is gone at the end.
class TemporaryFile {
 public:
  /// Makes it, empty, in TMPDIR or where temporary files are.
  TemporaryFile() {
    const char* folder = std::getenv("TMPDIR");
    path_ = std::string(folder != nullptr && *folder != '\0' ? folder : P_tmpdir) + "/ampcheck_gtest_XXXXXX";
    const int descriptor = mkstemp(&path_[0]);
    if (descriptor >= 0) close(descriptor);
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }  ///< Its name.
  /// What it holds.
  std::string text() const {
    std::ifstream in(path_, std::ios::binary);
    std::stringstream out;
    out << in.rdbuf();
    return out.str();
  }

 private:
  std::string path_;
};

/// What became of a program.
struct Output {
  int code = -1;    ///< exit code; -1: could not be started, or was ended by a signal
  std::string out;  ///< what it wrote to standard output
  std::string err;  ///< and to standard error
};

/// Runs the program without a shell.
inline Output run(const std::vector<std::string>& words) {
  TemporaryFile out, err;
  std::vector<std::string> copy = words;
  std::vector<char*> argv;
  for (std::string& word : copy) argv.push_back(&word[0]);
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, out.path().c_str(), O_WRONLY | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.path().c_str(), O_WRONLY | O_TRUNC, 0600);
  pid_t pid = 0;
  Output result;
  const int failed = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    result.err = "cannot start '" + words[0] + "' (is ampcheck installed, or the environment variable AMPCHECK set?)";
    return result;
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result.out = out.text();
  result.err = err.text();
  return result;
}

/// What became of a case.
struct Result {
  std::string outcome;  ///< pass, fail or skip
  std::string text;     ///< what a person is told
};

/// The cases of one library, and what became of those that run.
class Cases {
 public:
  /// `arguments` choose the cases, as of `ampcheck list`.
  Cases(std::string library, std::vector<std::string> arguments)
      : library_(std::move(library)), arguments_(std::move(arguments)) {}

  /// Registers a test per case; false, with a message on standard error, if the library cannot be listed.
  bool add_tests() {
    std::vector<std::string> words = {program(), "list", library_, "--cases"};
    words.insert(words.end(), arguments_.begin(), arguments_.end());
    const Output list = run(words);
    if (list.code != 0) {
      std::fprintf(stderr, "%s\n", list.err.c_str());
      return false;
    }
    std::istringstream lines(list.out);
    for (std::string name; std::getline(lines, name);) add_test(name);
    ::testing::AddGlobalTestEnvironment(new Judging(*this));
    return true;
  }

  /// Judges the cases whose tests will run.
  void judge() {
    std::vector<std::string> selected;
    const ::testing::UnitTest& unit = *::testing::UnitTest::GetInstance();
    for (int i = 0; i < unit.total_test_suite_count(); ++i)
      for (int k = 0; k < unit.GetTestSuite(i)->total_test_count(); ++k) {
        const ::testing::TestInfo& test = *unit.GetTestSuite(i)->GetTestInfo(k);
        const auto known = names_.find(std::string(test.test_suite_name()) + "." + test.name());
        if (test.should_run() && known != names_.end()) selected.push_back(known->second);
      }
    constexpr std::size_t kAtATime = 5000;  // what a command line holds
    results_.clear();
    for (std::size_t first = 0; first < selected.size(); first += kAtATime) {
      const std::size_t end = std::min(selected.size(), first + kAtATime);
      judge_some(
          {selected.begin() + static_cast<std::ptrdiff_t>(first), selected.begin() + static_cast<std::ptrdiff_t>(end)});
    }
  }

  /// The test of the case of that name.
  void expect(const std::string& name) const {
    const auto found = results_.find(name);
    if (found == results_.end())
      ADD_FAILURE() << "'" << name << "' was not judged\n" << errors_;
    else if (found->second.outcome == "fail")
      ADD_FAILURE() << found->second.text;
    else if (found->second.outcome == "skip")
      GTEST_SKIP() << found->second.text;
    else
      SUCCEED();
  }

 private:
  class Judging : public ::testing::Environment {
   public:
    explicit Judging(Cases& cases) : cases_(cases) {}
    void SetUp() override { cases_.judge(); }

   private:
    Cases& cases_;
  };

  class Test : public ::testing::Test {
   public:
    Test(const Cases& cases, std::string name) : cases_(cases), name_(std::move(name)) {}
    void TestBody() override { cases_.expect(name_); }

   private:
    const Cases& cases_;
    std::string name_;
  };

  void add_test(const std::string& name) {
    const std::size_t open = std::min(name.find('('), name.size());
    const std::string suite = plain(name.substr(0, open));
    std::string test = plain(open + 2 <= name.size() ? name.substr(open + 1, name.size() - open - 2) : "");
    for (int copy = 2; !names_.emplace(suite + "." + test, name).second; ++copy) test += "_" + std::to_string(copy);
    ::testing::RegisterTest(suite.c_str(), test.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                            [this, name]() -> ::testing::Test* { return new Test(*this, name); });
  }

  static std::string plain(const std::string& text) {
    std::string out;
    for (const char c : text) {
      const bool kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.';
      if (kept || out.empty() || out.back() != '_') out += kept ? c : '_';
    }
    while (!out.empty() && out.back() == '_') out.pop_back();
    return out.empty() ? "case" : out;
  }

  void judge_some(const std::vector<std::string>& names) {
    TemporaryFile lines;
    std::vector<std::string> words = {program(), "check", library_};
    words.insert(words.end(), names.begin(), names.end());
    words.push_back("-o");
    words.push_back("lines:" + lines.path());
    const Output ran = run(words);
    errors_ += ran.err;
    std::istringstream in(lines.text());
    for (std::string line; std::getline(in, line);) {
      std::vector<std::string> fields(1);
      for (std::size_t i = 0; i < line.size(); ++i) {
        if (line[i] == '\t')
          fields.emplace_back();
        else if (line[i] == '\\' && i + 1 < line.size()) {
          ++i;
          fields.back() += line[i] == 'n' ? '\n' : line[i] == 't' ? '\t' : line[i];
        } else
          fields.back() += line[i];
      }
      if (fields.size() == 5) results_[fields[3]] = {fields[0], fields[4]};
    }
  }

  std::string library_, errors_;
  std::vector<std::string> arguments_;
  std::map<std::string, std::string> names_;  ///< "suite.test" -> case
  std::map<std::string, Result> results_;
};

/// InitGoogleTest, a test per case of the library, RUN_ALL_TESTS. `arguments` go to `ampcheck list` and choose the
/// cases.
inline int main_of(int argc, char** argv, const char* library, std::vector<std::string> arguments) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) arguments.push_back(argv[i]);
  static Cases cases(library, std::move(arguments));
  if (!cases.add_tests()) return 2;
  return RUN_ALL_TESTS();
}

}  // namespace gtest
}  // namespace ampcheck

/// main of a test program: AMPCHECK_GTEST_MAIN("./libmy_op.so", "--regimes", "quick")
#define AMPCHECK_GTEST_MAIN(...)                                                                            \
  int main(int argc, char** argv) {                                                                         \
    const std::vector<std::string> words = {__VA_ARGS__};                                                   \
    return ::ampcheck::gtest::main_of(argc, argv, words.front().c_str(), {words.begin() + 1, words.end()}); \
  }
