// SPDX-License-Identifier: Apache-2.0
// Balls: for every element of every node a fp64 value v and an absolute radius r such that whatever a correct kernel
// computes for it, in any admitted order, lies in [v - r, v + r] before it is rounded to storage.
//
// Two modes share the rules. The plain one holds where no intermediate comes near the ends of the compute type's range
// (checked while it runs); the full one carries range flags, an fp32 replay and product chains as well (rules R4, R9).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reference/graph/expr.h"
#include "reference/graph/row_plan.h"
#include "src/accumulator.h"
#include "src/float_format.h"

namespace ampcheck::reference {

/// Element flags of the full mode.
enum BallFlag : std::uint8_t {
  kOverflowed = 1,  ///< this operation's result may exceed max_finite although its operands are finite
  kLeftRange = 2,   ///< an intermediate may have left the range: finite and non-finite are both possible
  kMayBeNan = 4,    ///< infinite here, but another order or a compensated sum gives NaN
  kUnbounded = 8,   ///< the value is in range, but roundings on the way may move it by more than the range
};

/// Products of matrices on tensor cores; everything else stays fp32's.
struct CoreProducts {
  TensorCore core = TensorCore::none;
  /// The type in which tensor cores take operands (fp32: tf32) that are not of a type of their own.
  Dtype storage = Dtype::fp32;
  /// Whether other operands are rounded to it. Otherwise products of such, and of fp32, add up in fp32.
  bool converts = true;
  std::map<std::string, Dtype> leaves;  ///< types of inputs, cotangents and tangents, and of stored() intermediates
};

/// What the kernel declares about its arithmetic, as the rules need it.
struct Arithmetic {
  MathSet math;
  int summation_depth = 0;         ///< 0: any order
  double accumulate_roundoff = 0;  ///< unit roundoff of the accumulator; 0: the compute type's
  bool flushes_subnormals = false;
  CoreProducts products = {};
  bool one_pass = false;                            ///< sums by running rescaling (online softmax, Welford): 4 (n-1) u
  std::map<std::string, const FloatFormat*> saved;  ///< formats of stored() intermediates; absent: the compute type
};

/// What sin and cos may err by, in ulp of the result for every argument: CUDA's sinf and cosf (2), glibc's (1) and
/// their double precision twins (2).
inline constexpr double kTrigonometricUlp = 2;

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
  bool zero = false;  ///< whether some element is zero
  double grid = 0;    ///< a power of two of which every element is a multiple; 0: none is known
};

/// What bounds the radii of all elements (Radii::uniform): that of an element of value v is at most relative |v| +
/// absolute. Where elements are sums (rule R3), such bounds of their state.
struct UniformRadius {
  double relative = 0, absolute = 0;
  bool chained = false;  ///< otherwise each element is one term
  double terms = 1, mass = 0, base = 0;
  double at(double size) const { return relative * size + absolute; }
};

/// How an evaluator keeps radii: one for each element, or one that bounds those of all elements of a part.
enum class Radii { each, uniform };

/// The balls of one node. Absent channels: r is zero; sum and range state are not needed.
struct Ball {
  Shape shape;
  Channel v, r;
  Channel terms, mass, base, grid;        ///< rule R3: n', S, radius without own summation, lowest set bit (0: none)
  Channel replay, up, down;               ///< full mode: fp32 replay, product chain above and below 1 (rule R4)
  std::shared_ptr<std::uint8_t[]> flags;  ///< full mode: BallFlag
  Extremes range;
  bool narrow = false;                  ///< every radius is known to be finite
  bool signed_zeros = false;            ///< a leaf: a kernel sees the sign that a zero has here
  double chain_up = 1, chain_down = 1;  ///< tensor-wide bounds of the product chain, plain mode
  UniformRadius all;  ///< Radii::uniform: instead of r, terms, mass and base; r where it is a sharper absolute part
  std::int64_t count() const { return shape.count(); }
};

/// Sets `ball.range`. False if a radius is 2^100 or more, or not a number.
bool measure(Ball& ball);

Extremes extremes_of(std::span<const double> values);

/// Whether a bound of one element's radius is sharp enough for what is asked.
using RadiusTest = std::function<bool(double radius)>;
/// Takes a part of a target: its first element's row-major index in the whole tensor, and the balls.
using BallSink = std::function<void(Expr target, std::int64_t first, const Ball& part)>;

/// By row, the places in it of the elements that are asked for, ascending.
using RowElements = std::map<std::int64_t, std::vector<std::int64_t>>;

struct RuleContext;

/// The map of a take or put_add, or of some rows of it: the entries from `first` on, counted from the element `base`.
struct MapPart {
  const std::int64_t* first = nullptr;
  std::int64_t base = 0;
  MapPart() = default;
  explicit MapPart(const Map& map) : first(map ? map->data() : nullptr) {}
  /// Negative: none.
  std::int64_t operator[](std::int64_t i) const { return first[i] - (first[i] < 0 ? 0 : base); }
};

/// Evaluates a graph as balls, in fp32 compute. Nodes that do not depend on a changed leaf keep their balls, so several
/// cotangents cost one forward.
class BallEvaluator {
 public:
  /// Uniform radii serve streams alone, and where the rules decide by element they give up.
  BallEvaluator(const Graph& graph, Arithmetic arithmetic, std::vector<Expr> targets, Switches switches = {},
                Radii radii = Radii::each);

