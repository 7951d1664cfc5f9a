// SPDX-License-Identifier: Apache-2.0
// Runs the program with one call to the system that fails (tests/faults/fault.c), and holds what must be true then: it
// ends by itself, says what and where, with the exit code that is due; no file is torn, none is left over, and the same
// command goes on to what it would have been.
#pragma once

#include <array>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/run_program.h"

namespace ampcheck::testing {

/// Kinds of calls that fail, in the order of tests/faults/fault.c, each with the reason that is given.
struct FaultKind {
  const char* name;
  int error;
};
extern const std::array<FaultKind, 5> kFaultKinds;

struct FaultedCommand {
  std::string name;
  std::string before;                   ///< shell lines that make the folder it runs in
  std::string words;                    ///< of the command
  std::string role = "program";         ///< whose calls fail: program, child, --worker or --runner
  std::vector<std::string> growing;     ///< files that are only appended to: they may end anywhere
  std::vector<std::string> twice = {};  ///< files that are written before a call too, with what is known then
};
inline void PrintTo(const FaultedCommand& command, std::ostream* out) { *out << command.name; }
/// Commands that write: reports, run files, baselines, traces, checkpoints and tensors.
std::vector<FaultedCommand> writing_commands();

/// Files of a folder, by their names.
using FolderBytes = std::map<std::string, std::string>;

class FaultedRun {
 public:
  /// Runs the command without a fault, and counts its calls.
  explicit FaultedRun(FaultedCommand command);

  /// Calls of this kind.
  long calls(std::size_t kind) const { return calls_.at(kind); }
  /// At most that many calls of this kind: one of each of equal stretches of all calls, drawn with a seed that never
  /// changes. Of memory one half lies among the first thousand, where a process begins.
  std::vector<long> points(std::size_t kind, long most) const;
  /// The k-th call of this kind fails, or each from there on.
  void expect_nothing_lost(std::size_t kind, long k, bool onwards = false);

 private:
  struct Outcome {
    ProgramResult result;
    FolderBytes files;
  };
  Outcome run(const std::string& folder, const std::string& fault);
  bool verdicts_are_due(const Outcome& faulted) const;
  static bool says_memory(const Outcome& faulted);
  void expect_no_new_finding(const Outcome& faulted, const std::string& where) const;
  void expect_whole_files(const Outcome& faulted, std::size_t kind, const std::string& where) const;
  void expect_said(const Outcome& faulted, std::size_t kind, const std::string& where) const;

  FaultedCommand command_;
  TemporaryFolder folder_;
  FolderBytes before_;
  Outcome clean_;
  std::vector<long> calls_;
};

}  // namespace ampcheck::testing
