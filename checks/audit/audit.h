// SPDX-License-Identifier: Apache-2.0
// Runs the zoo and counts: which defects are found, with the right class and the right cause, and which correct kernels
// are convicted; and the same of the usual rules on the same data.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "checks/audit/gates.h"
#include "checks/audit/gradcheck.h"
#include "checks/data/regimes.h"
#include "checks/zoo/zoo.h"

namespace ampcheck::checks::zoo {

struct Trial;

struct AuditOptions {
  CaseSet set = CaseSet::standard;
  std::uint64_t seeds = 1, first_seed = 1;
  std::vector<Dtype> dtypes = {};          ///< empty: all
  std::vector<std::string> patterns = {};  ///< of names of specimens or ops, with * and ?; empty: all
  bool gates = true;                       ///< measure the usual rules too
  bool formula_alone = false;  ///< judge each specimen a second time, as an author's op without a further form
  int jobs = 0;                ///< specimens at a time; 0: one per core
  std::function<void(const Trial&)> finished = nullptr;  ///< takes each complete trial, one at a time
  const std::atomic<bool>* cancel =
      nullptr;  ///< once set, no further case starts; trials that are not complete are left out
  std::function<void(std::size_t done, std::size_t all, const std::string& last)> progress = nullptr;
  std::function<bool(const std::string& name)> only = nullptr;  ///< of the kernels that the patterns name; null: all
};

/// One specimen in one storage type. A defect runs until its first conviction, a correct variant all cases.
struct Trial {
  const Specimen* specimen = nullptr;
  Dtype dtype = Dtype::fp32;
  std::int64_t cases = 0;        ///< run by us
  std::int64_t convicted = 0;    ///< of these
  std::string case_name, cause;  ///< of the first conviction; the case's name re-runs it
  Code code = Code::none;
  Verdict verdict = Verdict::rounding;
  bool exact_class = false;                   ///< the verdict due
  bool right_class = false;                   ///< that or the other that is right too
  bool right_cause = false;                   ///< code or words name the cause, or what they say is reproduced
  bool reproduced = false;                    ///< other words, whose change gives the kernel's numbers in further calls
  bool wrong_cause = false;                   ///< they name another one: what they say is false
  std::int64_t gate_cases = 0;                ///< cases at which the usual rules were asked
  std::vector<std::int64_t> gate_rejections;  ///< by gate, of these cases
  std::vector<char> gradcheck;                ///< by rule, whether it rejects; empty beside fp32
  /// The same by the formula alone: cases, those convicted, and the first of these.
  std::int64_t alone_cases = 0, alone_convicted = 0;
  std::string alone_case;  ///< one that needs no form, if there is one
  bool alone_case_needs_form = false;
  /// Of these, cases at which only the declared form makes a correct variant right (form_is_needed()): they count
  /// apart.
  std::int64_t needs_form = 0, needs_form_convicted = 0;
  double seconds = 0;

  bool found() const { return convicted > 0; }
};

/// Trials in the order of specimens() and of their storage types, then those of specimens_in_fp64(). Defects proved
/// equivalent are left out.
std::vector<Trial> audit(const AuditOptions& options);

struct Score {
  std::int64_t trials = 0, found = 0, right_class = 0, exact_class = 0, right_cause = 0, wrong_cause = 0;
  std::int64_t by_reproduction = 0;                ///< of right_cause: Trial::reproduced
  std::int64_t alone_trials = 0, alone_found = 0;  ///< by the formula alone
  std::vector<std::int64_t> gates;                 ///< defects that each gate rejects somewhere
  std::int64_t fp32 = 0;                           ///< trials at which gradcheck was asked
  std::vector<std::int64_t> gradcheck;             ///< of these, rejected by each of its rules
  void add(const Trial& trial);
  double share(std::int64_t of) const {
    return trials == 0 ? 1.0 : static_cast<double>(of) / static_cast<double>(trials);
  }
};
struct Clean {
  std::int64_t variants = 0, cases = 0, alarms = 0, gate_cases = 0;
  std::int64_t alone_cases = 0, alone_alarms = 0;                   ///< without the cases that need a form
  std::int64_t form_variants = 0, form_cases = 0, form_alarms = 0;  ///< these
  std::vector<std::int64_t> gate_alarms;                            ///< cases in which each gate rejects
  std::int64_t fp32 = 0;
  std::vector<std::int64_t> gradcheck_alarms;  ///< of these kernels
  void add(const Trial& trial);
};
struct Scores {
  Score all, unseen;
  std::vector<Score> by_class;  ///< [defect_class]; 0 is empty
  Clean clean, clean_unseen;
  Score fp64;  ///< of kernels of fp64, which count nowhere else; the usual rules are not asked
  Clean clean_fp64;
};
Scores score(const std::vector<Trial>& trials);

/// What the zoo is to show, of all defects and of the unseen ones; a score below is a failure of the tool.
inline constexpr double kFoundGoal = 0.99, kExactGoal = 0.95, kCauseGoal = 0.88, kUnseenCauseGoal = 0.85;
inline constexpr double kWrongCauseGoal = 0.03;  ///< of the findings at most
bool goals_met(const Score& score, double cause_goal = kCauseGoal);

}  // namespace ampcheck::checks::zoo
