// SPDX-License-Identifier: Apache-2.0
// A run beside the accepted state, in steps: bits are equal; bits differ, but the errors are no worse; errors are
// worse; a number is outside what rounding may do. The last fails, and is asked of every run, whatever was accepted:
// otherwise many small steps would lead far away. The others fail if that is asked for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checks/audit/power.h"
#include "checks/run/speed.h"
#include "checks/run/worse.h"
#include "tools/gate/baseline.h"
#include "tools/gate/gate_run.h"
#include "tools/report/exit_code.h"

namespace ampcheck::tools {

/// A finding of a run, by code.
struct GatedFinding {
  PendingFinding found;
  const Waiver* waiver = nullptr;  ///< of the baseline, expired or not
  bool expired = false;
  bool let_through() const { return waiver != nullptr && !expired; }
};

struct GatedTensorChange {
  std::string tensor;
  checks::TensorChange change;
  std::string worse;  ///< in words; empty: not
};

/// One op on the ladder.
struct OpGate {
  const GatedOp* op = nullptr;
  bool known = false;                                             ///< there is a state to compare with
  std::size_t compared = 0, equal = 0, changed = 0, unknown = 0;  ///< cases; unknown: no bits of this architecture
  std::vector<GatedTensorChange> tensors;                         ///< of which bits differ
  bool undecided = false;  ///< bits differ in too few cases to tell whether errors are worse
  std::vector<GatedFinding> findings;
  std::vector<std::string> failures;  ///< exit code 1
  std::vector<std::string> stale;     ///< exit code 7
  std::vector<std::string> missing;   ///< cases of the baseline that did not run: exit code 5
  std::vector<std::string> notes;
  std::optional<checks::zoo::DetectionPower> power;
  std::optional<checks::PassSpeeds> speed;  ///< beside another library

  bool worse() const;
  /// Every case of the op that has an element was skipped, whatever other ops did.
  bool nothing_ran() const;
  ExitCode code() const;
  /// "UNCHANGED", "BITS CHANGED", "WORSE", "FINDINGS", "FAILED", "STALE", "NO BASELINE", "INCOMPLETE", "NOTHING RAN"
  const char* verdict() const;
};

struct LadderOptions {
  std::string settings;      ///< which cases the run was asked for
  bool whole = true;         ///< whole ops, so that what is missing in the run is missing in the op
  bool strict = false;       ///< worse errors fail
  bool strict_bits = false;  ///< changed bits fail
  bool base = false;         ///< compared with another build: it has no waivers, and nothing of it is stale
  std::string today;
  std::optional<double> min_power;
};

/// `before`: the state of run.ops[i]; null: there is none. The power of each op is in `power`.
std::vector<OpGate> judge_ops(const GateRun& run, const std::vector<const Baseline*>& before,
                              std::vector<std::optional<checks::zoo::DetectionPower>> power,
                              const LadderOptions& options);

/// The state that a run found: with the waivers that still hold and are needed, the bits of other architectures where
/// nothing changed, and of a run of fewer cases the others.
Baseline next_state(const GateRun& run, const OpGate& gate, const Baseline* before, const LadderOptions& options);

}  // namespace ampcheck::tools
