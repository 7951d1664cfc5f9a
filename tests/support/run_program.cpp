// SPDX-License-Identifier: Apache-2.0
#include "tests/support/run_program.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "tests/support/paths.h"

namespace ampcheck::testing {

ProgramResult shell(const std::string& script) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/script";
  std::ofstream(file) << "unset CI  # a person's shell, unless a test says otherwise\nAMPCHECK=" +
                             tests::in_build("/ampcheck") + "\n"
                      << script << "\n";
  const std::string line = "bash '" + file + "' >'" + folder.path() + "/out' 2>'" + folder.path() + "/err' </dev/null";
  const auto start = std::chrono::steady_clock::now();
  const int status = std::system(line.c_str());
  ProgramResult result;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = read_text(folder.path() + "/out");
  result.err = read_text(folder.path() + "/err");
  return result;
}

ProgramResult ampcheck(const std::string& arguments, const std::string& before) {
  return shell(before + " $AMPCHECK " + arguments);
}

std::string refused_training(const std::string& arguments) {
  const ProgramResult run = ampcheck("train --steps 1 " + arguments);
  EXPECT_EQ(run.exit_code, 2) << arguments << run.out;
  return run.err;
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "ampcheck-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace ampcheck::testing