  /// Gives a leaf (or a stored node, which then counts as given) its exact values. Radius zero unless `radius` is
  /// given.
  void set(Expr leaf, std::span<const double> values, std::span<const double> radius = {});
  /// As set(), without a copy: the values stay where they are and must outlive their use.
  void borrow(Expr leaf, std::span<const double> values) { borrow(leaf, values, extremes_of(values)); }
  /// With their extremes, where those are known.
  void borrow(Expr leaf, std::span<const double> values, const Extremes& range);
  /// Says that this leaf will be set again: a stream keeps nothing that follows from it.
  void varies(Expr leaf) { varies_[static_cast<std::size_t>(leaf.id)] = 1; }
  /// Says that a kernel adds this target to what its buffer held: then it keeps the state of its sum (rule R3).
  void adds_on(Expr target);
  /// A target, or a part of one, added to what its buffer held: one more term of its sum, in any order.
  Ball added_to(const Ball& part, std::span<const double> held) const;
  /// Undoes set() on a stored node.
  void release(Expr stored);
  /// Evaluates the targets for which everything that they need has been set.
  void run(const std::vector<Expr>& targets);
  /// As run(), but goes over the rows in blocks that stay in cache and hands each target over part by part instead of
  /// keeping it. `rows`: evaluates these of rows() alone, where the targets allow it (needs_all_rows() is false).
  /// `elements`: of each of these rows some elements alone, one a part, where takes_elements(); the last steps go by
  /// them. False where the plain mode does not hold: then no part counts, and run() is to be used.
  bool stream(const std::vector<Expr>& targets, const BallSink& sink, const std::vector<char>* rows = nullptr,
              const RowElements* elements = nullptr);
  /// Whether a stream may go by elements: targets are matrices of one shape whose rows follow from their own row alone,
  /// and nothing is moved.
  bool takes_elements(const std::vector<Expr>& targets) const;
  /// Radii::uniform, inside a sink: a bound of the radius of element `at` of the part that is handed over, from that
  /// element's own operands: as far back as it takes to pass `enough` (null: nothing does), or as they are at hand.
  double radius_at(Expr target, std::int64_t at, const RadiusTest& enough) const;
  /// The balls of some elements of a target of one axis that is a sum over rows, evaluated from these columns of the
  /// leaves alone. Nothing where its columns do not follow from their own.
  std::optional<Ball> columns(Expr target, std::span<const std::int64_t> columns) const;
  /// Takes over, without a copy, what another evaluator of this graph and these inputs keeps of moved leaves (unfolded
  /// images, gathered rows): such elements are exact under any radii.
  void adopt_moved(const BallEvaluator& other);
  /// Gives back what was kept for later streams.
  void forget();
  /// How the graph falls into blocks of rows.
  const RowPlan& rows() const { return rows_; }
  /// Whether an element of a target follows from more than its own row.
  bool needs_all_rows(const std::vector<Expr>& targets) const;
  /// Whether result() is there.
  bool known(Expr target) const { return fresh_[static_cast<std::size_t>(target.id)] != 0; }
  const Ball& result(Expr target) const { return balls_[static_cast<std::size_t>(target.id)]; }
  bool full() const { return full_; }
  /// Radii::uniform: whether a stream found no bound, or came near the ends of the range.
  bool gave_up() const { return gave_up_; }
  /// Whether every leaf that was set is finite.
  bool leaves_finite() const { return leaves_finite_; }

 private:
  std::vector<char> need(const std::vector<Expr>& wanted, bool stop_at_fresh) const;
  RuleContext context_of(Primitive primitive) const;
  /// That of the node: what follows from constants and integers alone is computed in fp32 whatever the contract says of
  /// sums.
  RuleContext context_of(std::size_t id) const;
  /// The same, with the rule of tensor cores where they compute this product.
  RuleContext product_context(std::size_t id, const Node& node) const;
  /// These return false where a node comes too near the ends of the range for the plain mode.
  bool evaluate(const std::vector<char>& needed);
  bool compute_whole(std::size_t id);
  /// `node` may be a part's; `id` is the graph's.
  bool compute(std::size_t id, const Node& node, MapPart map, std::span<const Ball* const> in, Ball& out) const;
  bool compute_uniform(std::size_t id, const Node& node, MapPart map, bool wants_sum, bool sharp,
                       std::span<const Ball* const> in, Ball& out) const;
  bool finish_uniform(const Node& node, std::span<const Ball* const> in, Ball& out) const;
  void mark_sharp();
  bool finish(const Node& node, std::span<const Ball* const> in, Ball& out) const;
  void drop(std::size_t id);
  void start_full();
  void mark_sums();
  void keep_for_streams(const std::vector<Expr>& targets);
  void give(Expr leaf, Ball ball);  ///< measured
  class Pass;

  const Graph& graph_;
  Arithmetic arithmetic_;
  Switches switches_;
  Radii radii_;
  std::vector<Ball> balls_;
  std::vector<char> given_, fresh_, wants_sum_, keep_, varies_;
  std::vector<char> constant_;  ///< follows from constants, extents, attributes and integers alone
  std::vector<char> sharp_;     ///< Radii::uniform: products that targets are
  std::vector<Expr> targets_;
  RowPlan rows_;
  bool full_ = false;
  bool gave_up_ = false;  ///< Radii::uniform
  Pass* pass_ = nullptr;  ///< while a stream runs
  bool leaves_finite_ = true;
};

}  // namespace ampcheck::reference
