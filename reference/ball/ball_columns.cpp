// SPDX-License-Identifier: Apache-2.0
// Some columns alone: of a sum over rows whose terms follow, element by element, from leaves, a column needs that
// column of the leaves.
#include <algorithm>

#include "reference/ball/ball.h"

namespace ampcheck::reference {

namespace {

/// The graph of a target with only some columns (elements of the last axis) of `width`.
class ColumnGraph {
 public:
  ColumnGraph(const Graph& graph, const std::vector<char>& given, std::int64_t width, std::int64_t columns)
      : graph_(graph), given_(given), width_(width), columns_(columns), known_(graph.nodes().size(), -1) {}

  Graph& graph() { return narrow_; }
  /// Given nodes, as they are here.
  const std::vector<std::pair<std::size_t, Expr>>& leaves() const { return leaves_; }

  /// The node, or -1 where one of its columns follows from others.
  int take(int id) {
    int& known = known_[static_cast<std::size_t>(id)];
    if (known >= 0) return known;
    const Node& node = graph_.node(id);
    if (!by_columns(node.shape)) return -1;
    if (given_[static_cast<std::size_t>(id)]) {
      leaves_.emplace_back(id, narrow_.input(node.name, narrowed(node.shape)));
      return known = leaves_.back().second.id;
    }
    Node out = node;
    out.adjoint = nullptr;
    out.shape = narrowed(node.shape);
    if (node.primitive == Primitive::own_adjoint) {
      out.primitive = Primitive::reshape;
      out.args.resize(1);  // what else it takes is of its adjoint
    }
    if (!keeps_columns(out.primitive, node)) return -1;
    for (int& arg : out.args)
      if (arg = take(arg); arg < 0) return -1;
    return known = narrow_.record(std::move(out)).id;
  }

 private:
  bool by_columns(const Shape& shape) const {
    return shape.count() == 1 || shape.last() == 1 || shape.last() == width_;
  }
  Shape narrowed(Shape shape) const {
    if (shape.count() != 1 && shape.last() == width_) shape[shape.rank - 1] = columns_;
    return shape;
  }
  bool keeps_columns(Primitive primitive, const Node& node) const {
    if (primitive == Primitive::constant) return true;
    if (primitive == Primitive::sum) return node.axis + 1 < node.shape.rank;
    if (moves_nothing(primitive)) return graph_.node(node.args[0]).shape.last() == node.shape.last();
    return primitive >= Primitive::add && primitive <= Primitive::maximum;
  }

  const Graph& graph_;
  const std::vector<char>& given_;
  std::int64_t width_, columns_;
  std::vector<int> known_;
  Graph narrow_;
  std::vector<std::pair<std::size_t, Expr>> leaves_;
};

/// These columns of all rows of `width`.
std::vector<double> gathered(const double* values, std::int64_t count, std::int64_t width,
                             std::span<const std::int64_t> columns) {
  std::vector<double> out;
  for (std::int64_t row = 0; row < count; row += width)
    for (const std::int64_t column : columns) out.push_back(values[row + column]);
  return out;
}

}  // namespace

std::optional<Ball> BallEvaluator::columns(Expr target, std::span<const std::int64_t> columns) const {
  const std::int64_t width = target.shape().count();
  if (width < 2 || target.shape().rank == 0 || target.shape().last() != width) return std::nullopt;
  ColumnGraph part(graph_, given_, width, std::ssize(columns));
  const int id = part.take(target.id);
  if (id < 0) return std::nullopt;
  const Expr narrow = part.graph().at(id);
  BallEvaluator balls(part.graph(), arithmetic_, {narrow}, switches_);
  for (const auto& [leaf, here] : part.leaves()) {
    const Ball& ball = balls_[leaf];
    const bool whole = ball.count() == here.shape().count();
    const auto values = [&](const Channel& channel) {
      return whole ? std::vector<double>(channel.get(), channel.get() + ball.count())
                   : gathered(channel.get(), ball.count(), width, columns);
    };
    balls.set(here, values(ball.v), ball.r ? values(ball.r) : std::vector<double>());
  }
  balls.run({narrow});
  return balls.result(narrow);
}

}  // namespace ampcheck::reference
