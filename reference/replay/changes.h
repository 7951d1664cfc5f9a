// SPDX-License-Identifier: Apache-2.0
// One change of a formula at a time: a term left out, a sign turned, a factor missing, 1/(n-1) for 1/n, an intermediate
// in fewer bits, another row's operand, a tile counted twice. What a target becomes tells which slip a wrong kernel
// made. A change explains; it convicts nobody.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reference/graph/node_text.h"

namespace ampcheck::reference {

/// A number that was found from what was written, and where it stands: at a node, or in the one function that uses it.
struct FoundNumber {
  enum class Way { factor, addend, most, least } way = Way::factor;
  int id = 0, user = -1;
  double value = 0;
};

struct Change {
  std::string words;  ///< "without the term mean(dy * weight)"
  const FloatFormat* narrowed =
      nullptr;             ///< the format of an intermediate that is kept in fewer bits; null: other algebra
  bool of_sum = false;     ///< that intermediate is a sum
  std::string leaf = {};   ///< name of the leaf that is changed
  bool exact = false;      ///< it explains nothing unless it gives every number
  bool nonlinear = false;  ///< by a function of it that is not linear: |x|, max(x, 0), x^2, ones
  double freedom = 0;      ///< bits of choice among its kind, where they are many: it has to show as many more
  std::optional<FoundNumber> number = {};
  std::optional<std::pair<double, double>> edge = {};  ///< between which numbers a condition changes sides
  bool approximates = false;                           ///< a function, by one of fewer digits
  int site = -1;                                       ///< the node at which the walk found it; -1: of the whole
};

/// A change that was named before, as of other data: in a walk it is of interest alone.
struct OneChange {
  std::string words;
  std::set<double> extents = {};  ///< numbers of the words that are others at other extents
  bool found_anew = false;        ///< a number is solved for again, and has to come out as in the words
  static constexpr int kAnywhere = -2;
  int site = kAnywhere;  ///< Change::site: the walk looks nowhere else
  std::optional<FoundNumber> number = {};
  std::optional<std::pair<double, double>> edge = {};
};

/// Of the words of a change: all of them, or those with which they begin.
enum class Match { all, beginning };

/// Whether words name that change: numbers that are found from data are the same to a hundredth.
bool same_change(const std::string& words, const OneChange& one, Match match = Match::all);

/// What a kernel wrote, for changes by a number that is found from it.
struct WrittenNumbers {
  const std::vector<double>& got;
  const std::vector<std::int64_t>& outside;           ///< the wrong ones
  std::function<double(std::size_t)> room;            ///< what roundings leave open at an element
  std::vector<std::pair<double, std::string>> known;  ///< numbers that have a name: attributes, extents
};

/// Calls see(change, values of the target) for every change that the graph between leaves and target allows, in fp64,
/// until it returns false. Gives up quietly beyond about `most` scalar operations, for
/// other algebra and for fewer bits each. `only`, where given: the one change that is of interest.
void for_each_change(const Graph& graph, const std::vector<std::pair<Expr, std::vector<double>>>& leaves, Expr target,
                     const NodeNames& names, std::int64_t most,
                     const std::function<bool(const Change&, const std::vector<double>&)>& see,
                     const OneChange* only = nullptr);

/// As for_each_change(), with the changes that follow from the graph alone: every operand for every other one, every
/// function for every other one, other places, numbers found from what was written. Each has to show more than a known
/// slip (Change::freedom) before it explains anything.
void for_each_further_change(const Graph& graph, const std::vector<std::pair<Expr, std::vector<double>>>& leaves,
                             Expr target, const NodeNames& names, std::int64_t most, const WrittenNumbers& written,
                             const std::function<bool(const Change&, const std::vector<double>&)>& see,
                             const OneChange* only = nullptr);

/// Values of a node in fp64, sums in order.
std::vector<double> evaluate_plainly(const Graph& graph,
                                     const std::vector<std::pair<Expr, std::vector<double>>>& leaves, Expr node);

}  // namespace ampcheck::reference
