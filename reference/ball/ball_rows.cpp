// SPDX-License-Identifier: Apache-2.0
// Streams: the graph block of rows by block of rows, each block's balls in cache from the leaves to the targets.
#include <algorithm>

#include "reference/ball/ball_pass.h"

namespace ampcheck::reference {

bool BallEvaluator::needs_all_rows(const std::vector<Expr>& targets) const {
  const std::vector<char> needed = need(targets, false);
  for (std::size_t id = 0; id < needed.size(); ++id) {
    if (!needed[id] || given_[id]) continue;
    if (rows_.grain[id] == Grain::column) return true;
    if (rows_.grain[id] == Grain::row) continue;
    for (const int arg : graph_.node(static_cast<int>(id)).args)
      if (rows_.has_rows[static_cast<std::size_t>(arg)]) return true;
  }
  return std::any_of(targets.begin(), targets.end(),
                     [&](Expr t) { return rows_.grain[static_cast<std::size_t>(t.id)] != Grain::row; });
}

/// Kept for later streams: of what does not follow from a leaf that changes between them, the nodes that meet one that
/// does, where recomputing them would cost more than reading them back, unless they are much larger than the inputs
/// (the scores of a long attention are: kept, they would be most of a check's memory).
void BallEvaluator::keep_for_streams(const std::vector<Expr>& targets) {
  const std::vector<char> now = need(targets, false), all = need(targets_, false);
  std::vector<char> changes(balls_.size(), 0), wanted(balls_.size(), 0);
  std::vector<int> cost(balls_.size(), 0);  // of recomputing a part, in cheap nodes; 0: it is there anyway
  std::int64_t inputs = 0;
  for (std::size_t id = 0; id < balls_.size(); ++id)
    if (const Node& node = graph_.node(static_cast<int>(id)); all[id] && node.primitive == Primitive::input)
      inputs += node.shape.count();
  for (std::size_t id = 0; id < balls_.size(); ++id) {
    changes[id] = varies_[id];
    if (given_[id]) continue;
    const Node& node = graph_.node(static_cast<int>(id));
    for (const int arg : node.args) {
      changes[id] |= changes[static_cast<std::size_t>(arg)];
      cost[id] += cost[static_cast<std::size_t>(arg)];
    }
    cost[id] += node_cost(node.primitive);
    if (rows_.grain[id] != Grain::row || node.shape.count() == rows_.rows) cost[id] = 0;
  }
  for (std::size_t id = balls_.size(); id-- > 0;) {
    const Node& node = graph_.node(static_cast<int>(id));
    const bool large = rows_.grain[id] == Grain::row && node.shape.count() > 3 * inputs;
    if (wanted[id] && !changes[id] && !given_[id] && !large && (cost[id] == 0 || cost[id] > 2)) {
      keep_[id] |= now[id];
      continue;
    }
    if (!all[id] || given_[id] || !(wanted[id] || changes[id])) continue;
    for (const int arg : node.args) wanted[static_cast<std::size_t>(arg)] = 1;
  }
}

double BallEvaluator::radius_at(Expr target, std::int64_t at, const RadiusTest& enough) const {
  return pass_->radius_at(static_cast<std::size_t>(target.id), at, enough);
}

void BallEvaluator::forget() {
  for (std::size_t id = 0; id < balls_.size(); ++id)
    if (!given_[id]) {
      balls_[id] = Ball{};
      fresh_[id] = 0;
    }
}

bool BallEvaluator::takes_elements(const std::vector<Expr>& targets) const {
  if (rows_.lead != 1 || radii_ != Radii::each || targets.empty() || needs_all_rows(targets)) return false;
  const std::vector<char> needed = need(targets, false);
  for (std::size_t id = 0; id < needed.size(); ++id)
    if (needed[id] && graph_.node(static_cast<int>(id)).map) return false;
  const Shape& shape = graph_.node(targets.front().id).shape;
  return shape.rank == 2 && shape[0] == rows_.rows &&
         std::all_of(targets.begin(), targets.end(), [&](Expr t) { return graph_.node(t.id).shape == shape; });
}

bool BallEvaluator::stream(const std::vector<Expr>& targets, const BallSink& sink, const std::vector<char>* rows,
                           const RowElements* elements) {
  if (full_ || gave_up_) return false;
  if (rows == nullptr) keep_for_streams(targets);
  const std::vector<char> needed = need(targets, true);
  Pass pass(*this, needed, targets, sink);
  pass_ = &pass;
  const bool held = pass.run(rows, rows != nullptr && takes_elements(targets) ? elements : nullptr);
  pass_ = nullptr;
  if (held) return true;
  if (radii_ == Radii::each) {
    start_full();
    return false;
  }
  gave_up_ = true;
  forget();
  return false;
}

}  // namespace ampcheck::reference
