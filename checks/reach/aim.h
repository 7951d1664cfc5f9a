// SPDX-License-Identifier: Apache-2.0
// Cases aimed at what the others left unseen: for a side of a condition that no data took, and for a term that drowned
// wherever it was looked at, inputs are sought at which it shows, by going back through the formula
// (checks/reach/preimage.h) and else by a search over where each input lies. Whatever every case of the op saw costs
// nothing here.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "checks/data/aimed_range.h"
#include "checks/define/case.h"
#include "checks/reach/coverage.h"
#include "checks/reach/sites.h"
#include "src/finding.h"

namespace ampcheck::checks {

/// What the cases of one op in one storage type have shown of its sites.
class SiteCoverage {
 public:
  struct Known {
    Site site;
    OpCall at;  ///< the first case that has it
    bool seen = false;
  };
  /// Looks at one more case, on the reference alone. Nothing where it is too large to be evaluated once more, or all is
  /// seen.
  void look(const OpDef& op, const OpCall& call);
  /// In the order in which they were met.
  const std::vector<Known>& sites() const { return sites_; }
  void saw(std::size_t which) { sites_[which].seen = true; }

 private:
  std::size_t find(const Site& site, const OpCall& call);

  std::vector<Known> sites_;
  std::map<std::string, std::size_t> by_key_;
  std::set<std::string> done_;  ///< variants of the formula of which all is seen
};

/// What came of aiming at one site.
struct Aim {
  enum class Kind { side, term, rounding } kind = Kind::side;  ///< of a condition; of a sum; a primitive's own
  std::string words;                                           ///< of the site, or the primitive's name
  std::vector<std::string> ranges = {};                        ///< data regimes that show it; none: not found
  std::int64_t tried = 0;                                      ///< data ranges that were looked at
};

/// Data regimes that show a site at the call's extents and attributes, two at most; and how many were looked at.
Aim aim_at(const OpDef& op, const SiteCoverage::Known& known);
/// The same for the rounding of a primitive, which shows where it is that share of some radius.
Aim aim_at_rounding(const OpDef& op, const OpCall& call, reference::Primitive primitive, double enough);
/// Whether a term is one that a kernel may get wrong: a shift that cancels is right whatever it is, its gradient is
/// nothing but rounding, and what is zero throughout (behind a mask) is seen where the mask is.
bool worth_aiming(const OpDef& op, const SiteCoverage::Known& known);

/// Aims of one op in one storage type.
struct Aimed {
  const OpDef* op = nullptr;
  Dtype storage = Dtype::fp32;
  std::vector<Aim> aims = {};
  std::int64_t not_aimed = 0;      ///< sites beyond the first eight of a kind
  std::vector<OpCall> calls = {};  ///< to be run
};

/// Looks at the cases of every op and storage type and makes the aimed ones: first for sides of conditions, then for
/// the terms that these do not show either. In parallel; the result does not depend on the number of threads.
std::vector<Aimed> aimed_cases(const std::vector<Case>& cases, const std::atomic<bool>* cancel);
/// The same for primitives whose rounding no case made visible; `coverage`: by op, of all cases.
std::vector<Aimed> aimed_at_roundings(const std::vector<Case>& cases, const std::map<std::string, Coverage>& coverage,
                                      const std::atomic<bool>* cancel);

/// What is to be said of them, a line for each op and site; without `all` of those alone that were not found.
std::vector<std::string> aimed_notes(const std::vector<Aimed>& aimed, bool all);

}  // namespace ampcheck::checks
