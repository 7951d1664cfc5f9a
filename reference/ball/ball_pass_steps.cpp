// SPDX-License-Identifier: Apache-2.0
// The steps of a pass: operands cut to a block of rows, results handed over, sums over rows.
#include <algorithm>
#include <array>

#include "reference/ball/ball_pass.h"

namespace ampcheck::reference {

namespace {

/// Where row `row` of a sum's operand goes: the row's index without the summed axis.
std::int64_t column_of(const RowPlan& plan, int axis, std::int64_t row) {
  std::int64_t inner = 1;
  for (int k = axis + 1; k < plan.lead; ++k) inner *= plan.lead_extents[k];
  return row / (inner * plan.lead_extents[axis]) * inner + row % inner;
}

}  // namespace

const Ball* BallEvaluator::Pass::operand(int rank, std::size_t id, std::int64_t row, std::int64_t count) {
  if (parts_[id].v) return &parts_[id];
  for (const Slice& known : slices_)
    if (known.id == id && known.rank == rank && known.count == count) return known.part.get();
  const RowPlan& plan = of_.rows_;
  const Ball& whole = of_.balls_[id];
  const bool cut = plan.has_rows[id] != 0;
  const Shape shape = cut ? plan.part(whole.shape, count) : plan.beside(whole.shape, rank);
  const std::int64_t width = whole.count() / plan.rows;
  Ball part = !cut              ? whole
              : listed_.empty() ? part_of(whole, shape, row * width)
                                : rows_of(whole, shape, width, listed_);
  part.shape = shape;
  slices_.push_back({id, rank, count, std::make_unique<Ball>(std::move(part))});
  return slices_.back().part.get();
}

const Ball* BallEvaluator::Pass::picked(int rank, std::size_t id, std::int64_t row, std::int64_t count) {
  const Ball* const all = operand(rank, id, row, count);
  const std::int64_t width = of_.graph_.node(targets_.front().id).shape.last();
  if (tail_[id] || all->shape.last() != width) return all;
  for (const auto& [known, part] : picks_)
    if (known == id) return part.get();
  picks_.emplace_back(id, std::make_unique<Ball>(elements_of(*all, width, picked_)));
  return picks_.back().second.get();
}

MapPart BallEvaluator::Pass::cut(const Step& step, std::int64_t row) {
  MapPart part(step.map);
  if (part.first != nullptr) {
    part.first += row * step.listed;
    part.base = row * step.other;
  }
  return part;
}

std::size_t BallEvaluator::Pass::run_group(std::vector<Step>& steps, std::size_t first, std::int64_t row,
                                           std::int64_t count) {
  row_ = row;
  count_ = count;
  group_.clear();
  std::size_t end = first;
  while (end < steps.size() && add_to_group(steps[end], row, count)) ++end;
  run_row_steps(group_, count);
  return end;
}

bool BallEvaluator::Pass::add_to_group(Step& step, std::int64_t row, std::int64_t count) {
  const RowPlan& plan = of_.rows_;
  const std::size_t n = step.node.args.size();
  if (plan.lead != 1 || n == 0 || n > 3 || of_.graph_.node(static_cast<int>(step.id)).map) return false;
  std::array<const Ball*, 3> in{};
  for (std::size_t k = 0; k < n; ++k)
    in[k] = operand(step.rank, static_cast<std::size_t>(step.node.args[k]), row, count);
  const auto has_rows = [&](std::size_t k) { return plan.has_rows[static_cast<std::size_t>(step.node.args[k])] != 0; };
  RowStep out;
  out.primitive = step.node.primitive;
  if (grain(step.id) == Grain::column) {
    auto& sums = uniform_sums_[step.id];
    if (!sums) sums = std::make_unique<UniformSums>(of_.graph_.node(static_cast<int>(step.id)).shape.count());
    out.kind = RowStep::Kind::column;
    out.n = static_cast<std::size_t>(in[0]->count() / count);
    if (sums->value.size() != out.n) return false;
    out.in[0].p = in[0]->v.get();
    out.advance[0] = static_cast<std::int64_t>(out.n);
    out.out = sums->value.data();
    out.mass = sums->mass.data();
    group_.push_back(out);
    return true;
  }
  step.node.shape = plan.part(of_.graph_.node(static_cast<int>(step.id)).shape, count);
  Ball& part = parts_[step.id];
  if (step.node.primitive == Primitive::sum) {
    const Axis axis = split(in[0]->shape, step.node.axis);
    if (axis.inner != 1 || axis.outer != count) return false;
    row_sums_[step.id] = std::make_unique<UniformSums>(count);
    out.kind = RowStep::Kind::sum;
    out.n = static_cast<std::size_t>(axis.n);
    out.in[0].p = in[0]->v.get();
    out.advance[0] = axis.n;
    out.mass = row_sums_[step.id]->mass.data();
    part = Ball{};
    part.shape = step.node.shape;
    part.v = make_channel(count);
    out.out = part.v.get();
  } else if (moves_nothing(step.node.primitive)) {
    const Channel same = in[0]->v;
    part = Ball{};
    part.shape = step.node.shape;
    part.v = same;
  } else if (elementwise(step.node.primitive) || step.node.primitive == Primitive::less ||
             step.node.primitive == Primitive::less_equal || step.node.primitive == Primitive::equal) {
    out.kind = seen_as_products(step.node) ? RowStep::Kind::products : RowStep::Kind::values;
    out.n = static_cast<std::size_t>(step.width);
    for (std::size_t k = 0; k < n; ++k)
      if (!lies_by_rows(*in[k], has_rows(k), step.width, count, out.in[k], out.advance[k])) return false;
    part = Ball{};
    part.shape = step.node.shape;
    part.v = make_channel(part.count());
    out.out = part.v.get();
  } else {
    return false;
  }
  group_.push_back(out);
  return true;
}

bool BallEvaluator::Pass::finish_step(Step& step, const RowStep& done, std::int64_t row, std::int64_t count) {
  if (done.kind == RowStep::Kind::moved) return run_step(step, row, count);
  row_ = row;
  count_ = count;
  std::array<const Ball*, 3> in{};
  const std::size_t n = step.node.args.size();
  for (std::size_t k = 0; k < n; ++k)
    in[k] = operand(step.rank, static_cast<std::size_t>(step.node.args[k]), row, count);
  for (std::size_t k = 0; k < n; ++k)
    if (!in[k]->range.finite) return false;
  if (done.kind == RowStep::Kind::column) {
    see_terms(*in[0], *uniform_sums_[step.id]);
  } else {
    Ball out = std::move(parts_[step.id]);
    out.range = done.seen;
    const RuleContext c = of_.context_of(step.id);
    const bool wants = of_.wants_sum_[step.id] != 0, sums = done.kind == RowStep::Kind::sum;
    if (sums) {
      UniformSums& state = *row_sums_[step.id];
      std::copy_n(out.v.get(), count, state.value.begin());
      see_terms(*in[0], state);
      if (!store_uniform(c, state, static_cast<double>(done.n), wants, out)) return false;
    } else if (!bound_elementwise(c, step.node, {in.data(), n}, wants, of_.sharp_[step.id] != 0, done.gap, out)) {
      return false;
    }
    if (!of_.finish_uniform(step.node, {in.data(), n}, out)) return false;
    deliver(step, row, std::move(out));
  }
  for (const std::size_t id : step.last) parts_[id] = Ball{};
  return true;
}

void BallEvaluator::Pass::deliver(Step& step, std::int64_t row, Ball out) {
  const Shape& shape = of_.graph_.node(static_cast<int>(step.id)).shape;
  if (step.materialise) put(out, shape, row * step.width, of_.balls_[step.id]);
  if (tail_[step.id])
    hand_over_elements(step.id, step.width, out);
  else if (listed_.empty())
    hand_over(step.id, row * step.width, out);
  else
    for (std::size_t k = 0; k < listed_.size() && wanted_by_sink(step.id); ++k)
      hand_over(step.id, listed_[k] * step.width,
                part_of(out, of_.rows_.part(shape, 1), static_cast<std::int64_t>(k) * step.width));
  parts_[step.id] = std::move(out);
}

void BallEvaluator::Pass::hand_over_elements(std::size_t id, std::int64_t width, const Ball& part) {
  if (!wanted_by_sink(id)) return;
  const std::int64_t most = part.shape.last();
  for (std::size_t k = 0; k < listed_.size(); ++k) {
    const std::vector<std::int64_t>& of_row = elements_->at(listed_[k]);
    for (std::int64_t i = 0; i < std::ssize(of_row); ++i)
      hand_over(id, listed_[k] * width + of_row[static_cast<std::size_t>(i)],
                part_of(part, Shape{1}, static_cast<std::int64_t>(k) * most + i));
  }
}

bool BallEvaluator::Pass::run_step(Step& step, std::int64_t row, std::int64_t count) {
  const RowPlan& plan = of_.rows_;
  row_ = row;
  count_ = count;
  std::array<const Ball*, 3> in{};
  const std::size_t n = std::min<std::size_t>(step.node.args.size(), 3);
  for (std::size_t k = 0; k < n; ++k) {
    const auto arg = static_cast<std::size_t>(step.node.args[k]);
    in[k] = tail_[step.id] ? picked(step.rank, arg, row, count) : operand(step.rank, arg, row, count);
  }
  if (grain(step.id) == Grain::column) {
    add_rows(step.id, *in[0], row, count);
  } else {
    const Shape& shape = of_.graph_.node(static_cast<int>(step.id)).shape;
    Ball out;
    step.node.shape = plan.part(shape, count);
    if (tail_[step.id]) step.node.shape[1] = picked_.most;
    if (!of_.compute(step.id, step.node, cut(step, row), {in.data(), n}, out)) return false;
    deliver(step, row, std::move(out));
  }
  for (const std::size_t id : step.last) parts_[id] = Ball{};
  return true;
}

void BallEvaluator::Pass::add_rows(std::size_t id, const Ball& x, std::int64_t row, std::int64_t count) {
  const Node& node = of_.graph_.node(static_cast<int>(id));
  if (of_.radii_ == Radii::uniform) return add_uniform_rows(id, node, x, row, count);
  auto& sums = sums_[id];
  if (!sums) sums = std::make_unique<Sums>(node.shape.count());
  const std::int64_t width = x.count() / count;
  for (std::int64_t i = 0; i < count; ++i)
    add_terms(x, i * width, width, *sums, static_cast<std::size_t>(column_of(of_.rows_, node.axis, row + i) * width));
}

void BallEvaluator::Pass::add_uniform_rows(std::size_t id, const Node& node, const Ball& x, std::int64_t row,
                                           std::int64_t count) {
  auto& sums = uniform_sums_[id];
  if (!sums) sums = std::make_unique<UniformSums>(node.shape.count());
  const std::int64_t width = x.count() / count;
  for (std::int64_t i = 0, same = 0; i < count; i += same) {  // rows that go to the same sums
    const std::int64_t to = column_of(of_.rows_, node.axis, row + i);
    for (same = 1; i + same < count && column_of(of_.rows_, node.axis, row + i + same) == to;) ++same;
    add_values(x.v.get() + i * width, static_cast<std::size_t>(same), static_cast<std::size_t>(width),
               sums->value.data() + to * width, sums->mass.data() + to * width);
  }
  see_terms(x, *sums);
}

bool BallEvaluator::Pass::finish_uniform_column(std::size_t id, const Node& node) {
  const Ball* const in = &of_.balls_[static_cast<std::size_t>(node.args[0])];
  Ball out;
  out.shape = node.shape;
  out.range = {kInfinity, 0, true, false};
  if (!uniform_sums_[id]) uniform_sums_[id] = std::make_unique<UniformSums>(node.shape.count());
  const auto terms = static_cast<double>(of_.rows_.lead_extents[node.axis]);
  if (!store_uniform(of_.context_of(id), *uniform_sums_[id], terms, of_.wants_sum_[id] != 0, out)) return false;
  if (!of_.finish_uniform(node, {&in, 1}, out)) return false;
  hand_over(id, 0, out);
  of_.balls_[id] = std::move(out);
  return true;
}

bool BallEvaluator::Pass::finish_column(std::size_t id) {
  const Node& node = of_.graph_.node(static_cast<int>(id));
  if (of_.radii_ == Radii::uniform) return finish_uniform_column(id, node);
  Ball out;
  out.shape = node.shape;
  if (!sums_[id]) sums_[id] = std::make_unique<Sums>(node.shape.count());  // no rows at all
  allocate(out, false, of_.wants_sum_[id] != 0);
  store_sums(of_.context_of(id), *sums_[id], 0, of_.wants_sum_[id] != 0, out);
  const Ball* const in = &of_.balls_[static_cast<std::size_t>(node.args[0])];
  if (!of_.finish(node, {&in, 1}, out)) return false;
  hand_over(id, 0, out);
  of_.balls_[id] = std::move(out);
  return true;
}

}  // namespace ampcheck::reference
