// SPDX-License-Identifier: Apache-2.0
// Mutants of a kernel, built and judged one after the other: does the check see what each of them does? Nothing is
// changed in place: everything happens in copies of the folder.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/mutate/mutants.h"

namespace ampcheck::tools {

struct MutationSetup {
  std::string kernel;                ///< source below the current folder
  std::vector<std::string> build;    ///< command, run in a copy of the current folder; one word: a line for a shell
  std::string library;               ///< that it makes, as seen from there
  bool program = false;              ///< it is a program, which knows `gate` as this one does
  std::vector<std::string> selects;  ///< words and options of `gate`
  double build_seconds = 600;        ///< that one build may take
  int jobs = 1;                      ///< mutants at a time, each in a copy of its own
};

enum class MutantEnd {
  not_tried,
  killed,    ///< the check convicts it
  survived,  ///< it computes something else, and passes
  same,      ///< in all cases it computes the original's bits
  unbuilt,   ///< the build command fails
};

struct TriedMutant {
  Mutant mutant;
  MutantEnd end = MutantEnd::not_tried;
  std::string by;          ///< codes of the findings, or how else it was seen
  bool same_code = false;  ///< the build writes the very files that it writes of the original
};

/// The copies of a folder, removed with the object.
class Mutation {
 public:
  /// Copies the current folder, builds the original and judges it. UsageError where the command cannot build it, where
  /// it is not this source that is built, or where the original does not pass by itself.
  Mutation(const MutationSetup& setup, const std::string& source, const std::atomic<bool>* cancel);
  ~Mutation();
  Mutation(const Mutation&) = delete;
  Mutation& operator=(const Mutation&) = delete;

  /// Tries them all; `done` is called after each, one at a time.
  void try_all(std::vector<TriedMutant>& mutants, const std::function<void(std::size_t done)>& done);
  /// Removes the copies, from any thread.
  void remove();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ampcheck::tools
