// SPDX-License-Identifier: Apache-2.0
// The trace of a training run as two files, to which each step is appended: JSON lines, which are the index, and beside
// it the statistics of the tensors as binary records that its lines name. A record is in its file before the line that
// names it is, so that a run that dies leaves all steps before the last intact; a reader leaves out a torn last line.
// checks/train/trace_fields.cpp says which lines and fields there are
// (`ampcheck explain trace`).
#pragma once

#include <cstdio>
#include <map>
#include <optional>
#include <string>

#include "checks/train/trainer.h"

namespace ampcheck::checks::train {

/// Throws Error if there is such a file and it is no trace of this run, which could go on in it.
void require_trace_of(const std::string& path, const Trainer& trainer);

class TraceWriter {
 public:
  /// Begins the files. WriteError if one cannot be written. With `resumed` what they hold of earlier steps stays; a
  /// trace of the earlier schema goes on in this one. `net_file`: of a net that a TOML file describes.
  TraceWriter(const std::string& path, const Trainer& trainer, int steps, bool resumed,
              const std::string& net_file = "");
  /// Writes no file: what would be in it is text(), its statistics in the lines.
  TraceWriter(const Trainer& trainer, int steps);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  /// As a Watch::Listener.
  void tensor(const Event& event, const TensorKey& key, const Tally& tally, FaultRole role, const TensorStats& stats);
  /// As Watch::listen_to_moves() has it.
  void moved_late(const LateMove& move);
  /// Ends a step: its lines are in the file when this returns, unless they are held.
  void step(const StepResult& result);
  /// Keeps lines back until release(), which writes them or drops them.
  void hold() { held_ = true; }
  void release(bool write);
  /// What is held back.
  const std::string& text() const { return pending_; }

 private:
  void write();
  void drop();
  void gradient(const StepResult& result, const GradientError& error);
  void several(const StepResult& result);

  std::string path_, pending_, records_;
  std::int64_t offset_ = 0;  ///< in the file of statistics, of records_
  std::optional<std::map<TensorKey, int>>
      seqs_;  ///< the first of that name in this step; of a run with gradient errors alone
  int file_ = -1, statistics_ = -1, seq_ = 0;
  bool inline_ = false;  ///< statistics stand in the lines
  bool held_ = false;
};

}  // namespace ampcheck::checks::train
