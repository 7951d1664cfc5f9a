// SPDX-License-Identifier: Apache-2.0
// Streams: the graph block of rows by block of rows, each block's balls in cache from the leaves to the targets.
#include <algorithm>
#include <array>
#include <optional>

#include "reference/ball/ball_parts.h"
#include "reference/ball/row_group.h"

namespace ampcheck::reference {

namespace {

/// Whether each element follows from one of each operand by a rule of element_result().
bool elementwise(Primitive p) {
  return p == Primitive::add || p == Primitive::sub || p == Primitive::neg || p == Primitive::mul ||
         p == Primitive::square || p == Primitive::div || p == Primitive::exp || p == Primitive::expm1 ||
         p == Primitive::tanh || p == Primitive::sqrt || p == Primitive::rsqrt || p == Primitive::sigmoid ||
         p == Primitive::abs || p == Primitive::where || p == Primitive::maximum || p == Primitive::erf ||
         p == Primitive::log || p == Primitive::log1p;
}

/// What computing a node takes: the adjoint rule is the only part that is dear to copy.
Node without_adjoint(const Node& node) {
  return {node.primitive,   node.args,        node.shape, node.value, node.axis,
          node.transpose_a, node.transpose_b, node.map,   node.name,  nullptr};
}

/// Where row `row` of a sum's operand goes: the row's index without the summed axis.
std::int64_t column_of(const RowPlan& plan, int axis, std::int64_t row) {
  std::int64_t inner = 1;
  for (int k = axis + 1; k < plan.lead; ++k) inner *= plan.lead_extents[k];
  return row / (inner * plan.lead_extents[axis]) * inner + row % inner;
}

}  // namespace

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

/// One pass over the rows: the nodes of one phase, which wait for no result of a later one.
class BallEvaluator::Pass {
 public:
  Pass(BallEvaluator& of, const std::vector<char>& needed, const std::vector<Expr>& targets, const BallSink& sink)
      : of_(of), needed_(needed), targets_(targets), sink_(sink), phase_(needed.size(), 0) {
    for (std::size_t id = 0; id < needed.size(); ++id) {
      if (!runs(id)) continue;
      for (const int from : args(id)) {
        const auto arg = static_cast<std::size_t>(from);
        if (!runs(arg)) continue;
        const bool waits = grain(arg) == Grain::column || (grain(arg) == Grain::row && grain(id) == Grain::whole);
        phase_[id] = std::max(phase_[id], phase_[arg] + (waits ? 1 : 0));
      }
      phases_ = std::max(phases_, phase_[id] + 1);
    }
    runs_.resize(needed.size());
    wanted_.resize(needed.size());
    for (std::size_t id = 0; id < needed.size(); ++id) {
      runs_[id] = runs(id);
      if (runs_[id])
        for (const int arg : args(id)) ++wanted_[static_cast<std::size_t>(arg)];
    }
  }

