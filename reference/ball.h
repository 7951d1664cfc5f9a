// SPDX-License-Identifier: Apache-2.0
// Balls: for every element of every node a fp64 value v and an absolute radius r such that whatever a correct kernel
// computes for it, in any admitted order, lies in [v - r, v + r] before it is rounded to storage.
//
// Two modes share the rules. The plain one holds where no intermediate comes near the ends of the compute type's range
// (checked while it runs); the full one carries range flags, an fp32 replay and product chains as well (rules R4, R9).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "reference/expr.h"
#include "src/float_format.h"

namespace ampcheck::reference {

/// Element flags of the full mode.
enum BallFlag : std::uint8_t {
  kOverflowed = 1,  ///< this operation's result may exceed max_finite although its operands are finite
  kLeftRange = 2,   ///< an intermediate may have left the range: finite and non-finite are both possible
  kMayBeNan = 4,    ///< infinite here, but another order or a compensated sum gives NaN
};

/// What the kernel declares about its arithmetic, as the rules need it.
struct Arithmetic {
  MathSet math;
  int summation_depth = 0;            ///< 0: any order
  double accumulate_roundoff = 0;     ///< unit roundoff of the accumulator; 0: the compute type's
  bool flushes_subnormals = false;
  bool one_pass = false;              ///< sums by running rescaling (online softmax, Welford): 4 (n-1) u
  std::map<std::string, const FloatFormat*> saved;  ///< formats of stored() intermediates; absent: the compute type
};

/// Contributions that an evaluation leaves out, to see what each one adds to the radius.
struct Switches {
  bool summation = true;
  int without = -1;  ///< a Primitive whose own rounding counts nothing
};

/// A shared, pooled array of doubles.
using Channel = std::shared_ptr<double[]>;
/// From a per-thread pool; contents are indeterminate.
Channel make_channel(std::int64_t count);

/// Smallest non-zero and largest magnitude of a tensor.
struct Extremes {
  double smallest = 1, largest = 0;
  bool finite = true;
};
Extremes extremes(const double* values, std::int64_t count);

/// The balls of one node. Absent channels: r is zero; sum and range state are not needed.
struct Ball {
  Shape shape;
  Channel v, r;
  Channel terms, mass, base, grid;  ///< rule R3: n', S, radius without own summation, lowest set bit (0: none)
  Channel replay, up, down;         ///< full mode: fp32 replay, product chain above and below 1 (rule R4)
  std::shared_ptr<std::uint8_t[]> flags;  ///< full mode: BallFlag
  Extremes range;
  double chain_up = 1, chain_down = 1;    ///< tensor-wide bounds of the product chain, plain mode
  std::int64_t count() const { return shape.count(); }
};

/// Evaluates a graph as balls, in fp32 compute. Nodes that do not depend on a changed leaf keep their balls, so several
/// cotangents cost one forward.
class BallEvaluator {
 public:
  BallEvaluator(const Graph& graph, Arithmetic arithmetic, std::vector<Expr> targets, Switches switches = {});

  /// Gives a leaf (or a stored node, which then counts as given) its exact values. Radius zero unless `radius` is given.
  void set(Expr leaf, std::span<const double> values, std::span<const double> radius = {});
  /// Undoes set() on a stored node.
  void release(Expr stored);
  /// Evaluates the targets for which everything that they need has been set.
  void run(const std::vector<Expr>& targets);
  const Ball& result(Expr target) const { return balls_[static_cast<std::size_t>(target.id)]; }
  bool full() const { return full_; }
  /// Whether every leaf that was set is finite.
  bool leaves_finite() const { return leaves_finite_; }

 private:
  /// False where a node comes too near the ends of the range for the plain mode.
  bool evaluate(const std::vector<char>& needed);
  bool tame(const Ball& ball) const;
  void mark_sums();

  const Graph& graph_;
  Arithmetic arithmetic_;
  Switches switches_;
  std::vector<Ball> balls_;
  std::vector<char> given_, fresh_, wants_sum_, keep_;
  std::vector<Expr> targets_;
  bool full_ = false;
  bool leaves_finite_ = true;
};

}  // namespace ampcheck::reference
