// SPDX-License-Identifier: Apache-2.0
// Gradients of a formula in the limit of nudged inputs: what checks/judge/kinks.cpp takes for one-sided derivatives.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checks/case/case_run.h"
#include "src/random.h"

namespace ampcheck::checks {

/// What of each number of the cotangents counts.
enum class Cotangents { as_given, positive_part, negative_part, size, random_positive, other_random_positive };

/// At most so many of them, evenly spread.
std::vector<std::size_t> spread(const std::vector<std::size_t>& all, std::size_t most);

/// The gradients of one tensor in the limit of nudged inputs, with what rounding may do to them. Of a pass other than a
/// backward one, which is that of no single input, all inputs are nudged together and nothing else can be asked.
class KinkLimits {
 public:
  KinkLimits(CaseRun& run, const Written& tensor, Pass pass, const Interval& declared, double nudge);
  bool usable() const {
    return !of_backward() || (!input_.empty() && run_.reference.inputs().at(input_).size() == size());
  }
  bool of_backward() const { return pass_ == Pass::backward; }
  std::size_t size() const { return low_.size(); }
  const std::string& input() const { return input_; }

  /// Whether one of these elements surely stands at no kink: whatever the nudges of add_pair() and pushed() and
  /// roundings do, its choices stay as they are, which one evaluation with every input anywhere within reach shows.
  /// False says nothing.
  bool surely_smooth(const std::vector<std::int64_t>& elements) const;

  /// Whether no nudge can change any of these nodes of the first form, the choices that the gradient depends on.
  bool decided(const std::vector<reference::Expr>& choices) const;

  /// Takes in the limits in a random direction and its opposite. `push`: the element of the input that moves farther
  /// than the others.
  void add_pair(const Random& random, std::uint64_t which, std::optional<std::size_t> push);

  /// Whether roundings on the way to a choice are larger than the nudge: then its limits hold both sides.
  bool undecided() const { return undecided_; }
  bool kink(std::size_t i) const { return jumps(least_high_[i], most_low_[i]); }
  bool between(std::size_t i, double got) const { return lies(got, low_[i], high_[i]); }
  double low(std::size_t i) const { return low_[i]; }
  double high(std::size_t i) const { return high_[i]; }

  /// Element i alone pushed up and down.
  struct Pushed {
    bool bounded = false;  ///< otherwise nothing is known
    bool smooth = true;    ///< nothing depends on it
    double low = 0, high = 0;
  };
  /// The widest that the choices of element i give. Among cotangents of one sign it has most where it wins them all and
  /// least where it loses them all, so the two signs apart bound every choice.
  Pushed pushed(std::size_t i) const;
  bool admits(const Pushed& ends, double got) const { return lies(got, ends.low, ends.high); }

  /// Elements whose gradients change with the sign of a nudge of element i alone, and so on from those, until none but
  /// they do where all of them move: of three that tie, a nudge of one shows another. Of cotangents without a sign:
  /// changes of either do not cancel. Element i alone: their sum changes too, so that it tells nothing. Empty: they are
  /// too many. `spent`: the nudges of this are counted there.
  std::vector<std::size_t> neighbours(std::size_t i, std::size_t& spent) const;
  /// Whether the sum of `got` over some elements is outside what all limits agree on; false where they do not agree.
  bool sum_is_wrong(const std::vector<std::size_t>& which, const std::vector<double>& got, double& due,
                    double& sum) const;

  /// Several gradients at a nudge of all inputs and random positive cotangents.
  struct Choice {
    std::size_t cotangents;  ///< which
    std::vector<Interval> gradients;
  };
  /// Some of them: at random, where every choice between two is made both ways, and with all numbers up and all down.
  std::vector<Choice> choices(const Random& random, const std::vector<const Written*>& gradients) const;
  /// The same of one choice at the launch's own cotangents, added to what accumulating buffers held.
  std::vector<Interval> one_choice(const Random& random, const std::vector<const Written*>& gradients) const;
  /// The same at random positive cotangents, with no elements of their inputs moved but these: all up, all down, at
  /// random.
  std::vector<Interval> moved_among(const Random& random, std::uint64_t which,
                                    const std::vector<const Written*>& gradients,
                                    const std::vector<std::vector<char>>& members) const;
  /// By how much a smooth number of that size may move.
  double may_move(double size) const;

 private:
  /// Which numbers are moved by how much of their size, in units of the nudge.
  struct Stream {
    const std::string& name;
    std::uint64_t base;  ///< of that name
    bool own;            ///< the input whose gradient this is
  };
  template <class U>
  CaseReference moved(const U& u, bool zeros_by_one, Cotangents cotangents) const;
  /// How far from these inputs add_pair() and pushed() go.
  NamedValues reach(const NamedValues& inputs) const;
  Interval limit(CaseReference& there, const Written& tensor, std::span<const double> held = {}) const;
  void add(Interval limit);
  /// Whether two limits are apart by more than what a nudge moves a smooth gradient.
  bool jumps(double from, double to) const;
  bool lies(double got, double low, double high) const;

  CaseRun& run_;
  const Written& tensor_;
  const Pass pass_;
  const Interval& declared_;
  const double nudge_;
  std::vector<double> held_;  ///< what the gradient is added to
  bool undecided_ = false;
  std::string input_;
  std::vector<double> low_, high_, most_low_, least_high_;
  std::vector<Interval> all_;
};

}  // namespace ampcheck::checks
