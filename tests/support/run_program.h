// SPDX-License-Identifier: Apache-2.0
// Runs the built program as a user would, through a shell, and keeps what it printed.
#pragma once

#include <string>

namespace ampcheck::testing {

struct ProgramResult {
  int exit_code = -1;  ///< as a shell reports it: 128 + n for signal n
  std::string out, err;
  double seconds = 0;
};

/// `ampcheck ARGUMENTS`, with shell quoting and redirection as written; `before` stands in front ("NO_COLOR=1").
ProgramResult ampcheck(const std::string& arguments, const std::string& before = "");
/// `ampcheck train --steps 1 ARGUMENTS`, which must be refused as wrong use (exit code 2): what it says.
std::string refused_training(const std::string& arguments);
/// A shell script in which $AMPCHECK is the program.
ProgramResult shell(const std::string& script);

/// A fresh folder, removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string read_text(const std::string& path);

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace ampcheck::testing
