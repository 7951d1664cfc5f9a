// SPDX-License-Identifier: Apache-2.0
// The places of a formula at which data decides whether a kernel's mistake there would show: the two sides of every
// condition, and the terms of every sum of two, which may drown in the rounding of the other.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "checks/case/case_reference.h"
#include "reference/replay/plain_evaluator.h"

namespace ampcheck::checks {

struct Site {
  enum class Kind { yes, no, term } kind = Kind::term;
  int node = -1;        ///< of the recording: the condition, or the term
  int sum = -1;         ///< of a term: what it is added to or subtracted from
  bool forward = true;  ///< whether outputs show it, or gradients
  std::string key;      ///< the same in every recording of the formula
  std::string words;    ///< for a reader: "abs(x - 1237.5) < 2 taken"
};

/// Nodes that a result of the recording needs: differentiating also records gradients of constants, which nobody asks
/// for.
std::vector<char> needed_nodes(const reference::Recording& recording);

/// The sites of a recording that follow from floating inputs. Shifts that cancel (stop_gradient) are none.
std::vector<Site> sites_of(const reference::Recording& recording, const std::vector<char>& needed);

/// A recording at given values of its leaves, in fp64.
class SiteValues {
 public:
  explicit SiteValues(const reference::Recording& recording) : recording_(recording), plain_(*recording.graph) {}

  void set(const std::string& leaf, const std::vector<double>& values);
  /// Whether some element of the condition is on that side, of either kind.
  bool taken(const Site& side) { return distance(side) <= 0; }
  /// How far the element nearest to that side is from it, in what the condition compares; 0: taken. Infinite where
  /// nothing compares.
  double distance(const Site& side);
  /// How far outputs or gradients move when the term is left out, in units of half of their intervals: above 1 it
  /// shows. `wanted`: the intervals, by name.
  double share(const Site& term, const std::map<std::string, Interval>& wanted);
  /// Whether the results follow from the term at all: one that cancels (a maximum taken off before exp) changes nothing
  /// even where it is as large as its neighbour.
  bool matters(const Site& term);
  const std::vector<double>& value(int node) { return plain_.value(recording_.graph->at(node)); }

 private:
  const reference::Recording& recording_;
  reference::PlainEvaluator<reference::Fp64Policy> plain_;
};

}  // namespace ampcheck::checks
