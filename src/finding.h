// SPDX-License-Identifier: Apache-2.0
// What a check says: verdicts, the worst elements, and the report of a run. Reports compute nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/check_id.h"
#include "src/code.h"
#include "src/dtype.h"
#include "src/error_map.h"
#include "src/line_errors.h"

namespace ampcheck {

/// One element that is worth showing.
struct Element {
  std::vector<std::int64_t> index;
  double got = 0, want = 0;  ///< want is rounded to the storage format
  std::uint64_t got_bits = 0, want_bits = 0;
  double ulp = 0;             ///< distance in ulps of the storage format
  double low = 0, high = 0;   ///< the interval, in the storage format
  std::string interval_from;  ///< form and derivation, e.g. "softmax: derived, any order, fp32"
};

/// Result of one check of one tensor of a case.
struct CheckResult {
  CheckId id;
  Verdict verdict = Verdict::rounding;
  Code code = Code::none;
  Dtype dtype = Dtype::fp32;
  std::int64_t compared = 0;  ///< elements compared
  std::int64_t blind = 0;     ///< of these: the interval accepts both 0 and twice the value
  std::int64_t unusual = 0;   ///< of these: outside the calibrated interval
  std::int64_t range = 0;     ///< of these: unjudged, an intermediate leaves the compute type's range
  /// Of these: right by a further form of the formula alone, or by a regrouping of it alone.
  std::int64_t by_forms = 0, by_regrouping = 0;
  std::int64_t failed = 0;  ///< elements outside
  double max_ratio =
      0;  ///< largest |got - value| beyond the storage rounding, in units of the radius of the form that fits best
  std::vector<Element> worst;
  double visible =
      0;              ///< without a formula: the relative error that would have shown at half of the judged coordinates
  std::string cause;  ///< likely cause in words
  std::string note;   ///< reason of a skip, or what else a reader should know
  /// Share of the compared elements at which an error of 1e-3, 1e-2, 1e-1 and 1 times the value would leave the
  /// interval; empty where not asked for.
  std::vector<double> power = {};
  /// Of these, in a format without infinity: those that hold its largest number, or NaN.
  std::int64_t saturated = 0, nans = 0;
  std::int64_t unjudged = 0;         ///< elements of the tensor beside the compared ones: of rows that were not sampled
  std::optional<ErrorMap> map = {};  ///< where the elements outside lie; of values alone

  std::string name() const { return ampcheck::name(id); }
  /// The code, and the verdict that is its own.
  void find(Code what) {
    code = what;
    verdict = text_of(what).verdict;
  }
};

/// Share of the radius that one primitive of the formula contributed; of "branch yes" and "branch no", 1 if a `where`
/// took it.
struct Contribution {
  std::string primitive;
  double share = 0;  ///< largest share over elements and cases
};

/// A primitive whose largest share of a radius stays below this has not been seen to matter.
inline constexpr double kVisibleShare = 0.01;

struct CaseResult {
  std::string name;  ///< the OpCall's printed name: re-runs the case
  std::string op;
  std::string plugin = {};  ///< the library of the op, as the user wrote it; empty for a built-in op
  std::string dtype;
  Verdict verdict = Verdict::rounding;
  Code code = Code::none;
  std::string note;
  std::vector<CheckResult> checks;
  double seconds = 0;
  std::string smallest = {};  ///< name of the smallest case that fails alike, where one was looked for and found
  bool explained = false;     ///< causes were looked for, here or in a case that fails alike
  std::string values =
      {};  ///< of that case, or of this one where none is smaller: the few numbers that the failure takes, in words
  std::vector<LineErrors> lines = {};  ///< of kernels on device ptx that were followed in fp64

  std::int64_t elements() const;
  std::int64_t open() const;  ///< of these: not judged (CheckResult::range)
  std::int64_t blind() const;
  std::int64_t unusual() const;
  std::int64_t unjudged() const;
};

/// The finding that decides a case and is shown first; null if nothing was found.
const CheckResult* deciding_check(const CaseResult& result);
/// The tensor and pass that a check is about, whatever the probe: "backward dx" of "backward dx probe 2 at saved".
CheckId subject_of(const CheckResult& check);

/// How surely an op's reference is right.
struct Certificate {
  std::string op;
  double digits = 0;       ///< worst agreement of adjoint and centred difference over variants, forms and points
  double error_ratio = 0;  ///< observed error ratio of h against h/2: 4 at order two
  std::int64_t points = 0;
  std::int64_t kinks = 0;                ///< coordinates redrawn because one-sided limits differ
  std::int64_t variants = 0;             ///< combinations of attributes and optional inputs, each certified
  std::vector<std::string> conventions;  ///< what has no gradient by convention although the value depends on it
};

struct Report {
  std::vector<CaseResult> cases;
  std::vector<Certificate> certificates;
  std::vector<std::pair<std::string, std::vector<Contribution>>> coverage;  ///< by op
  std::vector<std::string> notes;
  bool interrupted = false;
  std::int64_t refused = 0;  ///< cases that did not run because memory or time did not suffice
  double seconds = 0;
};

}  // namespace ampcheck