  double radius_at(std::size_t id, std::int64_t at, const RadiusTest& enough) {
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

  bool run(const std::vector<char>* rows, const RowElements* elements) {
    all_rows_ = rows == nullptr, elements_ = elements;
    tail_.assign(runs_.size(), elements != nullptr);
    if (elements != nullptr) mark_tail();
    for (const Expr& target : targets_) {  // known already
      const auto id = static_cast<std::size_t>(target.id);
      handed_ = &of_.balls_[id];
      if (of_.fresh_[id]) sink_(target, 0, of_.balls_[id]);
    }
    for (int phase = 0; phase < phases_; ++phase) {
      for (std::size_t id = 0; id < runs_.size(); ++id) {
        if (!runs_[id] || phase_[id] != phase || grain(id) != Grain::whole) continue;
        if (!of_.compute_whole(id)) return false;
        hand_over(id, 0, of_.balls_[id]);
        release(id);
      }
      if (!run_rows(phase, rows)) return false;
    }
    return true;
  }

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
  void mark_tail() {
    const Shape& shape = of_.graph_.node(targets_.front().id).shape;
    for (std::size_t id = tail_.size(); id-- > 0;) {
      const Node& node = of_.graph_.node(static_cast<int>(id));
      const bool moves =
          moves_nothing(node.primitive) && !node.args.empty() && of_.graph_.node(node.args[0]).shape == shape;
      tail_[id] &= runs_[id] && node.shape == shape && (moves || elementwise(node.primitive));
      for (std::size_t k = 0; runs_[id] && !tail_[id] && k < node.args.size(); ++k)
        tail_[static_cast<std::size_t>(node.args[k])] = 0;
    }
  }

  void hand_over(std::size_t id, std::int64_t first, const Ball& part) {
    handed_ = &part;
    for (const Expr& target : targets_)
      if (static_cast<std::size_t>(target.id) == id) sink_(target, first, part);
  }
  bool wanted_by_sink(std::size_t id) const {
    return std::any_of(targets_.begin(), targets_.end(),
                       [&](const Expr& target) { return static_cast<std::size_t>(target.id) == id; });
  }
  void release(std::size_t id) {
    for (const int arg : args(id))
      if (--wanted_[static_cast<std::size_t>(arg)] == 0) of_.drop(static_cast<std::size_t>(arg));
  }

  std::vector<Step> steps_of(int phase) const {
    std::vector<Step> steps;
    std::vector<std::size_t> last_use(runs_.size(), 0);
    for (std::size_t id = 0; id < runs_.size(); ++id) {
      if (!runs_[id] || phase_[id] != phase || grain(id) == Grain::whole) continue;
      Step step;
      step.id = id, step.node = without_adjoint(of_.graph_.node(static_cast<int>(id)));
      step.rank = step.node.shape.rank;
      if (grain(id) == Grain::row) {
        step.width = step.node.shape.count() / of_.rows_.rows;
        step.node.axis -= of_.rows_.lead - 1;
        step.map = std::move(step.node.map);
        const std::int64_t source = step.map ? of_.graph_.node(step.node.args[0]).shape.count() / of_.rows_.rows : 0;
        const bool takes = step.node.primitive == Primitive::take;
        step.listed = takes ? step.width : source, step.other = takes ? source : step.width;
      }
      step.materialise = grain(id) == Grain::row && of_.keep_[id] && all_rows_;
      for (const int arg : args(id)) last_use[static_cast<std::size_t>(arg)] = steps.size();
      last_use[id] = steps.size();
      steps.push_back(std::move(step));
    }
    std::vector<char> elsewhere(runs_.size(), 0);  // wanted by what is no step of this phase
    for (std::size_t id = 0; id < runs_.size(); ++id)
      if (runs_[id] && (grain(id) == Grain::whole || phase_[id] != phase))
        for (const int arg : args(id)) elsewhere[static_cast<std::size_t>(arg)] = 1;
    for (Step& step : steps) step.materialise |= grain(step.id) == Grain::row && elsewhere[step.id] != 0;
    // One number a row is kept for radius_at() until the next block replaces it.
    for (std::size_t k = 0; k < steps.size(); ++k)
      if (grain(steps[k].id) == Grain::row && (steps[k].width > 1 || of_.radii_ == Radii::each))
        steps[last_use[steps[k].id]].last.push_back(steps[k].id);
    return steps;
  }

  bool run_rows(int phase, const std::vector<char>* rows) {
    std::vector<Step> steps = steps_of(phase);
    if (steps.empty()) return true;
    const RowPlan& plan = of_.rows_;
    parts_.assign(runs_.size(), Ball{});
    sums_.clear(), uniform_sums_.clear();
    const auto wanted = [&](std::int64_t row) {
      return rows == nullptr || (*rows)[static_cast<std::size_t>(row)] != 0;
    };
    const bool gathers = rows != nullptr && plan.lead == 1 &&
                         std::none_of(steps.begin(), steps.end(), [](const Step& s) { return s.map != nullptr; });
    for (std::int64_t row = 0, count = 0; row < plan.rows; row += std::max<std::int64_t>(count, 1)) {
      for (count = 0; count < plan.step && row + count < plan.rows && wanted(row + count);) ++count;
      if (count == 0) continue;
      listed_.clear();
      std::int64_t taken = count;
      if (gathers && (elements_ != nullptr || count < plan.step)) {  // rows that stand alone make a block together
        for (count = 0; std::ssize(listed_) < plan.step && row + count < plan.rows; ++count)
          if (wanted(row + count)) listed_.push_back(row + count);
        taken = std::ssize(listed_);
      }
      slices_.clear(), picks_.clear();
      if (elements_ != nullptr) picked_ = elements_of_rows(*elements_, listed_);
      for (std::size_t k = 0; k < steps.size();) {
        const std::size_t end = of_.radii_ == Radii::uniform ? run_group(steps, k, row, taken) : k;
        for (std::size_t i = k; i < end; ++i)
          if (!finish_step(steps[i], group_[i - k], row, taken)) return false;
        k = end;
        if (k < steps.size() && !run_step(steps[k++], row, taken)) return false;
      }
    }
    listed_.clear();
    for (Step& step : steps) {
      if (grain(step.id) == Grain::column && !finish_column(step.id)) return false;
      if (step.materialise || grain(step.id) == Grain::column) of_.fresh_[step.id] = 1;
    }
    for (const Step& step : steps) release(step.id);
    return true;
  }

  /// An operand's part: of this pass, or cut out of a whole one; one that is the same for all rows stays as it is.
  const Ball* operand(int rank, std::size_t id, std::int64_t row, std::int64_t count) {
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

  /// What a step of the tail sees of an operand: its elements alone.
  const Ball* picked(int rank, std::size_t id, std::int64_t row, std::int64_t count) {
    const Ball* const all = operand(rank, id, row, count);
    const std::int64_t width = of_.graph_.node(targets_.front().id).shape.last();
    if (tail_[id] || all->shape.last() != width) return all;
    for (const auto& [known, part] : picks_)
      if (known == id) return part.get();
    picks_.emplace_back(id, std::make_unique<Ball>(elements_of(*all, width, picked_)));
    return picks_.back().second.get();
  }

  /// The part of an operand, if it is still there or was known before.
  const Ball* at_hand(std::size_t id, int rank) {
    return parts_[id].v || of_.balls_[id].v ? operand(rank, id, row_, count_) : nullptr;
  }

  /// How the elements of a part find those of its operands, gone ones included.
  const BroadcastPlan& plan_of(std::size_t id, const Shape& shape) {
    if (plans_.empty() || planned_ != count_) plans_.assign(runs_.size(), {}), planned_ = count_;
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

  /// An element of an operand; nothing where it is gone and does not follow from what is there.
  std::optional<ElementBound> operand_at(std::size_t id, int rank, std::int64_t at, int depth) {
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

  /// An element of a part, from those of its operands.
  std::optional<ElementBound> result_at(std::size_t id, const Shape& shape, std::int64_t at, int depth) {
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

  const RuleContext& rules_of(std::size_t id) {
    if (rules_.empty()) rules_.resize(runs_.size());
    if (!rules_[id]) rules_[id] = of_.context_of(id);
    return *rules_[id];
  }

  /// The map of the rows from `row` on, counted from the first of them.
  static MapPart cut(const Step& step, std::int64_t row) {
    MapPart part(step.map);
    if (part.first != nullptr) part.first += row * step.listed, part.base = row * step.other;
    return part;
  }

  /// Values of steps[first], steps[first + 1], ... as far as each row of theirs follows from rows of operands; returns
  /// where that ends.
  std::size_t run_group(std::vector<Step>& steps, std::size_t first, std::int64_t row, std::int64_t count) {
    row_ = row, count_ = count;
    group_.clear();
    std::size_t end = first;
    while (end < steps.size() && add_to_group(steps[end], row, count)) ++end;
    run_row_steps(group_, count);
    return end;
  }

  bool add_to_group(Step& step, std::int64_t row, std::int64_t count) {
    const RowPlan& plan = of_.rows_;
    const std::size_t n = step.node.args.size();
    if (plan.lead != 1 || n == 0 || n > 3 || of_.graph_.node(static_cast<int>(step.id)).map) return false;
    std::array<const Ball*, 3> in{};
    for (std::size_t k = 0; k < n; ++k)
      in[k] = operand(step.rank, static_cast<std::size_t>(step.node.args[k]), row, count);
    const auto has_rows = [&](std::size_t k) {
      return plan.has_rows[static_cast<std::size_t>(step.node.args[k])] != 0;
    };
    RowStep out;
    out.primitive = step.node.primitive;
    if (grain(step.id) == Grain::column) {
      auto& sums = uniform_sums_[step.id];
      if (!sums) sums = std::make_unique<UniformSums>(of_.graph_.node(static_cast<int>(step.id)).shape.count());
      out.kind = RowStep::Kind::column, out.n = static_cast<std::size_t>(in[0]->count() / count);
      if (sums->value.size() != out.n) return false;
      out.in[0].p = in[0]->v.get(), out.advance[0] = static_cast<std::int64_t>(out.n), out.out = sums->value.data(),
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
      out.kind = RowStep::Kind::sum, out.n = static_cast<std::size_t>(axis.n);
      out.in[0].p = in[0]->v.get(), out.advance[0] = axis.n, out.mass = row_sums_[step.id]->mass.data();
      part = Ball{}, part.shape = step.node.shape, part.v = make_channel(count), out.out = part.v.get();
    } else if (moves_nothing(step.node.primitive)) {
      const Channel same = in[0]->v;
      part = Ball{}, part.shape = step.node.shape, part.v = same;
    } else if (elementwise(step.node.primitive) || step.node.primitive == Primitive::less ||
               step.node.primitive == Primitive::less_equal || step.node.primitive == Primitive::equal) {
      out.kind = seen_as_products(step.node) ? RowStep::Kind::products : RowStep::Kind::values,
      out.n = static_cast<std::size_t>(step.width);
      for (std::size_t k = 0; k < n; ++k)
        if (!lies_by_rows(*in[k], has_rows(k), step.width, count, out.in[k], out.advance[k])) return false;
      part = Ball{}, part.shape = step.node.shape, part.v = make_channel(part.count()), out.out = part.v.get();
    } else {
      return false;
    }
    group_.push_back(out);
    return true;
  }

  /// The rest of a step whose values are there.
  bool finish_step(Step& step, const RowStep& done, std::int64_t row, std::int64_t count) {
    if (done.kind == RowStep::Kind::moved) return run_step(step, row, count);
    row_ = row, count_ = count;
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

  /// Hands a part over and keeps it for those that need it.
  void deliver(Step& step, std::int64_t row, Ball out) {
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

  void hand_over_elements(std::size_t id, std::int64_t width, const Ball& part) {
    if (!wanted_by_sink(id)) return;
    const std::int64_t most = part.shape.last();
    for (std::size_t k = 0; k < listed_.size(); ++k) {
      const std::vector<std::int64_t>& of_row = elements_->at(listed_[k]);
      for (std::int64_t i = 0; i < std::ssize(of_row); ++i)
        hand_over(id, listed_[k] * width + of_row[static_cast<std::size_t>(i)],
                  part_of(part, Shape{1}, static_cast<std::int64_t>(k) * most + i));
    }
  }

  bool run_step(Step& step, std::int64_t row, std::int64_t count) {
    const RowPlan& plan = of_.rows_;
    row_ = row, count_ = count;
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

  void add_rows(std::size_t id, const Ball& x, std::int64_t row, std::int64_t count) {
    const Node& node = of_.graph_.node(static_cast<int>(id));
    if (of_.radii_ == Radii::uniform) return add_uniform_rows(id, node, x, row, count);
    auto& sums = sums_[id];
    if (!sums) sums = std::make_unique<Sums>(node.shape.count());
    const std::int64_t width = x.count() / count;
    for (std::int64_t i = 0; i < count; ++i)
      add_terms(x, i * width, width, *sums, static_cast<std::size_t>(column_of(of_.rows_, node.axis, row + i) * width));
  }

  void add_uniform_rows(std::size_t id, const Node& node, const Ball& x, std::int64_t row, std::int64_t count) {
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

  bool finish_uniform_column(std::size_t id, const Node& node) {
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

  bool finish_column(std::size_t id) {
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

double BallEvaluator::radius_at(Expr target, std::int64_t at, const RadiusTest& enough) const {
  return pass_->radius_at(static_cast<std::size_t>(target.id), at, enough);
}

void BallEvaluator::forget() {
  for (std::size_t id = 0; id < balls_.size(); ++id)
    if (!given_[id]) balls_[id] = Ball{}, fresh_[id] = 0;
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
