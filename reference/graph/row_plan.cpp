// SPDX-License-Identifier: Apache-2.0
#include "reference/graph/row_plan.h"

#include <algorithm>

namespace ampcheck::reference {

namespace {

/// Elements of the largest tensor in one block: with a dozen nodes of two channels, about half a second-level cache.
constexpr std::int64_t kBlockElements = 4096;

bool elementwise(Primitive p) { return p >= Primitive::add && p <= Primitive::maximum; }

/// Whether the first axes count rows: those of the row tensors, or (one leading axis) several of them to a row.
bool starts_with_rows(const RowPlan& plan, const Shape& shape) {
  if (plan.lead == 1 && shape.rank > 0) return plan.rows > 0 && shape[0] % plan.rows == 0;
  return shape.rank > plan.lead && std::equal(shape.extent, shape.extent + plan.lead, plan.lead_extents.extent);
}

/// Whether an operand of a result of `rank` axes is the same for all rows.
bool broadcasts(const RowPlan& plan, const Shape& shape, int rank) {
  const int leading = shape.rank - (rank - plan.lead);  // axes that line up with those that count rows
  return leading <= 0 || std::all_of(shape.extent, shape.extent + leading, [](std::int64_t n) { return n == 1; });
}

/// Whether a map takes each row from the same row. `from`, `to`: elements of the side that is read and that the map
/// lists.
bool stays_in_row(const RowPlan& plan, const std::vector<std::int64_t>& map, std::int64_t from, std::int64_t to) {
  const std::int64_t width = to / plan.rows, other = from / plan.rows;
  if (width == 0 || other == 0) return false;
  for (std::int64_t row = 0; row < plan.rows; ++row)
    for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
      const std::int64_t at = map[static_cast<std::size_t>(i)];
      if (at >= 0 && (at < row * other || at >= (row + 1) * other)) return false;
    }
  return true;
}

/// A node under a plan, and what is known of its operands.
struct Planned {
  const RowPlan& plan;
  const Graph& graph;
  const Node& node;
  const Shape& shape(std::size_t k) const { return graph.node(node.args[k]).shape; }
  bool rows(std::size_t k) const { return plan.has_rows[static_cast<std::size_t>(node.args[k])] != 0; }
};

/// Each operand has the rows of the result or is the same for all of them, and some operand has them.
bool elementwise_by_rows(const Planned& x) {
  const Shape& shape = x.node.shape;
  bool any = false, fits = true;
  for (std::size_t k = 0; k < x.node.args.size(); ++k) {
    const bool by_rows = x.rows(k) && x.shape(k).rank == shape.rank && x.shape(k)[0] == shape[0];
    any |= by_rows;
    fits &= by_rows || (!x.rows(k) && broadcasts(x.plan, x.shape(k), shape.rank));
  }
  return any && fits && starts_with_rows(x.plan, shape);
}

/// Along an axis within rows, or a sum over rows.
Grain reduction_grain(const Planned& x) {
  const Shape& shape = x.shape(0);
  if (x.node.axis >= x.plan.lead) return Grain::row;
  std::int64_t inner = 1;
  for (int axis = x.node.axis + 1; axis < shape.rank; ++axis) inner *= shape[axis];
  const bool one_to_a_row = std::equal(shape.extent, shape.extent + x.plan.lead, x.plan.lead_extents.extent);
  return x.node.primitive == Primitive::sum && inner > 1 && one_to_a_row ? Grain::column : Grain::whole;
}

/// Rows count batches of both operands, or the rows of the first matrix where the second is the same for all.
bool matmul_by_rows(const Planned& x) {
  const int rank = x.node.shape.rank;
  if (x.plan.lead + 2 <= rank) return x.rows(1) && x.shape(1).rank == rank;
  return rank == 2 && x.plan.lead == 1 && !x.node.transpose_a && !x.rows(1);
}

bool map_by_rows(const Planned& x) {
  const std::int64_t from = x.shape(0).count(), to = x.node.shape.count();
  if (!starts_with_rows(x.plan, x.node.shape)) return false;
  const bool takes = x.node.primitive == Primitive::take;  // the map lists the result, of put_add the operand
  return stays_in_row(x.plan, *x.node.map, takes ? from : to, takes ? to : from);
}

Grain grain_of(const RowPlan& plan, const Graph& graph, const Node& node) {
  const Planned x{plan, graph, node};
  const auto rows_if = [](bool by_rows) { return by_rows ? Grain::row : Grain::whole; };
  if (moves_nothing(node.primitive)) return rows_if(x.rows(0) && starts_with_rows(plan, node.shape));
  if (elementwise(node.primitive)) return rows_if(elementwise_by_rows(x));
  if (node.args.empty() || !x.rows(0)) return Grain::whole;
  switch (node.primitive) {
    case Primitive::sum:
    case Primitive::max:
    case Primitive::first_max:
    case Primitive::cumsum: return reduction_grain(x);
    case Primitive::matmul: return rows_if(matmul_by_rows(x));
    case Primitive::take:
    case Primitive::put_add: return rows_if(map_by_rows(x));
    default: return Grain::whole;
  }
}

/// The largest leaf of the highest rank: its rows are the rows.
Shape row_tensor(const Graph& graph, const std::vector<char>& needed) {
  Shape best;
  for (std::size_t id = 0; id < needed.size(); ++id) {
    const Node& node = graph.node(static_cast<int>(id));
    if (!needed[id] || node.primitive != Primitive::input) continue;
    if (node.shape.rank > best.rank || (node.shape.rank == best.rank && node.shape.count() > best.count()))
      best = node.shape;
  }
  return best;
}

}  // namespace

