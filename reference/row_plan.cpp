// SPDX-License-Identifier: Apache-2.0
#include "reference/row_plan.h"

#include <algorithm>

namespace ampcheck::reference {

namespace {

/// Elements of the largest tensor in one block: with a dozen nodes of two channels, about half a second-level cache.
constexpr std::int64_t kBlockElements = 4096;

bool moves_nothing(Primitive p) {
  return p == Primitive::reshape || p == Primitive::stored || p == Primitive::stop_gradient || p == Primitive::own_adjoint;
}
bool elementwise(Primitive p) { return p >= Primitive::add && p <= Primitive::maximum; }

Grain grain_of(const RowPlan& plan, const Graph& graph, const Node& node) {
  const auto shape = [&](std::size_t k) -> const Shape& { return graph.node(node.args[k]).shape; };
  if (moves_nothing(node.primitive)) return plan.has_rows(shape(0)) && plan.has_rows(node.shape) ? Grain::row : Grain::whole;
  if (elementwise(node.primitive)) {
    bool fits = plan.has_rows(node.shape);
    for (std::size_t k = 0; k < node.args.size(); ++k) fits &= plan.has_rows(shape(k)) || plan.broadcasts(shape(k));
    return fits ? Grain::row : Grain::whole;
  }
  switch (node.primitive) {
    case Primitive::sum: case Primitive::max: case Primitive::first_max: {
      if (!plan.has_rows(shape(0))) return Grain::whole;
      if (node.axis >= plan.lead) return Grain::row;
      std::int64_t inner = 1;
      for (int axis = node.axis + 1; axis < plan.rank; ++axis) inner *= shape(0)[axis];
      return node.primitive == Primitive::sum && inner > 1 ? Grain::column : Grain::whole;
    }
    case Primitive::matmul:
      return plan.lead + 2 <= plan.rank && plan.has_rows(node.shape) && plan.has_rows(shape(0)) && plan.has_rows(shape(1)) ? Grain::row
                                                                                                                        : Grain::whole;
    default: return Grain::whole;
  }
}

/// The largest leaf of the highest rank: its rows are the rows.
Shape row_tensor(const Graph& graph, const std::vector<char>& needed) {
  Shape best;
  for (std::size_t id = 0; id < needed.size(); ++id) {
    const Node& node = graph.node(static_cast<int>(id));
    if (!needed[id] || node.primitive != Primitive::input) continue;
    if (node.shape.rank > best.rank || (node.shape.rank == best.rank && node.shape.count() > best.count())) best = node.shape;
  }
  return best;
}

}  // namespace

bool RowPlan::has_rows(const Shape& shape) const {
  return lead > 0 && shape.rank == rank && std::equal(shape.extent, shape.extent + lead, lead_extents.extent);
}

bool RowPlan::broadcasts(const Shape& shape) const {
  const int leading = shape.rank - (rank - lead);  // axes that line up with those that count rows
  return leading <= 0 || std::all_of(shape.extent, shape.extent + leading, [](std::int64_t n) { return n == 1; });
}

Shape RowPlan::part(const Shape& shape, std::int64_t count) const {
  Shape out;
  out.rank = rank - lead + 1;
  out[0] = count;
  for (int axis = lead; axis < rank; ++axis) out[axis - lead + 1] = shape[axis];
  return out;
}

int node_cost(Primitive p) {
  if (moves_nothing(p)) return 0;
  const bool arithmetic = p == Primitive::add || p == Primitive::sub || p == Primitive::neg || p == Primitive::mul ||
                          p == Primitive::div || p == Primitive::square || (p >= Primitive::abs && p <= Primitive::maximum);
  return arithmetic ? 1 : 3;
}

RowPlan plan_rows(const Graph& graph, const std::vector<char>& needed) {
  const Shape tensor = row_tensor(graph, needed);
  RowPlan best;
  best.grain.assign(needed.size(), Grain::whole);
  std::int64_t most = 0;
  for (int lead = std::max(1, tensor.rank - 1); lead >= 1 && tensor.rank > 0; --lead) {
    RowPlan plan = best;
    plan.rank = tensor.rank, plan.lead = lead;
    plan.lead_extents.rank = lead;
    plan.rows = 1;
    for (int axis = 0; axis < lead; ++axis) plan.lead_extents[axis] = tensor[axis], plan.rows *= tensor[axis];
    std::int64_t by_rows = 0, largest = 1;
    for (std::size_t id = 0; id < needed.size(); ++id) {
      const Node& node = graph.node(static_cast<int>(id));
      plan.grain[id] = needed[id] ? grain_of(plan, graph, node) : Grain::whole;
      if (plan.grain[id] == Grain::row) largest = std::max(largest, node.shape.count() / std::max<std::int64_t>(plan.rows, 1)), by_rows += node.shape.count();
      if (plan.grain[id] == Grain::column) by_rows += graph.node(node.args[0]).shape.count();
    }
    if (by_rows <= most) continue;
    most = by_rows;
    plan.step = std::max<std::int64_t>(1, kBlockElements / largest);
    best = plan;
  }
  return best;
}

}  // namespace ampcheck::reference
