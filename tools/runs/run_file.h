// SPDX-License-Identifier: Apache-2.0
// A file that keeps every result of a check: a run that ended goes on from it, and the files of several machines become
// one report. Lines of JSON, only ever appended; each says how long it is and what its CRC is, so that a torn one is
// seen and counts as not written.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checks/case/options.h"
#include "tools/choose/selection.h"

namespace ampcheck::tools {

/// What a run file is of. Files of one run differ in the part alone.
struct RunHeader {
  std::vector<std::string> arguments;  ///< of check, without what changes no result
  std::string cases;                   ///< digest of the names of all selected cases, of all parts
  std::string version;
  int shard = 1, shards = 1;
  /// What the other has otherwise, in words; empty: they are of one run.
  std::string difference(const RunHeader& other) const;
};

/// The names of the selected cases, as one digest.
std::string digest_of_cases(const Selection& selection);
/// The part of a case, 1 to `shards`: by a hash of its name that never changes, so that a new case moves no other.
int shard_of(std::string_view case_name, int shards);

/// Results by case and by how it was judged.
class KeptResults {
 public:
  std::optional<CaseResult> find(const checks::OpDef& op, const std::string& case_name, const checks::How& how) const;
  /// Whether a case was judged, in whatever way.
  bool has(const std::string& plugin, const std::string& case_name) const;
  /// `wire`: the result as workers write it.
  void add(const CaseResult& result, const checks::How& how, std::string wire);
  std::size_t size() const { return kept_.size(); }

 private:
  friend class RunFile;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> kept_;  ///< results as workers write them
  std::map<std::string, int> cases_;
};

/// Reads a run file into `kept`. `torn`: lines that were not written whole. ForeignFileError for a file that is none.
RunHeader read_run_file(const std::string& path, KeptResults& kept, std::size_t& torn);

/// The same of a file's text; `path` stands in messages.
RunHeader parse_run_file(std::string_view text, const std::string& path, KeptResults& kept, std::size_t& torn);
/// A line of a run file with this record, JSON on one line.
std::string run_file_line(std::string_view record);

/// A run file that is written.
class RunFile {
 public:
  /// Opens it, and takes what it holds. ForeignFileError if it is of another run, WriteError if it cannot be written.
  RunFile(const std::string& path, const RunHeader& header);
  ~RunFile();
  RunFile(const RunFile&) = delete;
  RunFile& operator=(const RunFile&) = delete;

  const KeptResults& kept() const { return kept_; }
  std::size_t found() const { return found_; }  ///< results that were there before
  /// Keeps a result; not one of a case that did not run, nor of one that had too little memory.
  void add(const CaseResult& result, const checks::How& how);
  /// Throws WriteError if a line could not be written. `lasts`: beyond the end of the machine, too; what a part of a
  /// job writes is read by the same job.
  void end(bool lasts = true);

 private:
  void write(const std::string& line);
  [[noreturn]] void fail() const;

  std::string path_;
  int file_ = -1;
  std::atomic<int> error_ = 0;
  std::atomic<bool> torn_ = false;  ///< the last line was not written whole
  std::size_t found_ = 0;
  KeptResults kept_;
};

}  // namespace ampcheck::tools