bool moves_nothing(Primitive p) {
  return p == Primitive::reshape || p == Primitive::stored || p == Primitive::stop_gradient ||
         p == Primitive::no_gradient || p == Primitive::own_adjoint;
}

Shape RowPlan::part(const Shape& shape, std::int64_t count) const {
  Shape out;
  out.rank = shape.rank - lead + 1;
  out[0] = lead == 1 ? shape[0] / rows * count : count;
  for (int axis = lead; axis < shape.rank; ++axis) out[axis - lead + 1] = shape[axis];
  return out;
}

Shape RowPlan::beside(const Shape& shape, int rank) const {
  const int drop = std::max(0, shape.rank - (rank - lead) - 1);  // leading ones but one
  Shape out;
  out.rank = shape.rank - drop;
  for (int axis = 0; axis < out.rank; ++axis) out[axis] = shape[axis + drop];
  return out;
}

int node_cost(Primitive p) {
  if (moves_nothing(p)) return 0;
  const bool arithmetic = p == Primitive::add || p == Primitive::sub || p == Primitive::neg || p == Primitive::mul ||
                          p == Primitive::div || p == Primitive::square ||
                          (p >= Primitive::abs && p <= Primitive::maximum);
  return arithmetic ? 1 : 3;
}

RowPlan plan_rows(const Graph& graph, const std::vector<char>& needed) {
  const Shape tensor = row_tensor(graph, needed);
  RowPlan best;
  best.grain.assign(needed.size(), Grain::whole);
  best.has_rows.assign(needed.size(), 0);
  std::int64_t most = 0;
  for (int lead = std::max(1, tensor.rank - 1); lead >= 1 && tensor.rank > 0; --lead) {
    RowPlan plan;
    plan.lead = plan.lead_extents.rank = lead;
    plan.rows = 1;
    for (int axis = 0; axis < lead; ++axis) {
      plan.lead_extents[axis] = tensor[axis];
      plan.rows *= tensor[axis];
    }
    if (plan.rows == 0) continue;
    plan.grain.assign(needed.size(), Grain::whole);
    plan.has_rows.assign(needed.size(), 0);
    std::int64_t by_rows = 0, largest = 1;
    for (std::size_t id = 0; id < needed.size(); ++id) {
      if (!needed[id]) continue;
      const Node& node = graph.node(static_cast<int>(id));
      const Grain grain = plan.grain[id] = grain_of(plan, graph, node);
      // A tensor of the row tensor's rank and leading axes can be cut wherever it comes from.
      const bool alike =
          node.shape.rank == tensor.rank && std::equal(tensor.extent, tensor.extent + lead, node.shape.extent);
      plan.has_rows[id] = grain == Grain::row || alike;
      if (grain == Grain::row) {
        largest = std::max(largest, node.shape.count() / plan.rows);
        by_rows += node.shape.count();
      }
      if (grain == Grain::column) by_rows += graph.node(node.args[0]).shape.count();
    }
    if (by_rows <= most) continue;
    most = by_rows;
    plan.step = std::max<std::int64_t>(1, kBlockElements / largest);
    best = std::move(plan);
  }
  return best;
}

}  // namespace ampcheck::reference
