// SPDX-License-Identifier: Apache-2.0
// How cases are run and judged, and what a run hands out besides its report.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checks/define/case.h"
#include "src/finding.h"
#include "src/op_call.h"
#include "src/tensor.h"

namespace ampcheck::checks {

/// How one case is to be judged.
struct How {
  bool sampled = false;  ///< on sampled rows (checks/run/sampled.h)
  bool explain = true;   ///< replays and changed formulas for what is wrong; they take longer than the judging
  bool power = false;    ///< measure how small an error would be seen (CheckResult::power)
  bool again = false;    ///< to explain a case that was judged, or in search of a smaller one
  bool values = false;   ///< of a failing case, look for the few numbers that the failure takes (CaseResult::values)
  bool first = false;    ///< end at the first launch with a wrong value: no further probe, no relation
};

struct RunOptions {
  Device device = Device::cpu;
  int jobs = 0;  ///< cases at a time; 0: as many as threads() of the caller (else one per core)
  bool relations = true;
  bool as_written = false;  ///< neither a further form nor a regrouping of the formula admits a number
  bool explain = true;      ///< of run_case: as How::explain
  bool power = false;       ///< of run_case: as How::power
  bool first = false;       ///< of run_case: as How::first
  /// Of run_cases: explain the first failing cases of each kind, take over what they say for those like them, and look
  /// for the smallest case that fails alike. Otherwise every failing case is explained by itself.
  bool brief = false;
  /// Of run_cases: run further cases, aimed at what these leave unseen of an op's formula (checks/reach/aim.h), for ops
  /// whose cases are chosen to see all of it.
  bool aim = false;
  std::int64_t memory = 0;  ///< bytes that the cases that run at a time may take; 0: four fifths of what is available
  double time_budget = 0;   ///< seconds after which no further case starts; 0: none
  /// Called after each case from one thread at a time: number done, number of all.
  std::function<void(std::size_t done, std::size_t all, const CaseResult& last)> progress;
  /// Runs a case instead of run_case (in a process of its own); null: here.
  std::function<CaseResult(const OpDef&, const OpCall&, const How&)> run = nullptr;
  /// Set from a signal handler: no further case starts, and one that runs ends at its next launch with Interrupted.
  const std::atomic<bool>* cancel = nullptr;
};

/// Tensors of one replay, row-major, for `--save`: got, want and the interval by tensor name.
struct Dump {
  struct Entry {
    std::string name;  ///< "x", "y.got", "y.want", "y.low", "y.high", "dx.got", ...
    Shape shape;
    Dtype dtype = Dtype::fp64;
    std::vector<double> values;
  };
  std::vector<Entry> entries;
};

/// Thrown out of a case that was cancelled; it has no result.
struct Interrupted {};

}  // namespace ampcheck::checks
