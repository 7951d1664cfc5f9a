// SPDX-License-Identifier: Apache-2.0
// Sharper radii of single elements, from the elements of operands some operations back.
#include <algorithm>
#include <array>

#include "reference/ball/ball_pass.h"

namespace ampcheck::reference {

double BallEvaluator::Pass::radius_at(std::size_t id, std::int64_t at, const RadiusTest& enough) {
  const Ball& out = *handed_;
  double best = out.all.relative * std::fabs(out.v[at]) + (out.r ? out.r[at] : out.all.absolute);
  if (grain(id) != Grain::row || of_.fresh_[id]) return best;
  // Neighbours need to go about as far: start where the last one ended.
  for (int depth = enough ? std::clamp(went_, 1, kDeepest) : kDeepest; depth <= kDeepest && !(enough && enough(best));
       depth *= 2) {
    known_.clear();
    const std::optional<ElementBound> sharper = result_at(id, out.shape, at, depth);
    if (!sharper) continue;  // what is gone may follow from what is there
    best = std::min(best, sharper->radius.at(std::fabs(sharper->v)));
    went_ = depth;
  }
  return best;
}

const Ball* BallEvaluator::Pass::at_hand(std::size_t id, int rank) {
  return parts_[id].v || of_.balls_[id].v ? operand(rank, id, row_, count_) : nullptr;
}

const BroadcastPlan& BallEvaluator::Pass::plan_of(std::size_t id, const Shape& shape) {
  if (plans_.empty() || planned_ != count_) {
    plans_.assign(runs_.size(), {});
    planned_ = count_;
  }
  if (plans_[id]) return *plans_[id];
  const Node& node = of_.graph_.node(static_cast<int>(id));
  std::array<Ball, 3> shapes;
  std::array<const Ball*, 3> in{};
  for (std::size_t k = 0; k < node.args.size(); ++k) {
    const auto arg = static_cast<std::size_t>(node.args[k]);
    const Ball* const ball = at_hand(arg, node.shape.rank);
    shapes[k].shape = ball ? ball->shape : of_.rows_.part(of_.graph_.node(static_cast<int>(arg)).shape, count_);
    in[k] = &shapes[k];
  }
  return plans_[id].emplace(broadcast_plan(shape, {in.data(), node.args.size()}));
}

std::optional<ElementBound> BallEvaluator::Pass::operand_at(std::size_t id, int rank, std::int64_t at, int depth) {
  const Ball* const ball = at_hand(id, rank);
  if (ball == nullptr && grain(id) != Grain::row) return std::nullopt;
  std::optional<ElementBound> own;
  if (!of_.given_[id] && depth > 0)
    own = result_at(id, ball ? ball->shape : of_.rows_.part(of_.graph_.node(static_cast<int>(id)).shape, count_), at,
                    depth - 1);
  if (ball == nullptr) return own;
  ElementBound all{ball->v[at], ball->all};
  if (ball->r) all.radius.absolute = ball->r[at];
  return own && own->radius.at(std::fabs(own->v)) <= all.radius.at(std::fabs(all.v)) ? own : all;
}

std::optional<ElementBound> BallEvaluator::Pass::result_at(std::size_t id, const Shape& shape, std::int64_t at,
                                                           int depth) {
  const Node& node = of_.graph_.node(static_cast<int>(id));
  if (node.args.empty()) return std::nullopt;
  if (moves_nothing(node.primitive) && node.shape == of_.graph_.node(node.args[0]).shape)
    return operand_at(static_cast<std::size_t>(node.args[0]), node.shape.rank, at, depth + 1);
  if (!elementwise(node.primitive)) return std::nullopt;
  for (const auto& [key, element] : known_)
    if (key == std::pair(id, at)) return element;
  const BroadcastPlan& plan = plan_of(id, shape);
  std::array<std::int64_t, 3> from{};
  for (std::int64_t axis = plan.rank - 1, rest = at; axis >= 0; rest /= plan.extent[axis--])
    for (std::size_t k = 0; k < node.args.size(); ++k) from[k] += rest % plan.extent[axis] * plan.stride[k][axis];
  std::array<ElementBound, 3> in;
  for (std::size_t k = 0; k < node.args.size(); ++k) {
    const auto operand = operand_at(static_cast<std::size_t>(node.args[k]), node.shape.rank, from[k], depth);
    if (!operand) return std::nullopt;
    in[k] = *operand;
  }
  const ElementBound out =
      element_result(rules_of(id), node.primitive, {in.data(), node.args.size()}, of_.wants_sum_[id] != 0);
  known_.emplace_back(std::pair(id, at), out);
  return out;
}

const RuleContext& BallEvaluator::Pass::rules_of(std::size_t id) {
  if (rules_.empty()) rules_.resize(runs_.size());
  if (!rules_[id]) rules_[id] = of_.context_of(id);
  return *rules_[id];
}

}  // namespace ampcheck::reference
