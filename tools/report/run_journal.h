// SPDX-License-Identifier: Apache-2.0
// `check --journal FILE`: a line before and after each case, written at once, so that whatever ends the program (the
// kernel of the system included) leaves behind which cases were running.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include "checks/run/runner.h"

namespace ampcheck::tools {

/// A file of JSON lines (ampcheck.journal/1): {"event": "start" | "done" | "end", ...}; a last line without its end was
/// torn and counts as not written. Lines are appended whole, from any thread.
class RunJournal {
 public:
  /// Opens for appending and writes the line that begins a run. Throws WriteError.
  RunJournal(const std::string& path, std::size_t cases);
  ~RunJournal();
  RunJournal(const RunJournal&) = delete;
  RunJournal& operator=(const RunJournal&) = delete;

  void start(std::string_view case_name, std::string_view plugin, const checks::How& how);
  void done(const CaseResult& result);
  /// The run ended by itself. Throws WriteError if any line could not be written.
  void end();

 private:
  void write(std::string line);

  std::string path_;
  int fd_ = -1;
  std::atomic<int> error_{0};
};

}  // namespace ampcheck::tools
