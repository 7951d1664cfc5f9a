// SPDX-License-Identifier: Apache-2.0
// Departures from a precision contract that are arithmetic: a node of the formula kept in 16 bits, operands in tf32,
// exp by exp2, an approximate rsqrt. Each is given as what it makes of the balls of some nodes, so that the interval of
// a kernel that departs so holds whatever it may compute, and no more: as sure as the declared one.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checks/case/wrong_tensor.h"

namespace ampcheck::checks {

struct Departure {
  enum class Kind {
    narrowed,  ///< an intermediate or an operand has fewer bits
    function,  ///< a function follows another algorithm, whose values are known up to rounding
    few_ulps,  ///< a function errs by up to some ulps, on either side
    bounded,   ///< a function errs by up to a bound, on either side, that other mistakes may keep too
  };
  std::string words;
  Kind kind = Kind::narrowed;
  bool of_sum = false;  ///< narrowed: a sum, which may as well be accumulated so
  std::vector<CaseReference::Departing> nodes;
  std::string function = {};         ///< "exp", "rsqrt"
  const FloatFormat* low = nullptr;  ///< of one node that is narrowed, its format
  double prior = 0;  ///< log10 of how much likelier than others: what changes more nodes has more to explain

  /// The finding that it is: AC302, or AC304 for functions.
  Code code() const { return kind == Kind::narrowed ? Code::ac302 : Code::ac304; }
};

/// Departures that the graph between leaves and target allows, those of the last nodes first. `storage`: of the target.
std::vector<Departure> departures_of(const reference::Recording& recording, reference::Expr target, Dtype storage);

/// The node of a tensor in a form; undefined if it has none.
reference::Expr target_of(const reference::Recording& recording, Pass pass, const std::string& tensor);

/// How well an interval explains numbers.
struct Explained {
  std::int64_t outside = 0;  ///< judged elements that it does not admit
  std::int64_t open = 0;     ///< elements that it leaves unjudged
  std::int64_t telling = 0;  ///< elements at which it excludes the declared formula's number
  double bits =
      0;  ///< of those: by how many powers of two its interval is narrower than the kernel's distance from that number
  std::int64_t sharp = 0, sharp_telling = 0;  ///< elements for which it leaves one number, and those of them that tell
  std::int64_t
      above = 0,
      below = 0;  ///< of the elements outside of the declared interval, those larger in size than its value and smaller
  double likelihood = 0;  ///< log10: an element is any of the storage's numbers in its interval
};
Explained explained_by(const Interval& departing, const Interval& declared, const std::vector<double>& got);

/// Whether that is no chance. `last`: nothing else is left that might explain the tensor.
bool tells(const Explained& seen, Departure::Kind kind, bool last);

/// The finding and its words, if all numbers of the tensor are right for a kernel that departs from its contract in one
/// of these ways, and that is no chance, or known of another tensor or probe of the case (`known`, words of
/// departures). `last`: functions are tried of which a small error of another origin may have the look, once nothing
/// else explains the tensor.
struct Departed {
  Code code = Code::none;
  std::string words = {};
  std::string departure = {};  ///< Departure::words
  double odds = 0;             ///< log10, against the likeliest of what explains nothing
  bool refuted = false;  ///< some number lies outside of each of them: then no other probe of the tensor is one either
};
Departed explained_by_departure(const WrongTensor& wrong, bool last, const std::set<std::string>& known);

}  // namespace ampcheck::checks
