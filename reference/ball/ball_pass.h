// SPDX-License-Identifier: Apache-2.0
// One pass over the rows of a stream: blocks of rows, phase by phase.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "reference/ball/ball_parts.h"
#include "reference/ball/row_group.h"

namespace ampcheck::reference {

/// Whether each element follows from one of each operand by a rule of element_result().
bool elementwise(Primitive p);

/// One pass over the rows: the nodes of one phase, which wait for no result of a later one.
class BallEvaluator::Pass {
 public:
  Pass(BallEvaluator& of, const std::vector<char>& needed, const std::vector<Expr>& targets, const BallSink& sink);

  double radius_at(std::size_t id, std::int64_t at, const RadiusTest& enough);

  bool run(const std::vector<char>* rows, const RowElements* elements);

 private:
  struct Step {
    std::size_t id;
    Node node;                           ///< with axis and shape of a part
    int rank = 0;                        ///< of the whole
    std::int64_t width = 1;              ///< elements of a row
    Map map;                             ///< take, put_add: of the whole
    std::int64_t listed = 0, other = 0;  ///< elements of a row on the side that the map lists, and on the other
    bool materialise = false;
    std::vector<std::size_t> last;  ///< parts that nobody needs after this step
  };

  const std::vector<int>& args(std::size_t id) const { return of_.graph_.node(static_cast<int>(id)).args; }
  Grain grain(std::size_t id) const { return of_.rows_.grain[id]; }
  bool runs(std::size_t id) const { return needed_[id] && !of_.fresh_[id]; }

  /// Leaves marked what is evaluated at some elements of a row: elementwise results that nothing but the like follows
  /// from.
  void mark_tail();

  void hand_over(std::size_t id, std::int64_t first, const Ball& part);
  bool wanted_by_sink(std::size_t id) const;
  void release(std::size_t id);

  std::vector<Step> steps_of(int phase) const;

  bool run_rows(int phase, const std::vector<char>* rows);

  /// How many rows from `row` on the next block takes or passes over; 0: this one is not wanted. Where it takes only
  /// some of them, listed_ has these.
  std::int64_t next_block(std::int64_t row, const std::vector<char>* rows, bool gathers);
  bool run_block(std::vector<Step>& steps, std::int64_t row, std::int64_t count);

  /// An operand's part: of this pass, or cut out of a whole one; one that is the same for all rows stays as it is.
  const Ball* operand(int rank, std::size_t id, std::int64_t row, std::int64_t count);

  /// What a step of the tail sees of an operand: its elements alone.
  const Ball* picked(int rank, std::size_t id, std::int64_t row, std::int64_t count);

  /// The part of an operand, if it is still there or was known before.
  const Ball* at_hand(std::size_t id, int rank);

  /// How the elements of a part find those of its operands, gone ones included.
  const BroadcastPlan& plan_of(std::size_t id, const Shape& shape);

  /// An element of an operand; nothing where it is gone and does not follow from what is there.
  std::optional<ElementBound> operand_at(std::size_t id, int rank, std::int64_t at, int depth);

  /// An element of a part, from those of its operands.
  std::optional<ElementBound> result_at(std::size_t id, const Shape& shape, std::int64_t at, int depth);

  const RuleContext& rules_of(std::size_t id);

  /// The map of the rows from `row` on, counted from the first of them.
  static MapPart cut(const Step& step, std::int64_t row);

  /// Values of steps[first], steps[first + 1], ... as far as each row of theirs follows from rows of operands; returns
  /// where that ends.
  std::size_t run_group(std::vector<Step>& steps, std::size_t first, std::int64_t row, std::int64_t count);

  bool add_to_group(Step& step, std::int64_t row, std::int64_t count);

  /// The rest of a step whose values are there.
  bool finish_step(Step& step, const RowStep& done, std::int64_t row, std::int64_t count);

  /// Hands a part over and keeps it for those that need it.
  void deliver(Step& step, std::int64_t row, Ball out);

  void hand_over_elements(std::size_t id, std::int64_t width, const Ball& part);

  bool run_step(Step& step, std::int64_t row, std::int64_t count);

  void add_rows(std::size_t id, const Ball& x, std::int64_t row, std::int64_t count);

  void add_uniform_rows(std::size_t id, const Node& node, const Ball& x, std::int64_t row, std::int64_t count);

  bool finish_uniform_column(std::size_t id, const Node& node);

  bool finish_column(std::size_t id);

  BallEvaluator& of_;
  const std::vector<char>& needed_;
  const std::vector<Expr>& targets_;
  const BallSink& sink_;
  std::vector<int> phase_, wanted_;
  std::vector<char> runs_;
  int phases_ = 0;
  bool all_rows_ = true;              ///< otherwise nothing that has rows is kept
  std::int64_t row_ = 0, count_ = 0;  ///< of the block at hand
  std::vector<std::int64_t> listed_;  ///< its rows, where they are no neighbours
  const Ball* handed_ = nullptr;
  static constexpr int kDeepest = 8;               ///< operations that radius_at() goes back
  std::vector<std::optional<RuleContext>> rules_;  ///< of nodes that it met
  int went_ = 1;                                   ///< how far the last radius_at() went
  std::vector<std::pair<std::pair<std::size_t, std::int64_t>, ElementBound>> known_;  ///< of one radius_at()
  std::vector<std::optional<BroadcastPlan>> plans_;  ///< of its results, for parts of `planned_` rows
  std::int64_t planned_ = 0;
  std::vector<Ball> parts_;
  /// What operand() made of a whole ball for the block at hand.
  struct Slice {
    std::size_t id;
    int rank;
    std::int64_t count;
    std::unique_ptr<Ball> part;
  };
  std::vector<Slice> slices_;
  const RowElements* elements_ = nullptr;  ///< null: rows are evaluated whole
  std::vector<char> tail_;                 ///< by node, see mark_tail()
  PickedElements picked_;                  ///< of the block at hand
  std::vector<std::pair<std::size_t, std::unique_ptr<Ball>>> picks_;
  std::map<std::size_t, std::unique_ptr<Sums>> sums_;
  std::map<std::size_t, std::unique_ptr<UniformSums>> uniform_sums_, row_sums_;
  std::vector<RowStep> group_;
};

}  // namespace ampcheck::reference
